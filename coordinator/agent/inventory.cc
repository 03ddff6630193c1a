// From sched_getaffinity and /proc.
#include "coordinator/agent/inventory.h"

#include <sched.h>

#include <cstdint>
#include <fstream>

#include "coordinator/slurm/queue.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"

namespace trireme::agent {
namespace {

uint64_t MemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, rest;
  uint64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemTotal:") return kib * 1024;
    std::getline(file, rest);
  }
  return 0;
}

uint32_t Gpus() {
  uint32_t count = 0;
  base::VisitNames("/proc/driver/nvidia/gpus", [&](const std::string&) { ++count; }).IgnoreError();
  return count;
}

}  // namespace

v1::AgentHello TakeInventory(const std::string& node, const std::string& version) {
  v1::AgentHello hello;
  hello.set_node(node);
  hello.set_version(version);
  cpu_set_t cores;
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  hello.set_cpus(known ? static_cast<uint32_t>(CPU_COUNT(&cores)) : 1);
  hello.set_memory_bytes(MemoryBytes());
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
