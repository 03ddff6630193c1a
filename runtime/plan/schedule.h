// Schedules as data: compute order per rank, before any transfer is placed. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::plan {

enum class Compute : uint8_t { kForward, kInputGrad, kWeightGrad, kBackward };  // F I W B

struct ComputeStep {
  Compute kind = Compute::kForward;
  uint32_t virtual_stage = 0;  // on this rank; global stage = virtual_stage * ranks + rank
  uint32_t micro_batch = 0;
  friend bool operator==(const ComputeStep&, const ComputeStep&) = default;
};

struct ScheduleOptions {
  uint32_t ranks = 1;           // P: pipeline ranks
  uint32_t micro_batches = 1;   // M
  uint32_t virtual_stages = 1;  // v: per rank (interleaved)
};

using ComputeOrder = std::vector<std::vector<ComputeStep>>;  // [rank][position]

// name: gpipe (Huang et al. 1811.06965), 1f1b (PipeDream-flush, Narayanan et al. 2006.09503),
// interleaved (Narayanan et al. 2104.04473), zb-h1 (Qi et al. 2401.10241). InvalidArgument names
// the legal values (v > 1 only for interleaved; interleaved needs v >= 2; M any; P=1 is fine).
absl::StatusOr<ComputeOrder> GenerateSchedule(std::string_view name,
                                              const ScheduleOptions& options);

// Durations of one virtual stage's instructions, any unit.
struct SimulatedCosts {
  double forward = 1;
  double input_grad = 1;
  double weight_grad = 1;  // B costs input_grad + weight_grad
  double latency = 0;      // of a transfer between neighbouring stages
};

struct SimulatedStep {
  ComputeStep compute;
  double start = 0;
  double end = 0;
};

struct Simulation {
  std::vector<std::vector<SimulatedStep>> timeline;  // [rank][position]
  double makespan = 0;
  double bubble = 0;                       // (makespan - busy) / busy of the busiest rank
  std::vector<uint32_t> peak_activations;  // per rank: (virtual stage, micro-batch) pairs alive
                                           // from F to I (or B) at once
};

// Runs the order with every instruction starting as soon as its rank is free and its inputs are
// there. FailedPrecondition, naming rank and instruction, if some instruction can never start or is
// missing or twice.
absl::StatusOr<Simulation> Simulate(const ComputeOrder& order, const ScheduleOptions& options,
                                    const SimulatedCosts& costs);

}  // namespace trireme::plan
