// One attempt on this node, from the first word of it to its report of ENDED:
//
//   nothing ──start──▶ (queued) ──▶ claimed, alive ──▶ exit file ──▶ ended
//      │                   │               └─ vanished ─ leftovers killed ─▶ ended
//      └───────seal────────┴──▶ never started ──▶ ended
//
// What is so stands in its folder; only what is desired and the reason of an attempt that never
// started stand in the record. So whoever opens the record goes on where the other was cut off.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/keeper_options.h"
#include "coordinator/keeper/launch.h"
#include "coordinator/keeper/lifeline.h"
#include "coordinator/keeper/rank_watch.h"
#include "coordinator/keeper/seat.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

struct Turn {
  int64_t now_ns = 0;       // CLOCK_MONOTONIC
  bool may_start = false;   // of older attempts of the job nothing is left here
  int64_t boottime_ns = 0;  // base::BoottimeNs
};

// Whether mpirun is started on `node`; the other nodes watch their ranks.
bool Launches(const v1::LaunchSpec& launch, const std::string& node);

// One thread. The destructor leaves everything running.
class Attempt {
 public:
  // The record is saved. `queue` is Slurm's, where options.slurm is given.
  // `adopted`: of a keeper before this one.
  Attempt(const KeeperOptions& options, AttemptRecord record, slurm::Queue* queue,
          bool adopted = false);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void SetDesiredState(v1::AttemptDesiredState desired_state, double grace_seconds);
  // Of one whose record has none. Its folder has none either.
  void NameStore(const std::string& store);
  // What others say of whether it counts (lifeline.h).
  Lifeline& lifeline() { return lifeline_; }
  // Looks, starts, asks, kills; a few ms, a start up to 10 s on a disk that hangs.
  void Advance(const Turn& turn);
  v1::AttemptReport Report() const;
  // Empty once it has ended.
  std::optional<Seat> seat() const;
  bool ended() const { return ended_; }
  const AttemptRecord& record() const { return record_; }

 private:
  void AdvanceLauncher(const Seen& seen, const Turn& turn);
  void AdvanceWatcher();
  void KillUnseen(int64_t now_ns);
  void Begin(const Turn& turn);
  absl::Status Start();
  bool EndedAsDesired();
  void Steer(int64_t now_ns);
  void CutOff(int64_t boottime_ns);
  int64_t EndAfterNs() const;
  void LookForCheckpoint(int64_t now_ns);
  void FindCheckpoint();
  void EndWith(int exit_code);
  void EndVanished(const Seen& seen);
  void EndUnstarted(const std::string& why, int exit_code);
  void End(int exit_code, std::optional<v1::Failure> failure);
  bool BySrun() const { return options_.in_allocation || options_.slurm.has_value(); }
  absl::Status Save() const { return SaveRecord(options_.state_folder, record_); }

  const KeeperOptions& options_;
  AttemptRecord record_;
  AttemptFolder folder_;
  bool launcher_;
  std::unique_ptr<Launch> launch_;
  RankWatch ranks_;
  Lifeline lifeline_;
  int64_t turned_ns_;  // base::BoottimeNs of the turn before
  bool kill_asked_ = false;
  std::string waits_for_;
  int64_t checkpoints_at_ns_ = 0;  // of the last look at their folder
  uint64_t saved_step_ = 0;        // of the newest that it has saved
  bool ended_ = false;
  v1::AttemptReport end_;  // what the last report adds
};

}  // namespace trireme::keeper
