// Nodes by name; leases end by the clock that the caller passes.
#include "coordinator/reconciler/nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/job_machine/unable_nodes.h"

namespace trireme::coordinator {
namespace {

v1::Event ChangeOf(const v1::Node& node) {
  v1::Event event;
  v1::NodeChanged& change = *event.mutable_node_changed();
  change.set_node(node.name());
  change.set_state(node.state());
  change.set_drained(node.drained());
  change.set_reason(node.reason());
  change.set_gone(node.gone());
  return event;
}

bool IsUsable(const v1::Node& node) {
  return node.state() == v1::NODE_READY && !node.drained() && node.refuses_for().empty();
}

// What is stored, and for nobody to see.
void Hide(v1::Node& node) {
  node.clear_holder();
  node.clear_adopted_from();
}

}  // namespace

void Nodes::Load(const std::vector<v1::Node>& stored) {
  for (const v1::Node& node : stored) {
    const bool only_its_holder = !node.holder().empty() && !node.has_adopted_from();
    if (!node.drained() && only_its_holder) continue;
    v1::Node& known = nodes_[node.name()];
    known.set_name(node.name());
    known.set_drained(node.drained());
    known.set_reason(node.reason());
    known.set_gone(node.gone());
    known.set_drained_by(node.drained_by());
    known.set_drained_unix_ns(node.drained_unix_ns());
    if (!node.holder().empty()) known.set_holder(node.holder());
    if (node.has_adopted_from()) *known.mutable_adopted_from() = node.adopted_from();
    known.set_state(v1::NODE_LOST);  // until its agent speaks
  }
}

std::vector<v1::Event> Nodes::Hello(const v1::AgentHello& hello, bool continues,
                                    int64_t now_unix_ns) {
  v1::Node& node = nodes_[hello.node()];
  node.set_name(hello.node());
  node.set_cpus(hello.cpus());
  node.set_memory_bytes(hello.memory_bytes());
  node.set_gpus(hello.gpus());
  node.set_refuses_for(continues ? "" : hello.served().store());
  node.clear_held();
  return Heard(hello.node(), now_unix_ns);
}

std::vector<v1::Event> Nodes::Heard(const std::string& name, int64_t now_unix_ns) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return {};
  v1::Node& node = found->second;
  node.set_last_report_unix_ns(now_unix_ns);
  spoke_ns_[name] = now_unix_ns;
  if (node.state() == v1::NODE_READY) return {};
  node.set_state(v1::NODE_READY);
  node.set_gone(false);
  return {ChangeOf(node)};
}

void Nodes::Spoke(const std::string& name, int64_t now_unix_ns) {
  if (nodes_.contains(name)) spoke_ns_[name] = now_unix_ns;
}

bool Nodes::SetHolder(const std::string& name, const std::string& holder) {
  v1::Node& node = nodes_[name];
  if (holder.empty() || node.holder() == holder) return false;
  node.set_name(name);
  node.set_holder(holder);
  return true;
}

bool Nodes::SetRefusal(const std::string& name, const v1::NodeReport& report) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return false;
  v1::Node& node = found->second;
  v1::Node said;
  said.set_refuses_for(report.refuses_for().store());
  for (const v1::AttemptReport& attempt : report.attempts()) {
    if (!report.has_refuses_for() || attempt.phase() == v1::ATTEMPT_ENDED) continue;
    v1::HeldAttempt& held = *said.add_held();
    held.set_job_id(attempt.job_id());
    held.set_attempt(attempt.attempt());
    held.set_store(attempt.store().store());
  }
  v1::Node known;
  known.set_refuses_for(node.refuses_for());
  *known.mutable_held() = node.held();
  if (known.SerializeAsString() == said.SerializeAsString()) return false;
  node.set_refuses_for(said.refuses_for());
  node.mutable_held()->Swap(said.mutable_held());
  return true;
}

bool Nodes::SetAdopted(const std::string& name, const v1::StorePosition* from) {
  v1::Node& node = nodes_.at(name);
  const v1::StorePosition* const known = AdoptedFrom(name);
  if (from == nullptr) {
    node.clear_adopted_from();
    return known != nullptr;
  }
  if (known != nullptr && known->SerializeAsString() == from->SerializeAsString()) return false;
  *node.mutable_adopted_from() = *from;
  return true;
}

const v1::StorePosition* Nodes::AdoptedFrom(const std::string& name) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || !found->second.has_adopted_from()) return nullptr;
  return &found->second.adopted_from();
}

std::vector<v1::Event> Nodes::Absent() const {
  std::vector<v1::Event> events;
  for (const auto& [name, node] : nodes_) {
    if (node.last_report_unix_ns() != 0 || node.gone()) continue;
    events.push_back(ChangeOf(node));
    events.back().mutable_node_changed()->set_reason(
        "its agent has been silent since this daemon was started");
  }
  return events;
}

std::vector<v1::Event> Nodes::Expire(int64_t now_unix_ns) {
  std::vector<v1::Event> events;
  for (auto& [name, node] : nodes_) {
    if (node.state() != v1::NODE_READY) continue;
    if (now_unix_ns - SilentSince(name) < lease_.count()) continue;
    node.set_state(v1::NODE_LOST);
    events.push_back(ChangeOf(node));
    events.back().mutable_node_changed()->set_reason(fmt::format(
        "its agent has been silent for {:.0f} s", static_cast<double>(lease_.count()) / 1e9));
  }
  return events;
}

void Nodes::ClockWasSet(int64_t by_ns, int64_t now_unix_ns) {
  for (auto& [name, spoke] : spoke_ns_) {
    // As below.
    if (spoke > now_unix_ns || by_ns > 0) spoke = std::min(spoke + by_ns, now_unix_ns);
  }
  for (auto& [name, node] : nodes_) {
    const int64_t heard = node.last_report_unix_ns();
    // One that was set back: who was heard before now may have been heard since.
    if (node.state() != v1::NODE_READY || (by_ns < 0 && heard <= now_unix_ns)) continue;
    node.set_last_report_unix_ns(std::min(heard + by_ns, now_unix_ns));
  }
}

void Nodes::StoodStill(int64_t for_ns, int64_t now_unix_ns) {
  for (auto& [name, spoke] : spoke_ns_) spoke = std::min(spoke + for_ns, now_unix_ns);
}

int64_t Nodes::SilentSince(const std::string& node) const {
  const auto found = spoke_ns_.find(node);
  return found == spoke_ns_.end() ? 0 : found->second;
}

absl::StatusOr<v1::Event> Nodes::SetUse(const NodeUse& use, int64_t now_unix_ns) {
  const auto found = nodes_.find(use.node);
  if (found == nodes_.end()) {
    return absl::NotFoundError(
        fmt::format("there is no node {}; trireme nodes shows them", use.node));
  }
  v1::Node& node = found->second;
  if (use.gone && node.state() == v1::NODE_READY) {
    return absl::FailedPreconditionError(
        fmt::format("node {} is not gone: its agent reported within its lease; ranks may run "
                    "there. Drain it, or switch it off first",
                    use.node));
  }
  node.set_drained(use.drained);
  node.set_reason(use.drained ? use.reason : "");
  node.set_gone(use.drained && use.gone);
  node.set_drained_by(use.drained ? use.by : "");
  node.set_drained_unix_ns(use.drained ? now_unix_ns : 0);
  if (!use.drained) in_vain_.Forget(use.node);
  v1::Event event = ChangeOf(node);
  event.mutable_node_changed()->set_by(use.by);
  return event;
}

std::vector<NodeUse> Nodes::Unable() const {
  std::vector<NodeUse> unable;
  for (const auto& [name, node] : nodes_) {
    const std::string why = node.drained() ? "" : in_vain_.WhyUnable(name);
    if (why.empty() || IsLast(name)) continue;
    NodeUse& use = unable.emplace_back();
    use.node = name;
    use.drained = true;
    use.reason = fmt::format("{}; when that is mended: trireme undrain {}", why, name);
    use.by = kDaemonsName;
  }
  return unable;
}

bool Nodes::IsLast(const std::string& node) const {
  return std::none_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
    return other.first != node && IsUsable(other.second);
  });
}

bool Nodes::IsLastAndUnable(const std::string& node) const {
  return in_vain_.TriesOn(node) >= kUnableAfter && IsLast(node);
}

v1::Event Nodes::Adopted(const std::string& node, const std::string& by) const {
  v1::Event event = ChangeOf(Get(node));
  event.mutable_node_changed()->set_reason("adopted");
  event.mutable_node_changed()->set_by(by);
  return event;
}

bool Nodes::IsLost(const std::string& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() || found->second.state() == v1::NODE_LOST;
}

v1::Node Nodes::Shown(const std::string& node) const {
  v1::Node shown = Get(node);
  Hide(shown);
  return shown;
}

v1::Node Nodes::Get(const std::string& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? v1::Node() : found->second;
}

std::vector<NodeCapacity> Nodes::Capacities() const {
  std::vector<NodeCapacity> capacities;
  for (const auto& [name, node] : nodes_) {
    NodeCapacity& one = capacities.emplace_back();
    one.name = name;
    one.cpus = node.cpus();
    one.memory_bytes = node.memory_bytes();
    one.gpus = node.gpus();
    one.usable = IsUsable(node);
    if (node.state() != v1::NODE_READY) {
      one.unusable_why = node.gone() ? "gone" : "lost";
      one.gone = node.gone();
    } else if (!node.refuses_for().empty()) {
      one.unusable_why = "kept by its agent for another store: trireme nodes adopt " + name;
    } else if (node.drained()) {
      one.unusable_why = node.reason().empty() ? "drained" : "drained: " + node.reason();
    }
  }
  return capacities;
}

std::vector<v1::Node> Nodes::List(const std::vector<Holding>& holding) const {
  std::map<std::string, v1::Node> nodes = nodes_;
  for (const Holding& job : holding) {
    for (const v1::NodeAllocation& part : job.allocation) {
      const auto found = nodes.find(part.node());
      if (found == nodes.end()) continue;
      v1::Node& node = found->second;
      node.set_cpus_used(node.cpus_used() + part.ranks() * job.resources.cpus_per_rank());
      node.set_memory_bytes_used(node.memory_bytes_used() +
                                 part.ranks() * job.resources.memory_bytes_per_rank());
      node.set_gpus_used(node.gpus_used() + part.ranks() * job.resources.gpus_per_rank());
    }
  }
  std::vector<v1::Node> list;
  for (auto& [name, node] : nodes) {
    Hide(node);
    node.set_unable(in_vain_.WhyUnable(name));
    list.push_back(std::move(node));
  }
  return list;
}

int64_t Nodes::NextExpiry() const {
  int64_t next = 0;
  for (const auto& [name, node] : nodes_) {
    if (node.state() != v1::NODE_READY) continue;
    const int64_t at = SilentSince(name) + lease_.count();
    if (next == 0 || at < next) next = at;
  }
  return next;
}

}  // namespace trireme::coordinator
