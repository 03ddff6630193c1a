#include "coordinator/agent/control_groups.h"

#include <spdlog/spdlog.h>

#include "runtime/base/status_macros.h"

namespace trireme::agent {

std::shared_ptr<const control_group::AttemptGroups> OpenControlGroups(
    const std::string& mode, const std::string& state_folder) {
  if (mode == kGroupsOff) {
    spdlog::info("control groups: off; leftovers of attempts are found by their environment");
    return nullptr;
  }
  auto groups = control_group::AttemptGroups::Open(state_folder);
  if (!groups.ok()) {
    spdlog::info("control groups: none, {}; leftovers of attempts are found by their environment",
                 base::MessageOf(groups.status()));
    return nullptr;
  }
  const control_group::AttemptGroups& ours = **groups;
  if (ours.limits().empty()) {
    spdlog::info("control groups: attempts are ended as one by the kernel, below {}; no limits: {}",
                 ours.base(),
                 ours.complaint().empty() ? "it has no controllers" : ours.complaint());
  } else {
    spdlog::info("control groups: attempts are bounded by the kernel, {}, below {}", ours.limits(),
                 ours.base());
  }
  return *std::move(groups);
}

}  // namespace trireme::agent
