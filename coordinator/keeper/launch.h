// How an attempt is begun, seen, asked to stop and ended: by mpirun under a guard of this machine,
// or as a job of Slurm. What is desired, and when to give up waiting, is the attempt's
// (coordinator/keeper/attempt.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/keeper_options.h"
#include "coordinator/slurm/queue.h"

namespace trireme::keeper {

// One thread. The destructor leaves everything running.
class Launch {
 public:
  virtual ~Launch() = default;
  virtual Seen Look(int64_t now_ns) = 0;
  // Nothing is left of other attempts that could disturb this one. False: look again next turn.
  virtual bool Ready() = 0;
  // After kNothing, in the attempt's folder; it is recorded as begun. Also again: whatever comes
  // late, the folder is claimed once. `called_off` is asked when no disk is waited for any more.
  // DeadlineExceeded: it may begin yet. Cancelled: it was called off. Other errors are final.
  virtual absl::Status Start(const std::function<bool()>& called_off) = 0;
  // Both are called every turn for as long as they are desired, of an attempt that is kLive or
  // kUnreadable.
  virtual void AskToStop(int64_t now_ns) = 0;
  virtual void Kill(int64_t now_ns) = 0;
  // Every turn of an attempt that another node launches, while it is wanted: its ranks may come.
  virtual void AwaitRanks() {}
  // From now on nothing starts. AlreadyExists: it has.
  virtual absl::Status Seal() = 0;
  // After kVanished, or for ranks that another node has launched: kills what is left of it here;
  // true when there is surely nothing.
  virtual bool SweptClean() = 0;
  // Of an attempt that another node launches: that the kernel has killed ranks here for want of
  // memory; nullopt: not as far as is known.
  virtual std::optional<v1::Failure> MemoryKill() const { return std::nullopt; }
  // Of an attempt whose folder cannot be read: what would leave its verdict there (a guard, a job
  // of Slurm) is surely gone. Kills nothing.
  virtual bool RunnerGone() = 0;
  // Processes of it live here, in its group or by their mark; false where none could. Kills
  // nothing.
  virtual bool HasRanks() { return false; }
  // Once, at the end.
  virtual void CleanUp() = 0;
};

// `options`, `record` and `folder` outlive it.
std::unique_ptr<Launch> MakeMpirunLaunch(const KeeperOptions& options, const AttemptRecord& record,
                                         const AttemptFolder& folder);
// `queue` too. `options.slurm` is given.
std::unique_ptr<Launch> MakeSlurmLaunch(const KeeperOptions& options, const AttemptRecord& record,
                                        const AttemptFolder& folder, slurm::Queue& queue);

// The coordinator writes it before an attempt starts.
std::string PlanFileOf(const v1::LaunchSpec& launch);

// Of the program of a rank, whoever starts it; with the plan's file, for ranks without a keeper.
std::vector<std::string> WorkerArguments(const KeeperOptions& options,
                                         const v1::DesiredAttempt& attempt,
                                         const AttemptFolder& folder);

}  // namespace trireme::keeper
