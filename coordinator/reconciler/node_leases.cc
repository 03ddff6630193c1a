#include "coordinator/reconciler/node_leases.h"

#include <utility>

#include "coordinator/reconciler/lost_nodes.h"

namespace trireme::coordinator {
namespace {

constexpr std::chrono::hours kForEver(24 * 36500);

}  // namespace

NameTurn NameTurnOf(const JobTable& table, const NameTimes& times, const std::string& node,
                    NameAsker asker) {
  if (asker == NameAsker::kByAnotherToken) return {times.lease, false};
  bool live = false, fenced = true;
  table.ForEachLive([&](const v1::Job& job) {
    for (const v1::NodeAllocation& part : job.allocation()) {
      if (part.node() != node) continue;
      live = true;
      fenced = fenced && WhyNotFenced(job, times.lost_node_after).empty();
    }
  });
  if (!live || (asker == NameAsker::kAfterReboot && !fenced)) return {times.lease, false};
  return {kForEver, fenced};
}

void NodeLeases::Recall(const std::string& node, const std::string& holder, Clock::time_point now) {
  const absl::MutexLock lock(&mutex_);
  if (!holder.empty()) leases_[node] = {holder, now};
}

bool NodeLeases::Take(const std::string& node, const std::string& holder, Clock::time_point now,
                      std::chrono::milliseconds lease) {
  const absl::MutexLock lock(&mutex_);
  const auto found = leases_.find(node);
  if (found != leases_.end() && found->second.holder != holder &&
      now - found->second.renewed < lease) {
    return false;
  }
  leases_[node] = {holder, now};
  spoken_.insert(node);
  return true;
}

std::string NodeLeases::HolderOf(const std::string& node) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = leases_.find(node);
  return found == leases_.end() ? "" : found->second.holder;
}

void NodeLeases::Renew(const std::string& node, Clock::time_point now) {
  const absl::MutexLock lock(&mutex_);
  const auto found = leases_.find(node);
  if (found == leases_.end()) return;
  found->second.renewed = now;
  spoken_.insert(node);
}

std::set<std::string> NodeLeases::TakeSpoken() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(spoken_, {});
}

}  // namespace trireme::coordinator
