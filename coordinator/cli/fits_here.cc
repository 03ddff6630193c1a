#include "coordinator/cli/fits_here.h"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/base/text.h"

namespace trireme::cli {

absl::Status CheckFitsHere(const v1::Plan& plan, int ranks, const base::MemoryHere& memory) {
  const uint64_t available = memory.least_available_bytes();
  const uint64_t per_stage = static_cast<uint64_t>(ranks) / plan.stages_size();
  uint64_t wanted = 0;
  for (const auto& stage : plan.stages()) wanted += stage.arena_bytes() * per_stage;
  // 0 without a limit: the machine does not say.
  const bool says = available > 0 || !memory.limits.empty();
  if (!says || wanted <= available) return absl::OkStatus();
  // All ranks will be in all of this process's groups: what leaves least bounds them.
  const bool limited = !memory.limits.empty() && memory.limits.front().available_bytes == available;
  return absl::ResourceExhaustedError(fmt::format(
      "the plan needs {} MiB on this machine for {}, but {} MiB are available{}. Lower "
      "training.micro_batch_size, set parallelism.zero_stage: 1, or use fewer ranks",
      wanted >> 20, base::Counted(ranks, "rank"), available >> 20,
      limited ? fmt::format(" below the limit of {} MiB in {}",
                            memory.limits.front().limit_bytes >> 20, memory.limits.front().file)
              : ""));
}

}  // namespace trireme::cli
