// A plan for 3,072 ranks fits a gRPC message and comes back whole; damage is told.
#include "runtime/plan/plan_file.h"

#include <catch2/catch.hpp>

#include "runtime/plan/planner.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {

TEST_CASE("plan file: 3072 ranks stay below 4 MiB and come back whole") {
  const auto plan = MakePlan(LargeJob(), 3072);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK(plan->mesh().data() == 4);
  const std::string bytes = SerializePlan(*plan);
  CHECK(bytes.size() < (size_t{4} << 20));
  const auto back = ParsePlan(bytes);
  REQUIRE(back.ok());
  CHECK(back->SerializeAsString() == plan->SerializeAsString());
}

TEST_CASE(
    "plan file: 3072 ranks stay below 4 MiB with all that is gathered, computed twice and moved") {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    CAPTURE(schedule);
    v1::JobSpec job = LargeJob();
    job.mutable_parallelism()->set_schedule(schedule);
    job.mutable_parallelism()->set_pipeline_parallel_size(48);
    job.mutable_parallelism()->set_zero_stage(3);
    job.mutable_parallelism()->clear_recompute();
    job.mutable_parallelism()->add_recompute("full");
    job.mutable_offload()->set_optimizer_state("file");
    job.mutable_offload()->set_activations("file");
    const auto plan = MakePlan(job, 3072);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok());
    CHECK(plan->mesh().data() == 8);
    CHECK(SerializePlan(*plan).size() < (size_t{4} << 20));
  }
}

TEST_CASE("plan file: bytes that are no plan are refused") {
  const auto plan = MakePlan(LargeJob(), 3072);
  REQUIRE(plan.ok());
  std::string bytes = SerializePlan(*plan);
  CHECK(ParsePlan("").status().code() != absl::StatusCode::kOk);
  CHECK(ParsePlan("not a plan").status().code() == absl::StatusCode::kDataLoss);
  CHECK_FALSE(ParsePlan(std::string_view(bytes).substr(0, bytes.size() / 2)).ok());
  v1::Plan other = *plan;
  other.set_version(kPlanVersionWithSlots + 1);
  CHECK(ParsePlan(SerializePlan(other)).status().code() == absl::StatusCode::kAborted);
}

}  // namespace trireme::plan
