// A job on this machine without a daemon: reconciler, store in memory and keeper in one process,
// one job, one node. The caller turns the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/keeper/keeper.h"
#include "coordinator/keeper/worker_links.h"
#include "coordinator/process/clock_watch.h"
#include "coordinator/reconciler/job_table.h"
#include "coordinator/reconciler/reconciler.h"
#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct LocalRunOptions {
  v1::JobSpec job;         // resolved
  int ranks = 1;           // of this machine, however many cores it has
  std::string run_folder;  // absolute, of this process alone; holds job.yaml
  std::string resume;      // a checkpoint folder to begin from; empty: from the start
  std::string worker;      // path of trireme-worker
  bool bind_to_cores = false;
  bool in_allocation = false;  // ranks are a step of the Slurm allocation that we are in
  RetryPolicy retry;
};

// One thread. The ranks end with this process, however it ends.
class LocalRun {
 public:
  // Submits the job; the first turn starts it. What an earlier process has left in the run folder
  // is ended first. Errors: those of Keeper::Open; Aborted where another process keeps the folder.
  static absl::StatusOr<std::unique_ptr<LocalRun>> Start(const LocalRunOptions& options);
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  // Looks, decides, acts: a few ms, a start some tens. To be called every 20 to 100 ms until Over.
  absl::Status Turn();
  // At the next step boundary with a checkpoint; killed after `grace_seconds` (more than 0).
  absl::Status Stop(double grace_seconds);
  absl::Status Kill();
  // Kills what still runs, 30 s at most, and lets the keeper forget it.
  void Close();

  // Completed, failed, cancelled, or stopped (paused): nothing runs any more.
  bool Over() const;
  // With the progress that rank 0 last reported, of this attempt or an earlier one.
  v1::Job job() const;
  // What has happened since the last call.
  std::vector<v1::Event> TakeEvents();

 private:
  explicit LocalRun(const LocalRunOptions& options);
  absl::Status OpenKeeper();
  absl::Status OpenReconciler();
  absl::Status Submit();
  absl::StatusOr<uint32_t> AttemptsBefore();
  std::string ResumePoint() const;
  void TellKeeper();
  absl::Status StayStopped(int64_t now_unix_ns);

  const LocalRunOptions options_;
  const std::string node_;
  std::unique_ptr<JobStore> store_;
  JobTable table_;
  std::unique_ptr<keeper::Keeper> keeper_;
  keeper::WorkerLinks links_;
  std::unique_ptr<Reconciler> reconciler_;
  ClockWatch clock_watch_;
  uint64_t job_id_ = 0;
  uint32_t attempts_before_ = 0;  // by earlier processes, in the same run folder
  uint32_t linked_ = 0;           // the attempt that RUN/logs shows
  uint64_t sequence_ = 0;         // of the last event taken
  std::optional<uint32_t> plan_wanted_;
  bool desired_changed_ = true;
};

}  // namespace trireme::coordinator
