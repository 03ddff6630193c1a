// TrainingRun: the loop over steps of one rank, with evaluation, checkpoints, metrics and the stop
// at a step boundary.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/client/writer_claim.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/real_path.h"
#include "runtime/recorder/flight_recorder.h"
#include "worker/run_files.h"
#include "worker/session.h"
#include "worker/shared_checkpoints.h"
#include "worker/snapshots.h"
#include "worker/step_timeline.h"
#include "worker/throughput.h"
#include "worker/trace_files.h"

namespace trireme::worker {

struct TrainingRunOptions {
  std::string run_directory;
  std::string resume;  // a checkpoint folder, "auto" (the newest of this run, if any) or empty
  // The files and folders that the job names are opened without following links.
  bool real_paths = false;
  // For a process that holds the folder of the checkpoints. NFSv4 keeps the locks of a lost node
  // for a lease, by default 90 s, Lustre until it is evicted.
  std::chrono::milliseconds claim_wait = std::chrono::minutes{2};
  // Of versions in memory: those of this attempt and later ones, whatever `resume` says; 0: of any,
  // where that is auto.
  uint32_t snapshots_since = 0;
  uint64_t snapshots_before = 0;  // of steps before this one alone; 0: of any
  uint32_t attempt = 0;  // which the claim of the run folder may name a newer one than; 0: none
  std::string save_log;  // file that rank 0 names its checkpoints in (runtime/recorder/save_log.h)
};

// Thread: one, the engine's.
class TrainingRun {
 public:
  // All outlive it.
  TrainingRun(const v1::JobSpec& job, const TrainingRunOptions& options, Session& session,
              const data::Dataset& dataset, recorder::FlightRecorder& recorder,
              Snapshots& snapshots);
  // Collective. base::kOk at the end of the job, base::kCheckpointed after a stop, also one that
  // was asked for while another process held the folder.
  absl::StatusOr<base::ExitCode> Run();

 private:
  absl::Status Start();
  // Rank 0's, once the folder is its own: a start that is refused leaves what lies there.
  absl::Status OpenLogs();
  // So that the run folder stands alone; else the coordinator has written both.
  absl::Status WriteJob() const;
  // FailedPrecondition in what is left of an attempt whose time is over: what it would write lies
  // in the place of a newer one's.
  absl::Status CheckAttempt() const;
  // At most once a second: whether this attempt still counts, as the run folder says.
  bool IsReplaced();
  // Where others may put what they like: that the folder of the checkpoints is still where the job
  // was allowed to have it.
  absl::Status CheckRoot() const;
  base::Links LinksInRoot() const;
  // From a checkpoint or the seed, with rank 0's claim on the folder that this run writes into.
  absl::Status TakeState();
  CheckpointRoot Root() const;
  // Refused where job or data differ.
  absl::Status AgreeOnJob();
  // Collective, before any state is touched: whether this run may begin after `step`. A start that
  // is refused leaves memory and disk as they are.
  absl::Status BeginBehind(uint64_t step, Choice& choice);
  // Rank 0's, before it looks at what lies in the folder, so that nobody else changes it then.
  absl::Status TakeClaim();
  absl::Status ShareEpoch();
  // Rank 0: sets damaged checkpoints of steps to come aside, and names them.
  absl::Status BeginAfter(uint64_t step, const std::vector<checkpoint::Skipped>& damaged);
  absl::Status CheckAlike(const std::string& job_of_rank_0, bool same_text) const;
  absl::Status CheckMadeBy(const checkpoint::CheckpointInfo& info, const std::string& folder) const;
  absl::Status CheckResumable(const checkpoint::Checkpoint& checkpoint) const;
  absl::Status Resume(const checkpoint::Checkpoint& checkpoint);
  // From the newest version in memory, where the run goes on by itself and no checkpoint is as new.
  // False: from none; what is on the disk is in `choice`, if it was looked for.
  absl::StatusOr<bool> TakeFromMemory(Choice& choice);
  absl::StatusOr<std::optional<HeldVersion>> FindInMemory(Choice& choice);
  // False: copies of it differ, and nobody goes on from it any more.
  absl::StatusOr<bool> ResumeInMemory(const HeldVersion& version);
  // Of the job, its vocabulary and its text: of two runs that may go on in each other's memory.
  uint64_t RunHash() const;
  void TellSnapshots();
  // Collective, of a run that goes on in memory: whether that step has been evaluated.
  absl::Status ShareKeptValidation();
  // What follows a step: evaluation, checkpoint. True: the run has stopped, with its checkpoint
  // written.
  absl::StatusOr<bool> FollowStep(bool stop);
  absl::StatusOr<bool> Step();  // true: stop was agreed
  bool IsLogged(uint64_t step) const;
  absl::Status Report(const engine::StepReport& report);
  absl::StatusOr<bool> Evaluate();  // false: left for a stop
  // Whether the state may be saved; the same on all ranks.
  absl::Status CheckState();
  // A failure to save is a warning, never the end of training; false: not saved. Replicas that
  // differ, and state that a disk has lost, are not saved: they end it.
  absl::StatusOr<bool> Save();
  // Where the log does not take the name, it is tried again at each logged step.
  void NoteSave(const std::string& name);
  // Of saves that fail in a row, the first of each kind.
  void NoteFailedSave(const absl::Status& why);
  std::string LostWithoutSave() const;
  absl::Status NoteUnnoted();
  absl::Status WriteShards(const std::string& partial_folder);
  checkpoint::CheckpointInfo Describe() const;
  absl::Status Finish();
  // Rank 0's.
  absl::Status WriteEnd(const std::string& checkpoint, const absl::StatusOr<std::string>& sample);
  // Rank 0's, which writes no checkpoint any more.
  void EmptyHidden() const;
  // Collective; the last wait for disks. `own`: how this rank's writing went.
  absl::Status Leave(const absl::Status& own);
  absl::StatusOr<std::string> Sample();
  // Collective. Writes what is traced so far and forgets it; a failure is a warning.
  absl::Status WriteTrace();
  double SkippedSteps() const;
  std::string ReportJson(const std::string& checkpoint) const;
  bool leader() const { return session_.engine().rank() == 0; }

  const v1::JobSpec& job_;
  const TrainingRunOptions options_;
  Session& session_;
  comm::Agreement& ranks_;
  const data::Dataset& dataset_;
  recorder::FlightRecorder& recorder_;
  Snapshots& snapshots_;
  const std::string checkpoint_root_;
  std::optional<checkpoint::WriterClaim> claim_;        // of checkpoint_root_, on rank 0
  checkpoint::Epoch epoch_ = checkpoint::Epoch::kNone;  // of that claim, on all ranks
  std::optional<MetricsLog> metrics_;
  const TracedSteps traced_;
  TraceKeeper trace_;
  std::optional<StepTimeline> timeline_;  // until Leave
  bool clock_set_ = false;                // the engine's, by all ranks together
  recorder::Progress progress_;
  uint64_t data_digest_ = 0;
  uint64_t step_ = 0;  // updates done
  bool from_memory_ = false;
  uint64_t saved_step_ = 0;
  uint64_t failed_saves_ = 0;  // of this attempt
  std::string unnoted_;        // the newest save, where the log has yet to take its name
  // Of saves since the last one that was written: one a kind, however they take turns.
  std::set<std::string> noted_failures_;
  double peak_flops_ = 0;
  double flops_per_token_ = 0;
  Throughput throughput_;  // of this attempt
  ExposureSums exposure_;
  std::vector<engine::RankCoding> coding_;  // by rank, as last logged
  std::string loose_bound_;                 // the last warning of one
  int64_t claim_read_ns_ = 0;               // of the last look by IsReplaced
  bool replaced_ = false;                   // as seen then
};

}  // namespace trireme::worker
