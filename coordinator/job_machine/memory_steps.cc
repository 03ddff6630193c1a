#include "coordinator/job_machine/memory_steps.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::coordinator {

bool HasTrained(const v1::JobStatus& status) {
  return status.checkpoint_step() > 0 || status.furthest_memory_step() > 0;
}

// On the disk no attempt goes on at a step beyond furthest_step, but the first, where it is told to
// begin at another's; and that one every step is beyond.
bool GoesOnInMemory(uint64_t step, v1::JobStatus& status) {
  const bool further = step > std::max(status.furthest_memory_step(), status.furthest_step());
  status.set_memory_step(step);
  status.set_furthest_memory_step(std::max(status.furthest_memory_step(), step));
  return further;
}

bool FailsFromMemory(uint64_t steps_done, v1::JobStatus& status) {
  const uint64_t step = status.memory_step();
  if (step == 0 || steps_done > step) return false;
  if (status.suspect_memory_step() != step) {
    status.set_suspect_memory_step(step);
    return false;
  }
  status.clear_suspect_memory_step();
  status.set_memory_before(step);
  return true;
}

uint64_t GetsBeyond(uint64_t step, v1::JobStatus& status) {
  if (step > status.suspect_memory_step()) status.clear_suspect_memory_step();
  const uint64_t unused = status.memory_before();
  if (unused == 0 || step <= unused) return 0;
  status.clear_memory_before();
  return unused;
}

std::string UnusedStepText(const v1::JobStatus& status) {
  if (status.memory_before() == 0) return "";
  return fmt::format("step {} in memory failed twice, it is not used again",
                     status.memory_before());
}

std::string WithoutProgress(const v1::JobStatus& status) {
  return status.furthest_memory_step() == 0 ? "without a newer checkpoint"
                                            : "without a newer checkpoint or step in memory";
}

}  // namespace trireme::coordinator
