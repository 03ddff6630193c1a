// Generated orders: complete, free of deadlock and with the bubbles and peaks of their closed
// forms.
#include "runtime/plan/schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

namespace trireme::plan {
namespace {

Simulation Run(const char* name, const ScheduleOptions& options, const SimulatedCosts& costs) {
  const absl::StatusOr<ComputeOrder> order = GenerateSchedule(name, options);
  INFO(order.status().ToString());
  REQUIRE(order.ok());
  const absl::StatusOr<Simulation> simulation = Simulate(*order, options, costs);
  INFO(name << " P=" << options.ranks << " M=" << options.micro_batches
            << " v=" << options.virtual_stages << ": " << simulation.status().ToString());
  REQUIRE(simulation.ok());
  return *simulation;
}

const SimulatedCosts kTwoToOne{1, 1, 1, 0};     // B = 2 F
const SimulatedCosts kEven{2, 1, 1, 0};         // B = F
const SimulatedCosts kUneven{3, 2.5, 2, 0};     // W < I < F
const SimulatedCosts kSlowInput{1, 1.5, 1, 0};  // I > F = W

TEST_CASE("gpipe and 1f1b idle (P-1)/M of their busy time, whatever B costs") {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (uint32_t count = 1; count <= 17; ++count) {
      const double form = double(ranks - 1) / count;
      for (const SimulatedCosts& costs : {kTwoToOne, kEven, kUneven}) {
        const Simulation gpipe = Run("gpipe", {ranks, count, 1}, costs);
        CHECK(gpipe.bubble == Approx(form).margin(1e-12));
        for (uint32_t peak : gpipe.peak_activations) CHECK(peak == count);
        const Simulation alternating = Run("1f1b", {ranks, count, 1}, costs);
        CHECK(alternating.bubble == Approx(form).margin(1e-12));
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          CHECK(alternating.peak_activations[rank] == std::min(ranks - rank, count));
        }
      }
    }
  }
}

TEST_CASE("interleaved idles (P-1)/(vM) and keeps P v + P - 1 parts when P divides M") {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (uint32_t groups = 1; groups <= 3; ++groups) {
      for (uint32_t stages = 2; stages <= 4; ++stages) {
        const uint32_t count = groups * ranks;
        const Simulation run = Run("interleaved", {ranks, count, stages}, kTwoToOne);
        INFO("P=" << ranks << " M=" << count << " v=" << stages);
        CHECK(run.bubble == Approx(double(ranks - 1) / (stages * count)).margin(1e-12));
        // In units of a whole rank's activations, v parts each: P (1 + (P-1) / (P v)).
        const uint32_t form = ranks * stages + ranks - 1;
        CHECK(run.peak_activations[0] == std::min(form, stages * count));
      }
    }
  }
}

TEST_CASE("interleaved runs for every M") {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (uint32_t count = 1; count <= 17; ++count) {
      for (uint32_t stages = 2; stages <= 4; ++stages) {
        const Simulation run = Run("interleaved", {ranks, count, stages}, kTwoToOne);
        INFO("P=" << ranks << " M=" << count << " v=" << stages);
        if (count >= ranks) {  // groups of P or more keep the ring full, whatever remains
          CHECK(run.bubble == Approx(double(ranks - 1) / (stages * count)).margin(1e-12));
        } else {
          CHECK(run.bubble <= double(ranks - 1) / count + 1e-12);
        }
      }
    }
  }
}

TEST_CASE("interleaved keeps Megatron's order for P=2, M=4, v=2") {
  const ComputeOrder order = *GenerateSchedule("interleaved", {2, 4, 2});
  std::string text;
  for (const ComputeStep& step : order[1]) {
    text += step.kind == Compute::kForward ? 'F' : 'B';
    text += std::to_string(step.virtual_stage) + std::to_string(step.micro_batch) + ' ';
  }
  CHECK(text == "F00 F01 F10 B10 F11 B11 F02 B00 F03 B01 F12 B12 F13 B13 B02 B03 ");
}

TEST_CASE("zb-h1 idles (P-1)(F+I-W) and keeps the activations of 1f1b") {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (uint32_t count = 1; count <= 17; ++count) {
      for (const SimulatedCosts& costs : {kTwoToOne, kUneven, kSlowInput}) {
        const Simulation run = Run("zb-h1", {ranks, count, 1}, costs);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          CHECK(run.peak_activations[rank] == std::min(ranks - rank, count));
        }
        if (count < ranks) continue;  // the form counts P - 1 weight-grads to fill the drain with
        const double all = costs.forward + costs.input_grad + costs.weight_grad;
        const double idle = costs.forward + costs.input_grad - costs.weight_grad;
        INFO("P=" << ranks << " M=" << count << " I=" << costs.input_grad);
        CHECK(run.bubble == Approx((ranks - 1) * idle / (count * all)).margin(1e-12));
      }
    }
  }
}

TEST_CASE("zb-h1 never keeps more activations and stashes than the first rank of 1f1b") {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const ComputeOrder order = *GenerateSchedule("zb-h1", {ranks, 17, 1});
    for (const auto& steps : order) {
      uint32_t alive = 0;
      uint32_t peak = 0;
      for (const ComputeStep& step : steps) {
        if (step.kind == Compute::kForward) peak = std::max(peak, ++alive);
        if (step.kind == Compute::kWeightGrad) --alive;
      }
      CHECK(peak == ranks);
    }
  }
}

TEST_CASE(
    "unknown schedules and wrong numbers of virtual stages are refused with the legal values") {
  const auto message = [](const char* name, const ScheduleOptions& options) {
    const auto order = GenerateSchedule(name, options);
    REQUIRE(order.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(order.status().message());
  };
  CHECK_THAT(message("zbh1", {2, 2, 1}), Catch::Contains("gpipe, 1f1b, interleaved or zb-h1"));
  CHECK_THAT(message("1f1b", {2, 2, 2}), Catch::Contains("virtual_stages = 1"));
  CHECK_THAT(message("interleaved", {2, 2, 1}), Catch::Contains("virtual_stages >= 2"));
  CHECK_THAT(message("gpipe", {2, 0, 1}), Catch::Contains("at least 1"));
}

}  // namespace
}  // namespace trireme::plan
