// Who is a node: the one agent that holds the node's name. It keeps it by what it says, and for a
// lease after its last word, also when its line is cut and while the daemon is started anew.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/reconciler/job_table.h"

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
  // Nodes whose holders have spoken since the last call: whoever judges their silence may come to
  // their words later.
  std::set<std::string> TakeSpoken();

 private:
  struct Lease {
    std::string holder;
    Clock::time_point renewed;
  };
  mutable absl::Mutex mutex_;
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> spoken_ ABSL_GUARDED_BY(mutex_);
};

struct NameTimes {
  std::chrono::milliseconds lease{0};
  std::chrono::milliseconds lost_node_after{0};
};
// Who asks for the name of a node, beside its holder.
enum class NameAsker {
  kAnother,
  kAfterReboot,    // the holder's agent, by its state folder, in another boot of a machine
  kByAnotherToken  // the same in the same boot: it looks after the ranks that are there
};
// When another agent may have the name of a node.
struct NameTurn {
  std::chrono::milliseconds lease{0};  // of its holder's silence
  // Not before the attempts there have been replaced, for which Reconciler::NameWanted asks.
  bool when_replaced = false;
};
// Where ranks may live, never: of another holder's attempts the new one knows nothing, and what it
// says of them would be taken for the truth. Ranks that silence does not end may live for ever, but
// for those of an agent whose machine has been started anew. Any thread.
NameTurn NameTurnOf(const JobTable& table, const NameTimes& times, const std::string& node,
                    NameAsker asker);

}  // namespace trireme::coordinator
