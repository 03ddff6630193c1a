// Who is a node: the one agent that holds the node's name. It keeps it by what it says, and for a
// lease after its last word, also when its line is cut and while the daemon is started anew.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

// Threads: any.
class NodeLeases {
 public:
  using Clock = std::chrono::steady_clock;

  // As if it had spoken now: a daemon that has just begun does not know since when it is silent.
  void Recall(const std::string& node, const std::string& holder, Clock::time_point now);
  // True: `holder` has the name from now on. False: another one has it, who spoke within `lease`.
  bool Take(const std::string& node, const std::string& holder, Clock::time_point now,
            std::chrono::milliseconds lease);
  // Empty: nobody's.
  std::string HolderOf(const std::string& node) const;
  // A word of the holder.
  void Renew(const std::string& node, Clock::time_point now);

 private:
  struct Lease {
    std::string holder;
    Clock::time_point renewed;
  };
  mutable absl::Mutex mutex_;
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
