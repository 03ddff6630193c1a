// Runs what attempts do in their run folders on threads of those folders' file systems, which may
// hold them for ever (docs/adr/0021): the keeper's loop begins a turn, waits for a moment, and goes
// on without the ones that are not back.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/disk_calls/mounts.h"

namespace trireme::keeper {

coordinator::DiskCallsOptions TurnOptions();

// One thread.
class AttemptTurns {
 public:
  // `wait`: how long a round is waited for.
  explicit AttemptTurns(std::chrono::milliseconds wait,
                        coordinator::DiskCallsOptions options = TurnOptions());
  // A turn that hangs is left behind, with what it owns.
  ~AttemptTurns();
  AttemptTurns(const AttemptTurns&) = delete;
  AttemptTurns& operator=(const AttemptTurns&) = delete;

  // What is begun from now on belongs to it. What is under way is waited for no more.
  void BeginRound();
  // Never blocks. `turn` runs on a thread of the file system of `path`, however late; after it, or
  // if it is never run, because all threads there hang, `over` is called once from any thread. Both
  // own what they touch.
  void Begin(const std::string& path, const std::string& owner, std::function<void()> turn,
             std::function<void()> over);
  // Until all of this round are over, or its time is.
  void AwaitRound();
  // Likewise for a look at /proc, which a process that the kernel holds may hold up too (as ps). It
  // belongs to no round.
  void BeginSweep(const std::string& owner, std::function<void()> sweep,
                  std::function<void()> over);
  // "nfs4 server:/export"; empty: nobody knows.
  std::string MountOf(const std::string& path);

 private:
  struct Round;
  const std::chrono::milliseconds wait_;
  coordinator::MountTable mounts_;
  std::shared_ptr<Round> round_;
  coordinator::DiskCalls calls_;
};

}  // namespace trireme::keeper
