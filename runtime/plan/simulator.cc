// Event simulation of a compute order. Each rank runs its list until an input is not there; the
// instruction that makes the input wakes it. Every instruction is looked at a bounded number of
// times, so the run is linear in their number.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/schedule.h"

namespace trireme::plan {
namespace {

constexpr double kNever = -1;

const char* Name(Compute kind) {
  switch (kind) {
    case Compute::kForward:
      return "F";
    case Compute::kInputGrad:
      return "I";
    case Compute::kWeightGrad:
      return "W";
    case Compute::kBackward:
      return "B";
  }
  return "?";
}

std::string Describe(const ComputeStep& step) {
  return absl::StrCat(Name(step.kind), " of virtual stage ", step.virtual_stage, ", micro-batch ",
                      step.micro_batch);
}

class Simulator {
 public:
  Simulator(const ComputeOrder& order, const ScheduleOptions& options, const SimulatedCosts& costs)
      : order_(order), options_(options), costs_(costs) {}

  absl::StatusOr<Simulation> Run() {
    RETURN_IF_ERROR(CheckComplete());
    const size_t cells = size_t{Stages()} * options_.micro_batches;
    forward_end_.assign(cells, kNever);
    backward_end_.assign(cells, kNever);
    position_.assign(options_.ranks, 0);
    free_at_.assign(options_.ranks, 0);
    result_.timeline.resize(options_.ranks);
    for (uint32_t rank = options_.ranks; rank-- > 0;) ready_.push_back(rank);
    while (!ready_.empty()) {
      const uint32_t rank = ready_.back();
      ready_.pop_back();
      Advance(rank);
    }
    RETURN_IF_ERROR(CheckFinished());
    Summarise();
    return std::move(result_);
  }

 private:
  uint32_t Stages() const { return options_.ranks * options_.virtual_stages; }
  uint32_t StageOf(uint32_t rank, const ComputeStep& step) const {
    return step.virtual_stage * options_.ranks + rank;
  }
  size_t Cell(uint32_t stage, uint32_t micro_batch) const {
    return size_t{stage} * options_.micro_batches + micro_batch;
  }

  // F once and either B once or I and W once, for every (stage, micro-batch).
  absl::Status CheckComplete() const {
    if (order_.size() != options_.ranks) {
      return absl::FailedPreconditionError(
          absl::StrCat("the order holds ", order_.size(), " ranks, expected ", options_.ranks));
    }
    std::vector<uint8_t> seen;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      seen.assign(size_t{options_.virtual_stages} * options_.micro_batches, 0);
      for (const ComputeStep& step : order_[rank]) {
        if (step.virtual_stage >= options_.virtual_stages ||
            step.micro_batch >= options_.micro_batches) {
          return Fault(rank, step, "is outside the schedule");
        }
        uint8_t& bits = seen[Cell(step.virtual_stage, step.micro_batch)];
        const uint8_t bit = static_cast<uint8_t>(1u << static_cast<unsigned>(step.kind));
        if (bits & bit) return Fault(rank, step, "appears twice");
        bits |= bit;
      }
      RETURN_IF_ERROR(CheckSeen(rank, seen));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSeen(uint32_t rank, const std::vector<uint8_t>& seen) const {
    const auto bit = [](Compute kind) { return 1u << static_cast<unsigned>(kind); };
    const unsigned split = bit(Compute::kInputGrad) | bit(Compute::kWeightGrad);
    for (uint32_t v = 0; v < options_.virtual_stages; ++v) {
      for (uint32_t m = 0; m < options_.micro_batches; ++m) {
        const unsigned bits = seen[Cell(v, m)];
        if (!(bits & bit(Compute::kForward))) {
          return Fault(rank, {Compute::kForward, v, m}, "is missing");
        }
        const bool fused = bits & bit(Compute::kBackward);
        if (fused && (bits & split)) {
          return Fault(rank, {Compute::kBackward, v, m}, "stands beside an I or W of the same");
        }
        if (fused || (bits & split) == split) continue;
        const bool has_input_grad = bits & bit(Compute::kInputGrad);
        return Fault(rank, {has_input_grad ? Compute::kWeightGrad : Compute::kInputGrad, v, m},
                     "is missing, and so is a B");
      }
    }
    return absl::OkStatus();
  }

  static absl::Status Fault(uint32_t rank, const ComputeStep& step, std::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, ": ", Describe(step), " ", std::string(what)));
  }

  double Cost(Compute kind) const {
    switch (kind) {
      case Compute::kForward:
        return costs_.forward;
      case Compute::kInputGrad:
        return costs_.input_grad;
      case Compute::kWeightGrad:
        return costs_.weight_grad;
      case Compute::kBackward:
        return costs_.input_grad + costs_.weight_grad;
    }
    return 0;
  }

  // When the inputs of `step` are there; kNever if one is not known yet.
  double InputsAt(uint32_t rank, const ComputeStep& step) const {
    const uint32_t stage = StageOf(rank, step);
    const double transfer = options_.ranks > 1 ? costs_.latency : 0;
    const double own_forward = forward_end_[Cell(stage, step.micro_batch)];
    if (step.kind == Compute::kForward) {
      if (stage == 0) return 0;
      const double input = forward_end_[Cell(stage - 1, step.micro_batch)];
      return input == kNever ? kNever : input + transfer;
    }
    if (step.kind == Compute::kWeightGrad) return backward_end_[Cell(stage, step.micro_batch)];
    if (own_forward == kNever || stage + 1 == Stages()) return own_forward;
    const double gradient = backward_end_[Cell(stage + 1, step.micro_batch)];
    return gradient == kNever ? kNever : std::max(own_forward, gradient + transfer);
  }

  // Runs `rank` until it is blocked or at its end.
  void Advance(uint32_t rank) {
    const std::vector<ComputeStep>& steps = order_[rank];
    while (position_[rank] < steps.size()) {
      const ComputeStep& step = steps[position_[rank]];
      const double inputs_at = InputsAt(rank, step);
      if (inputs_at == kNever) return;
      const double start = std::max(free_at_[rank], inputs_at);
      const double end = start + Cost(step.kind);
      result_.timeline[rank].push_back({step, start, end});
      free_at_[rank] = end;
      ++position_[rank];
      const uint32_t stage = StageOf(rank, step);
      if (step.kind == Compute::kForward) {
        forward_end_[Cell(stage, step.micro_batch)] = end;
        if (stage + 1 < Stages()) Wake(rank, (rank + 1) % options_.ranks, step.micro_batch);
      } else if (step.kind != Compute::kWeightGrad) {
        backward_end_[Cell(stage, step.micro_batch)] = end;
        if (stage > 0) {
          Wake(rank, (rank + options_.ranks - 1) % options_.ranks, step.micro_batch);
        }
      }
    }
  }

  // Only a rank whose next instruction is of this micro-batch can have waited for it.
  void Wake(uint32_t self, uint32_t rank, uint32_t micro_batch) {
    if (rank == self || position_[rank] >= order_[rank].size()) return;
    if (order_[rank][position_[rank]].micro_batch == micro_batch) ready_.push_back(rank);
  }

  absl::Status CheckFinished() const {
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (position_[rank] == order_[rank].size()) continue;
      return absl::FailedPreconditionError(absl::StrCat("deadlock: ", Blocked(rank)));
    }
    return absl::OkStatus();
  }

  // Names what `rank` waits for and where the rank that owes it stands.
  std::string Blocked(uint32_t rank) const {
    const ComputeStep& step = order_[rank][position_[rank]];
    const uint32_t stage = StageOf(rank, step);
    ComputeStep needed = step;
    uint32_t owner_stage = stage;
    if (step.kind == Compute::kForward) {
      owner_stage = stage - 1;
    } else if (step.kind == Compute::kWeightGrad) {
      needed.kind = Compute::kInputGrad;
    } else if (forward_end_[Cell(stage, step.micro_batch)] == kNever) {
      needed.kind = Compute::kForward;
    } else {
      owner_stage = stage + 1;
    }
    const uint32_t owner = owner_stage % options_.ranks;
    needed.virtual_stage = owner_stage / options_.ranks;
    std::string text =
        absl::StrCat("rank ", rank, " cannot start instruction ", position_[rank], " (",
                     Describe(step), "): it needs ", Describe(needed), " of rank ", owner);
    if (owner == rank) return absl::StrCat(text, ", which comes later in its own list");
    const ComputeStep& there = order_[owner][position_[owner]];
    return absl::StrCat(text, ", which stands at instruction ", position_[owner], " (",
                        Describe(there), ")");
  }

  void Summarise() {
    double busiest = 0;
    for (const auto& line : result_.timeline) {
      double busy = 0;
      uint32_t alive = 0;
      uint32_t peak = 0;
      for (const SimulatedStep& step : line) {
        busy += Cost(step.compute.kind);
        if (step.compute.kind == Compute::kForward) peak = std::max(peak, ++alive);
        if (step.compute.kind == Compute::kInputGrad || step.compute.kind == Compute::kBackward) {
          --alive;
        }
      }
      if (!line.empty()) result_.makespan = std::max(result_.makespan, line.back().end);
      busiest = std::max(busiest, busy);
      result_.peak_activations.push_back(peak);
    }
    result_.bubble = busiest > 0 ? (result_.makespan - busiest) / busiest : 0;
  }

  const ComputeOrder& order_;
  const ScheduleOptions options_;
  const SimulatedCosts costs_;
  std::vector<double> forward_end_;   // [stage][micro-batch]
  std::vector<double> backward_end_;  // of I or B
  std::vector<size_t> position_;      // next instruction, by rank
  std::vector<double> free_at_;       // by rank
  std::vector<uint32_t> ready_;       // ranks that may go on
  Simulation result_;
};

}  // namespace

absl::StatusOr<Simulation> Simulate(const ComputeOrder& order, const ScheduleOptions& options,
                                    const SimulatedCosts& costs) {
  return Simulator(order, options, costs).Run();
}

}  // namespace trireme::plan
