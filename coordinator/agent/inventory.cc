// From sched_getaffinity, /proc and the control groups.
#include "coordinator/agent/inventory.h"

#include <sched.h>

#include <cstdint>

#include "coordinator/slurm/queue.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/memory_here.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"

namespace trireme::agent {
namespace {

uint32_t Gpus() {
  uint32_t count = 0;
  base::VisitNames("/proc/driver/nvidia/gpus", [&](const std::string&) { ++count; }).IgnoreError();
  return count;
}

}  // namespace

v1::AgentHello TakeInventory(const std::string& node, const std::string& version,
                             const std::string& root) {
  v1::AgentHello hello;
  hello.set_node(node);
  hello.set_version(version);
  cpu_set_t cores;
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  hello.set_cpus(known ? static_cast<uint32_t>(CPU_COUNT(&cores)) : 1);
  // Of what is to run here: the ranks are in the agent's control group.
  hello.set_memory_bytes(base::LookAtMemory(root).least_total_bytes());
  hello.set_gpus(Gpus());
  hello.set_boot_id(base::BootId());
  return hello;
}

absl::StatusOr<v1::AgentHello> TakeSlurmInventory(const std::string& node,
                                                  const std::string& version,
                                                  const std::string& partition) {
  ASSIGN_OR_RETURN(const slurm::Capacity capacity, slurm::CapacityOf(partition));
  v1::AgentHello hello;
  hello.set_node(node);
  hello.set_version(version);
  hello.set_cpus(static_cast<uint32_t>(capacity.cpus));
  hello.set_memory_bytes(capacity.memory_bytes);
  hello.set_gpus(static_cast<uint32_t>(capacity.gpus));
  hello.set_boot_id(base::BootId());
  return hello;
}

}  // namespace trireme::agent
