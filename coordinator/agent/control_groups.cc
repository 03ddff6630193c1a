#include "coordinator/agent/control_groups.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/status_macros.h"

namespace trireme::agent {

std::shared_ptr<const control_group::AttemptGroups> OpenControlGroups(
    const std::string& mode, const std::string& state_folder, const std::string& root) {
  if (mode == kGroupsOff) {
    spdlog::info("control groups: off; leftovers of attempts are found by their environment");
    return nullptr;
  }
  auto groups = control_group::AttemptGroups::Open(
      state_folder, root,
      mode == kGroupsNoCpuset ? control_group::CpuSets::kNone : control_group::CpuSets::kGiven);
  if (!groups.ok()) {
    spdlog::info("control groups: none, {}; leftovers of attempts are found by their environment",
                 base::MessageOf(groups.status()));
    return nullptr;
  }
  const control_group::AttemptGroups& ours = **groups;
  spdlog::info("control groups: attempts are {}, below {}",
               ours.limits().empty() ? "ended as one by the kernel, without limits"
                                     : fmt::format("bounded by the kernel, {}", ours.limits()),
               ours.base());
  if (ours.shared_cpus().empty()) {
    spdlog::info("control groups: each attempt has CPUs of its own, as many as it was granted");
  } else {
    spdlog::info("control groups: attempts share the CPUs: {}", ours.shared_cpus());
  }
  if (!ours.complaint().empty()) {
    spdlog::warn("control groups: not all limits, until this is mended: {}", ours.complaint());
  }
  return *std::move(groups);
}

}  // namespace trireme::agent
