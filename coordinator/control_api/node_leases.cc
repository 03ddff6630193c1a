#include "coordinator/control_api/node_leases.h"

namespace trireme::coordinator {

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
  if (found != leases_.end()) found->second.renewed = now;
}

}  // namespace trireme::coordinator
