// The nodes that a reconciler knows: what they have, whether their agents speak, who may use them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/event.pb.h"

namespace trireme::coordinator {

// One thread, the reconciler's.
class Nodes {
 public:
  explicit Nodes(std::chrono::milliseconds lease) : lease_(lease) {}

  // What the store knows: drained flags and reasons.
  void Load(const std::vector<v1::Node>& stored);
  // Each returns the events to tell; none if nothing has changed.
  std::vector<v1::Event> Hello(const v1::AgentHello& hello, int64_t now_unix_ns);
  std::vector<v1::Event> Heard(const std::string& node, int64_t now_unix_ns);
  // Those whose lease has ended.
  std::vector<v1::Event> Expire(int64_t now_unix_ns);
  // The node to store, with the event; known nodes only.
  bool SetDrained(const std::string& node, bool drained, const std::string& reason,
                  v1::Event& event);

  bool Knows(const std::string& node) const { return nodes_.contains(node); }
  bool IsLost(const std::string& node) const;
  v1::Node Get(const std::string& node) const;
  std::vector<NodeCapacity> Capacities() const;
  // In the order of their names, with what `holding` takes of them.
  std::vector<v1::Node> List(const std::vector<Holding>& holding) const;
  // When the next lease ends; 0: none.
  int64_t NextExpiry() const;

 private:
  std::map<std::string, v1::Node> nodes_;
  std::chrono::nanoseconds lease_;
};

}  // namespace trireme::coordinator
