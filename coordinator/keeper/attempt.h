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
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_place.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/keeper_options.h"
#include "coordinator/keeper/launch.h"
#include "coordinator/keeper/rank_watch.h"
#include "coordinator/slurm/queue.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

// What a turn is to do by.
struct Turn {
  int64_t now_ns = 0;      // CLOCK_MONOTONIC, at its beginning
  bool may_start = false;  // of older attempts of the job nothing is left here
};

struct Desired {
  v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN;
  double grace_seconds = 0;
  int64_t stop_wanted_ns = 0;  // CLOCK_MONOTONIC; since when, where a stop is desired
  std::string store;           // whose job it is
  std::string cut_off;  // why it is ended, whatever is desired (Lifeline::Cut); empty: it is not
  bool keeper_left = false;  // another one may have it by now
};

// The loop changes its mind while a turn is held by a disk. Threads: any.
class SharedDesired {
 public:
  void Set(Desired newest) {
    const absl::MutexLock lock(&mutex_);
    newest_ = std::move(newest);
  }
  Desired Newest() const {
    const absl::MutexLock lock(&mutex_);
    return newest_;
  }

 private:
  mutable absl::Mutex mutex_;
  Desired newest_ ABSL_GUARDED_BY(mutex_);
};

// What a turn brings.
struct Sighting {
  v1::AttemptReport report;
  bool ended = false;
  std::string store;      // in the record
  int64_t looked_ns = 0;  // base::BoottimeNs before the last look at its ranks
};

// How this keeper came to hear of an attempt.
struct Heard {
  bool adopted = false;       // from the record of a keeper before this one
  uint32_t newest_known = 0;  // of its job, when it was first desired
};

// Whether mpirun is started on `node`; the other nodes watch their ranks.
bool Launches(const v1::LaunchSpec& launch, const std::string& node);
WatchedRanks RanksOf(const v1::DesiredAttempt& attempt, const KeeperOptions& options);
int64_t StopGraceNs(const v1::DesiredAttempt& attempt);

// One thread at a time, which a disk may hold. The destructor leaves everything running.
class Attempt {
 public:
  // The first turn looks whether it may start, and saves the record, unless it is an adopted one.
  // `queue` is Slurm's, where options->slurm is given. `desired` outlives it.
  Attempt(std::shared_ptr<const KeeperOptions> options, AttemptRecord record, Heard heard,
          std::shared_ptr<slurm::Queue> queue, const SharedDesired& desired);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Looks, starts, asks, kills; a few ms, a start some tens. On a disk that hangs it does not
  // return.
  void Advance(const Turn& turn);
  Sighting Newest() const;

 private:
  void Learn();
  void Heed();
  void NameStore(const std::string& store);
  void NoteBegun(const Seen& seen);
  void NoteRanks();
  Place LookForFolder(Seen& seen);
  void AdvanceLauncher(Seen seen, const Turn& turn);
  void AdvanceWatcher();
  bool IsKillDue(int64_t now_ns) const;
  void AdvanceUnreadable(const std::string& why, int64_t now_ns);
  void EndUnread(const std::string& why);
  void Begin(const Turn& turn);
  absl::Status Start();
  bool EndedAsDesired();
  bool IsWanted() const;
  void Steer(int64_t now_ns);
  void LookForCheckpoint(int64_t now_ns);
  void FindCheckpoint();
  bool NoRankCameUp() const;
  void EndWith(int exit_code);
  void EndRemoved(const Seen& seen, int64_t now_ns);
  PlaceSeen SeePlace() const;
  void EndVanished(const Seen& seen);
  // Whose doing it is that an attempt is never started.
  enum class Doing { kOthers, kOurs };
  void Refuse(const std::string& why, int exit_code, Doing doing = Doing::kOthers);
  void EndUnstarted(const std::string& why, int exit_code, Doing doing = Doing::kOthers);
  void EndNothingStarts(const std::string& why, int exit_code, Doing doing);
  void End(int exit_code, std::optional<v1::Failure> failure);
  v1::AttemptReport Report() const;
  bool BySrun() const { return options_.in_allocation || options_.slurm.has_value(); }
  bool IsCalledOff() const;
  absl::Status Save() const;

  // A turn that hangs may outlive the keeper: these are its own.
  const std::shared_ptr<const KeeperOptions> options_owner_;
  const std::shared_ptr<slurm::Queue> queue_;
  const KeeperOptions& options_;
  const SharedDesired& shared_desired_;
  const Heard heard_;
  bool learned_;
  bool recorded_;  // it is on the disk
  AttemptRecord record_;
  AttemptFolder folder_;
  bool launcher_;
  std::unique_ptr<Launch> launch_;
  RankWatch ranks_;
  int64_t looked_ns_;  // base::BoottimeNs before the last look at the ranks
  bool kill_asked_ = false;
  std::string waits_for_;
  std::string unreadable_;         // why its folder cannot be read; empty: it can
  bool ran_here_ = false;          // ranks of what its record calls not begun were seen
  int64_t runner_gone_ns_ = 0;     // since when nothing runs that would leave a verdict there
  int64_t checkpoints_at_ns_ = 0;  // of the last look at their folder
  uint64_t saved_step_ = 0;        // of the newest that it has saved
  std::string not_saved_;          // why saves have failed since
  bool ended_ = false;
  v1::AttemptReport end_;  // what the last report adds
};

}  // namespace trireme::keeper
