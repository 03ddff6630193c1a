// Generators of compute order. Each rank's list is written down on its own by a closed rule; that
// the lists of all ranks fit together (no deadlock, every micro-batch once) is what Simulate
// checks.
#include "runtime/plan/schedule.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace trireme::plan {
namespace {

ComputeStep Step(Compute kind, uint32_t virtual_stage, uint32_t micro_batch) {
  return {kind, virtual_stage, micro_batch};
}

// All forwards, then all backwards, both in order of the micro-batches.
std::vector<ComputeStep> GPipe(const ScheduleOptions& options) {
  std::vector<ComputeStep> steps;
  steps.reserve(2 * options.micro_batches);
  for (uint32_t m = 0; m < options.micro_batches; ++m) {
    steps.push_back(Step(Compute::kForward, 0, m));
  }
  for (uint32_t m = 0; m < options.micro_batches; ++m) {
    steps.push_back(Step(Compute::kBackward, 0, m));
  }
  return steps;
}

// As many forwards ahead as there are ranks behind, then one forward and one backward in turn.
std::vector<ComputeStep> OneForwardOneBackward(uint32_t rank, const ScheduleOptions& options) {
  const uint32_t count = options.micro_batches;
  const uint32_t ahead = std::min(options.ranks - 1 - rank, count);
  std::vector<ComputeStep> steps;
  steps.reserve(2 * count);
  for (uint32_t m = 0; m < ahead; ++m) steps.push_back(Step(Compute::kForward, 0, m));
  for (uint32_t m = 0; m < count; ++m) {
    if (ahead + m < count) steps.push_back(Step(Compute::kForward, 0, ahead + m));
    steps.push_back(Step(Compute::kBackward, 0, m));
  }
  return steps;
}

// 1F1B with I in the place of B. Rank r puts W off by r micro-batches: later ranks hand their
// input-grads back sooner, and the W they owe fills the time in which earlier ranks drain. A rank
// keeps (P - r) activations and up to r stashes at once, so no rank keeps more than the first one
// does under 1F1B. Idle time is (P-1)(F+I-W) while W <= min(F, I) and M >= P; a longer W idles more
// (both by simulation).
std::vector<ComputeStep> ZeroBubbleH1(uint32_t rank, const ScheduleOptions& options) {
  const uint32_t count = options.micro_batches;
  const uint32_t ahead = std::min(options.ranks - 1 - rank, count);
  std::vector<ComputeStep> steps;
  steps.reserve(3 * count);
  for (uint32_t m = 0; m < ahead; ++m) steps.push_back(Step(Compute::kForward, 0, m));
  for (uint32_t m = 0; m < count; ++m) {
    if (ahead + m < count) steps.push_back(Step(Compute::kForward, 0, ahead + m));
    steps.push_back(Step(Compute::kInputGrad, 0, m));
    if (m >= rank) steps.push_back(Step(Compute::kWeightGrad, 0, m - rank));
  }
  for (uint32_t m = count - std::min(rank, count); m < count; ++m) {
    steps.push_back(Step(Compute::kWeightGrad, 0, m));
  }
  return steps;
}

// Sizes of the groups in which micro-batches visit all virtual stages of a rank. Megatron's order
// takes groups of P and so needs P to divide M. A group smaller than P stalls the ring (its first
// micro-batch is not back at rank 0 when the next virtual stage begins) and can deadlock; larger
// ones cost memory only. So M >= P is cut into floor(M / P) groups as even as possible, and M < P
// is one group of P whose missing micro-batches are left out of the lists: leaving instructions out
// of an order that runs cannot block it.
std::vector<uint32_t> GroupSizes(const ScheduleOptions& options) {
  const uint32_t groups = std::max(1u, options.micro_batches / options.ranks);
  const uint32_t total = std::max(options.micro_batches, options.ranks);
  std::vector<uint32_t> sizes(groups, total / groups);
  for (uint32_t i = 0; i < total % groups; ++i) ++sizes[i];
  return sizes;
}

std::vector<ComputeStep> Interleaved(uint32_t rank, const ScheduleOptions& options,
                                     const std::vector<uint32_t>& group_sizes) {
  const uint32_t stages = options.virtual_stages;
  std::vector<ComputeStep> forward;
  std::vector<ComputeStep> backward;
  uint32_t first = 0;
  for (const uint32_t size : group_sizes) {
    for (uint32_t v = 0; v < stages; ++v) {
      for (uint32_t m = first; m < first + size; ++m) {
        forward.push_back(Step(Compute::kForward, v, m));
        backward.push_back(Step(Compute::kBackward, stages - 1 - v, m));
      }
    }
    first += size;
  }
  // The first backward of the last rank needs the first micro-batch through all its virtual stages;
  // each rank before it needs two more forwards ahead: the way there and the way back.
  const size_t largest = *std::max_element(group_sizes.begin(), group_sizes.end());
  const size_t ahead =
      std::min(forward.size(), 2 * size_t{options.ranks - 1 - rank} + (stages - 1) * largest);
  std::vector<ComputeStep> steps;
  steps.reserve(2 * forward.size());
  const auto append = [&](const ComputeStep& step) {
    if (step.micro_batch < options.micro_batches) steps.push_back(step);
  };
  for (size_t i = 0; i < ahead; ++i) append(forward[i]);
  for (size_t i = 0; i < backward.size(); ++i) {
    if (ahead + i < forward.size()) append(forward[ahead + i]);
    append(backward[i]);
  }
  return steps;
}

absl::Status CheckOptions(std::string_view name, const ScheduleOptions& options) {
  if (name != "gpipe" && name != "1f1b" && name != "interleaved" && name != "zb-h1") {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule '", std::string(name),
                     "' is unknown; expected gpipe, 1f1b, interleaved or zb-h1"));
  }
  if (options.ranks == 0 || options.micro_batches == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", std::string(name), " of ", options.ranks, " pipeline ranks and ",
                     options.micro_batches, " micro-batches: both must be at least 1"));
  }
  if (name == "interleaved" && options.virtual_stages < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule interleaved needs virtual_stages >= 2, got ", options.virtual_stages,
                     "; set parallelism.virtual_stages to 2 or more, or take 1f1b"));
  }
  if (name != "interleaved" && options.virtual_stages != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", std::string(name), " needs virtual_stages = 1, got ",
                     options.virtual_stages, "; only interleaved takes more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ComputeOrder> GenerateSchedule(std::string_view name,
                                              const ScheduleOptions& options) {
  if (absl::Status status = CheckOptions(name, options); !status.ok()) return status;
  const std::vector<uint32_t> group_sizes = GroupSizes(options);
  ComputeOrder order(options.ranks);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    if (name == "gpipe") {
      order[rank] = GPipe(options);
    } else if (name == "1f1b") {
      order[rank] = OneForwardOneBackward(rank, options);
    } else if (name == "zb-h1") {
      order[rank] = ZeroBubbleH1(rank, options);
    } else {
      order[rank] = Interleaved(rank, options, group_sizes);
    }
  }
  return order;
}

}  // namespace trireme::plan
