// sysfs: devices/system/cpu/cpuN/topology, devices/system/node. What is missing there, as in a
// container, makes each CPU a core of node 0.
#include "coordinator/control_group/cpus_here.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "runtime/base/folder_names.h"

namespace trireme::control_group {
namespace {

constexpr uint64_t kLargestNode = 65535;

std::string TextOf(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<int, int> NodesByCpu(const std::string& root) {
  std::map<int, int> nodes;
  const std::string folder = root + "/sys/devices/system/node";
  base::VisitNames(folder, [&](const std::string& name) {
    if (!name.starts_with("node")) return;
    const auto node = base::NumberIn(std::string_view(name).substr(4), kLargestNode);
    if (!node) return;
    for (const int cpu : CpusIn(folder + "/" + name + "/cpulist")) {
      nodes[cpu] = static_cast<int>(*node);
    }
  }).IgnoreError();
  return nodes;
}

std::string AffinityOf(const std::string& root, const std::string& process) {
  std::ifstream in(root + "/proc/" + process + "/status");
  constexpr std::string_view kField = "Cpus_allowed_list:";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kField)) return line.substr(kField.size());
  }
  return "";
}

}  // namespace

CpuSet CpusIn(const std::string& file) { return ParseCpuList(TextOf(file)).value_or(CpuSet{}); }

CpuPlaces UsableCpus(const std::string& folder, const std::string& root) {
  const std::map<int, int> nodes = NodesByCpu(root);
  CpuPlaces usable;
  for (const int cpu : CpusIn(root + folder + "/cpuset.cpus.effective")) {
    const CpuSet siblings = CpusIn(
        fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
    const auto node = nodes.find(cpu);
    usable[cpu] = {siblings.empty() ? cpu : *siblings.begin(),
                   node == nodes.end() ? 0 : node->second};
  }
  return usable;
}

std::string WhyCpusAreShared(const Delegation& delegation, const std::string& root,
                             const std::string& process) {
  if (!delegation.Has("cpuset")) return "the controller cpuset is not there for them";
  const CpuSet all = CpusIn(root + delegation.folder + "/cpuset.cpus.effective");
  const CpuSet ours = ParseCpuList(AffinityOf(root, process)).value_or(CpuSet{});
  if (all.empty() || ours.empty()) return "which there are is not to be read here";
  // A process that nobody has bound may use all that could ever be there, also empty sockets and
  // CPUs that are off; a group has those that are on.
  CpuSet both;
  std::set_intersection(ours.begin(), ours.end(), all.begin(), all.end(),
                        std::inserter(both, both.end()));
  if (both == all) return "";
  return fmt::format("the agent itself is bound to {} of {}, by taskset or CPUAffinity=",
                     CpuListText(both), CpuListText(all));
}

}  // namespace trireme::control_group
