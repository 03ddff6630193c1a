// The nodes that a reconciler knows: what they have, whether their agents speak, who may use them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/reconciler/starts_in_vain.h"
#include "coordinator/scheduler/scheduler.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/event.pb.h"

namespace trireme::coordinator {

// Whether jobs may have a node.
struct NodeUse {
  std::string node;
  bool drained = false;
  std::string reason;
  bool gone = false;    // with drained: off for good, so that nothing of a job is left there
  std::string by = "";  // who says so, for people
};

// One thread, the reconciler's.
class Nodes {
 public:
  explicit Nodes(std::chrono::milliseconds lease) : lease_(lease) {}

  // What the store knows: drained and gone flags and reasons, adoptions, if any. Lost until their
  // agents speak.
  void Load(const std::vector<v1::Node>& stored);
  // Each returns the events to tell; none if nothing has changed. Whoever speaks is not gone.
  // `continues`: the store holds all that hello.served held; else its agent refuses, until it is
  // heard that it does not.
  std::vector<v1::Event> Hello(const v1::AgentHello& hello, bool continues, int64_t now_unix_ns);
  // Who holds its name; true if that is another than before.
  bool SetHolder(const std::string& node, const std::string& holder);
  // What its agent says of itself; true if that is another thing than before. Nothing to tell.
  bool SetRefusal(const std::string& node, const v1::NodeReport& report);
  // Adopted for the sake of the state that its agent keeps; null: no longer. True if that is
  // another thing than before: the node is then to be stored.
  bool SetAdopted(const std::string& node, const v1::StorePosition* from);
  std::vector<v1::Event> Heard(const std::string& node, int64_t now_unix_ns);
  // It has said something that is still to be acted on.
  void Spoke(const std::string& node, int64_t now_unix_ns);
  // Those that have not spoken at all; to be told when they are late.
  std::vector<v1::Event> Absent() const;
  // Those whose lease has ended.
  std::vector<v1::Event> Expire(int64_t now_unix_ns);
  // The clock that callers read, which says `now_unix_ns` since: leases go on as before.
  void ClockWasSet(int64_t by_ns, int64_t now_unix_ns);
  // For so long, up to now, nobody was listened to: that counts as nobody's silence.
  void StoodStill(int64_t for_ns, int64_t now_unix_ns);
  // The event of it; the node is then to be stored. NotFound: no such node; FailedPrecondition: it
  // is heard of, so it is not gone.
  absl::StatusOr<v1::Event> SetUse(const NodeUse& use, int64_t now_unix_ns);
  // Whether agents could start the newest attempts: counted since this daemon was started.
  StartsInVain& in_vain() { return in_vain_; }
  // Those that are to be drained for it, and are not. The last one that can be used is not: who
  // waits for it to be mended may as well try.
  std::vector<NodeUse> Unable() const;
  // It could start none of the newest attempts, and no other node can be used.
  bool IsLastAndUnable(const std::string& node) const;
  // The event of it; nothing else.
  v1::Event Adopted(const std::string& node, const std::string& by) const;

  bool IsLost(const std::string& node) const;
  bool IsGone(const std::string& node) const { return Get(node).gone(); }
  // Since when its agent has said nothing, by the clock that callers read as it is set now; 0: it
  // has not spoken to this daemon.
  int64_t SilentSince(const std::string& node) const;
  // Its agent acts on nothing that is said to it.
  bool Refuses(const std::string& node) const { return !Get(node).refuses_for().empty(); }
  // Of SetAdopted, until the next call that changes the node; null: it is not.
  const v1::StorePosition* AdoptedFrom(const std::string& node) const;
  v1::Node Get(const std::string& node) const;
  // For people.
  v1::Node Shown(const std::string& node) const;
  std::vector<NodeCapacity> Capacities() const;
  // In the order of their names, with what `holding` takes of them.
  std::vector<v1::Node> List(const std::vector<Holding>& holding) const;
  // When the next lease ends; 0: none.
  int64_t NextExpiry() const;

 private:
  bool IsLast(const std::string& node) const;

  std::map<std::string, v1::Node> nodes_;
  std::map<std::string, int64_t> spoke_ns_;  // from when its silence counts
  StartsInVain in_vain_;
  std::chrono::nanoseconds lease_;
};

}  // namespace trireme::coordinator
