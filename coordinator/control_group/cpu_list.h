// CPUs by their numbers, as the kernel lists them: "0-3,8".
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace trireme::control_group {

using CpuSet = std::set<int>;

// Also with white space around it; nullopt: it is no such list, is not in order, or has a number
// above 65,535. So a long text takes no longer than the largest list.
std::optional<CpuSet> ParseCpuList(std::string_view text);
std::string CpuListText(const CpuSet& cpus);

}  // namespace trireme::control_group
