// The event simulator: times by hand, latency, and orders that cannot run.
#include <catch2/catch.hpp>
#include <string>

#include "runtime/plan/schedule.h"

namespace trireme::plan {
namespace {

constexpr Compute F = Compute::kForward;
constexpr Compute I = Compute::kInputGrad;
constexpr Compute W = Compute::kWeightGrad;
constexpr Compute B = Compute::kBackward;

std::string Failure(const ComputeOrder& order, const ScheduleOptions& options) {
  const auto run = Simulate(order, options, {});
  REQUIRE(run.status().code() == absl::StatusCode::kFailedPrecondition);
  return std::string(run.status().message());
}

TEST_CASE("times of two ranks and two micro-batches, by hand") {
  const ComputeOrder order = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}},
                              {{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}};
  const auto run = Simulate(order, {2, 2, 1}, {1, 2, 1, 0.5});
  REQUIRE(run.ok());
  CHECK(run->timeline[1][0].start == 1.5);  // F0 of rank 0 ends at 1, and travels 0.5
  CHECK(run->timeline[1][1].end == 5.5);
  CHECK(run->timeline[0][2].start == 6.0);
  CHECK(run->timeline[1][2].start == 5.5);
  CHECK(run->timeline[0][3].start == 10.0);  // 9.5 + 0.5
  CHECK(run->makespan == 13.0);
  CHECK(run->bubble == 5.0 / 8.0);
  CHECK(run->peak_activations == std::vector<uint32_t>{2, 1});
}

TEST_CASE("neighbouring virtual stages of one rank exchange nothing") {
  const ComputeOrder order = {{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}};
  CHECK(Simulate(order, {1, 1, 2}, {1, 1, 1, 7})->makespan == 6);
}

TEST_CASE("an order that waits in a circle is named") {
  const ComputeOrder order = {{{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}},
                              {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}}};
  CHECK_THAT(Failure(order, {2, 2, 1}),
             Catch::Contains("rank 0 cannot start instruction 1 (B of virtual stage 0, "
                             "micro-batch 0)") &&
                 Catch::Contains("rank 1, which stands at instruction 1 (F of virtual stage 0, "
                                 "micro-batch 1)"));
}

TEST_CASE("a backward before its own forward is named") {
  CHECK_THAT(Failure({{{B, 0, 0}, {F, 0, 0}}}, {1, 1, 1}), Catch::Contains("its own list"));
  CHECK_THAT(Failure({{{F, 0, 0}, {W, 0, 0}, {I, 0, 0}}}, {1, 1, 1}),
             Catch::Contains("needs I of virtual stage 0, micro-batch 0"));
}

TEST_CASE("missing, doubled and foreign instructions are named") {
  CHECK_THAT(Failure({{{F, 0, 0}}}, {1, 1, 1}), Catch::Contains("is missing, and so is a B"));
  CHECK_THAT(Failure({{{F, 0, 0}, {I, 0, 0}}}, {1, 1, 1}),
             Catch::Contains("W of virtual stage 0, micro-batch 0 is missing"));
  CHECK_THAT(Failure({{{B, 0, 0}}}, {1, 1, 1}), Catch::Contains("F of virtual stage 0"));
  CHECK_THAT(Failure({{{F, 0, 0}, {F, 0, 0}, {B, 0, 0}}}, {1, 1, 1}),
             Catch::Contains("appears twice"));
  CHECK_THAT(Failure({{{F, 0, 0}, {B, 0, 0}, {W, 0, 0}}}, {1, 1, 1}),
             Catch::Contains("stands beside"));
  CHECK_THAT(Failure({{{F, 0, 0}, {B, 0, 0}, {F, 0, 1}}}, {1, 1, 1}),
             Catch::Contains("outside the schedule"));
  CHECK_THAT(Failure({}, {1, 1, 1}), Catch::Contains("expected 1"));
}

TEST_CASE("latency hurts interleaving more than zb-h1") {
  const SimulatedCosts whole{2, 2, 2, 0.2};
  const SimulatedCosts half{1, 1, 1, 0.2};
  const double zero_bubble =
      Simulate(*GenerateSchedule("zb-h1", {8, 16, 1}), {8, 16, 1}, whole)->bubble;
  const double interleaved =
      Simulate(*GenerateSchedule("interleaved", {8, 16, 2}), {8, 16, 2}, half)->bubble;
  CHECK(zero_bubble < interleaved);
}

TEST_CASE("96 ranks and 512 micro-batches are simulated, interleaved too") {
  for (const char* name : {"1f1b", "zb-h1", "interleaved"}) {
    const ScheduleOptions options{96, 512, std::string(name) == "interleaved" ? 2u : 1u};
    const auto run = Simulate(*GenerateSchedule(name, options), options, {1, 1, 1, 0.1});
    REQUIRE(run.ok());
    CHECK(run->bubble > 0.05);
    CHECK(run->bubble < 0.4);
  }
}

}  // namespace
}  // namespace trireme::plan
