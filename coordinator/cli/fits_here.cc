#include "coordinator/cli/fits_here.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/text.h"
#include "runtime/plan/fit.h"
#include "runtime/plan/offload.h"
#include "runtime/tensor/swap_file.h"

namespace trireme::cli {
namespace {

// What `trireme plan --fit` would name, were its limit one of all ranks together.
std::string WhatToDo(const v1::Plan& plan, int ranks, uint64_t available) {
  const plan::FitLimit limit{.all_ranks_bytes = available};
  const auto fit = plan::FindFit(plan.job(), ranks, limit);
  if (fit.ok() && fit->fitting.has_value()) {
    const plan::FitChoice& choice = fit->choices[*fit->fitting];
    return base::Text("It fits with ", AsOptions(choice.changes),
                      choice.other_numerics ? " (bf16 gives other numbers)" : "");
  }
  std::string text = "Use fewer ranks, a smaller model, or a machine with more memory";
  if (!fit.ok()) return text;
  return base::Text(text, "; the smallest of the choices that `trireme plan --fit` tries still ",
                    "needs ", fit->choices[fit->closest].all_ranks_bytes >> 20, " MiB");
}

}  // namespace

absl::Status CheckFitsHere(const v1::Plan& plan, int ranks, const base::MemoryHere& memory) {
  const uint64_t available = memory.least_available_bytes();
  const uint64_t per_stage = static_cast<uint64_t>(ranks) / plan.stages_size();
  uint64_t wanted = 0;
  for (const auto& stage : plan.stages()) wanted += plan::MemoryBytes(stage) * per_stage;
  // 0 without a limit: the machine does not say.
  const bool says = available > 0 || !memory.limits.empty();
  if (!says || wanted <= available) return absl::OkStatus();
  // All ranks will be in all of this process's groups: what leaves least bounds them.
  const bool limited = !memory.limits.empty() && memory.limits.front().available_bytes == available;
  return absl::ResourceExhaustedError(fmt::format(
      "the plan needs {} MiB on this machine for {}, but {} MiB are available{}. {}", wanted >> 20,
      base::Counted(ranks, "rank"), available >> 20,
      limited ? fmt::format(" below the limit of {} MiB in {}",
                            memory.limits.front().limit_bytes >> 20, memory.limits.front().file)
              : "",
      WhatToDo(plan, ranks, available)));
}

absl::Status CheckOffloadsHere(const v1::Plan& plan) {
  const bool any = std::any_of(plan.stages().begin(), plan.stages().end(),
                               [](const v1::StagePlan& stage) { return stage.file_bytes() > 0; });
  if (!any || !plan.job().offload().has_directory()) return absl::OkStatus();
  return tensor::SwapFile::Make({plan.job().offload().directory()}, /*bytes=*/0).status();
}

}  // namespace trireme::cli
