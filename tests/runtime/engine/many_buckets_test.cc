// A model of a thousand parameters and small buckets asked for: few are made, and the numbers are
// those of one rank.
#include <catch2/catch.hpp>

#include "runtime/comm/message_fabric.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

TEST_CASE("many buckets: a stage of many parameters trains within few operations") {
  // Streams that run at once leave no more in flight than the plan does.
  const comm::FabricOptions fabric{.operations = 512};
  CHECK(plan::kMostBucketsInFlight < fabric.operations);
  CHECK(plan::kMostTransfersInFlight < fabric.operations);
  const TinyJobOptions options{.family = "gpt2", .layers = 100};
  const auto job_on = [&](const Layout& layout) {
    v1::JobSpec job = JobFor(layout, options);
    job.mutable_parallelism()->set_bucket_bytes(1024);
    return job;
  };
  const auto dataset = MakeRandomDataset(29, 5);
  const auto reference = RunLayout(job_on({.micro_batch = 8}), 1, *dataset, {.steps = 2});
  REQUIRE(reference.ok());
  for (const Layout& layout :
       {Layout{.data = 2, .micro_batch = 4}, Layout{.data = 2, .zero = 1, .micro_batch = 4},
        Layout{.data = 2, .pipeline = 2, .zero = 1, .micro_batch = 4}}) {
    if (tests::kSanitizer && layout.pipeline == 1) continue;
    const v1::JobSpec job = job_on(layout);
    const auto plan = plan::MakePlan(job, layout.ranks());
    REQUIRE(plan.ok());
    const int buckets = plan->stages(0).buckets_size();
    CHECK(buckets > static_cast<int>(plan::kMostBuckets / 2));
    const auto result =
        RunLayout(job, layout.ranks(), *dataset, {.steps = 2, .transport = {.fabric = fabric}});
    INFO(layout.Name() << ", " << buckets << " buckets: " << result.status().ToString());
    REQUIRE(result.ok());
    CHECK(FaultsOf(*result, *reference, 1e-11) == "");
  }
}

// Several blocks share a bucket, but no two virtual stages do: each stage's backward reduces all of
// what it writes.
TEST_CASE("many buckets: of virtual stages under ZeRO-2 and ZeRO-3") {
  const TinyJobOptions options{.family = "gpt2", .layers = 132};
  const auto dataset = MakeRandomDataset(29, 5);
  const auto reference = RunLayout(JobFor({.micro_batch = 8}, options), 1, *dataset, {.steps = 2});
  REQUIRE(reference.ok());
  for (const int64_t zero : {2, 3}) {
    const Layout layout{
        .data = 2, .pipeline = 2, .schedule = "interleaved", .zero = zero, .micro_batch = 4};
    const auto result = RunLayout(JobFor(layout, options), layout.ranks(), *dataset, {.steps = 2});
    INFO(layout.Name() << ": " << result.status().ToString());
    REQUIRE(result.ok());
    CHECK(FaultsOf(*result, *reference, 1e-11) == "");
  }
}

}  // namespace trireme::engine
