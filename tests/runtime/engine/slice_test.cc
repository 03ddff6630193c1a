// Ranks that hold slices of a plan train as those that hold all of it, to the bit.
#include "runtime/plan/slice.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/coded_transfers.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

LayoutResult Run(const v1::JobSpec& job, int ranks, bool whole_plans) {
  const auto dataset = MakeRandomDataset(29, 5);
  const auto result = RunLayout(
      job, ranks, *dataset, {.steps = 2, .evaluate = true, .draw = 3, .whole_plans = whole_plans});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *result;
}

void CheckEqual(const Layout& layout, const TinyJobOptions& options) {
  INFO(layout.Name() << " " << options.compression);
  const v1::JobSpec job = JobFor(layout, options);
  const LayoutResult whole = Run(job, layout.ranks(), true);
  const LayoutResult sliced = Run(job, layout.ranks(), false);
  CHECK((sliced.losses == whole.losses && sliced.norms == whole.norms));
  CHECK((sliced.weights == whole.weights && sliced.gradients == whole.gradients));
  CHECK((sliced.validation_loss == whole.validation_loss && sliced.drawn == whole.drawn));
}

// A job of two stages and two replicas of which the stage with the largest bucket alone codes sums.
v1::JobSpec JobThatCodesOnOneStage() {
  v1::JobSpec job = JobFor({.data = 2, .pipeline = 2},
                           {.dtype = "f32", .layers = 3, .tie = false, .compression = "on"});
  job.mutable_parallelism()->set_bucket_bytes(1 << 30);  // one bucket on each stage
  job.mutable_compression()->mutable_pipeline()->set_mode("off");
  const auto plan = plan::MakePlan(job, 4);
  REQUIRE(plan.ok());
  uint64_t largest = 0;
  for (const v1::StagePlan& stage : plan->stages()) {
    for (const v1::Bucket& bucket : stage.buckets()) largest = std::max(largest, bucket.count());
  }
  job.mutable_compression()->mutable_data_parallel()->set_min_bytes(
      static_cast<int64_t>(largest * sizeof(float)));
  return job;
}

}  // namespace

TEST_CASE("slice: ranks with slices train to the bit as with the whole plan") {
  CheckEqual({.data = 2, .pipeline = 2}, {});
  CheckEqual({.tensor = 2, .pipeline = 2, .sequence_parallel = true}, {});
  CheckEqual({.pipeline = 2, .schedule = "interleaved"}, {});
  CheckEqual({.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1}, {.family = "llama"});
  CheckEqual({.data = 2, .pipeline = 2, .zero = 3}, {.family = "gpt2"});
}

TEST_CASE("slice: coded transfers are the same with slices") {
  CheckEqual({.data = 2, .pipeline = 2}, {.dtype = "f32", .compression = "on"});
  CheckEqual({.data = 2, .tensor = 2, .pipeline = 2}, {.dtype = "f32", .compression = "on"});
}

// The ranks of the other stage know nothing of coding from their slices.
TEST_CASE("slice: what coding did is told to ranks of a stage that codes nothing") {
  const auto dataset = MakeRandomDataset(29, 5);
  const v1::JobSpec job = JobThatCodesOnOneStage();
  const auto plan = plan::MakePlan(job, 4);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  const auto codes = [&](int stage) { return plan::CodedPeaksOf(plan->stages(stage).step()).sums; };
  REQUIRE(codes(0) != codes(1));
  const auto statuses = comm::RunRanks(4, [&](comm::Fabric& fabric) -> absl::Status {
    const v1::Plan slice = plan::SliceOf(*plan, fabric.rank());
    ASSIGN_OR_RETURN(auto engine, Engine::Create(slice, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    // The first has no second moment yet to take bounds from.
    for (uint64_t step = 0; step < 3; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
    ASSIGN_OR_RETURN(const std::vector<RankCoding> coding, engine->GatherCoding());
    if (coding.size() != 4) return absl::InternalError("the rank heard of no coding");
    for (size_t rank = 0; rank < coding.size(); ++rank) {
      const bool coded = coding[rank].data.sum.coded_bytes > 0;
      if (coded != codes(static_cast<int>(rank / 2))) return absl::InternalError("wrongly told");
    }
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(status.ok());
  }
}

}  // namespace trireme::engine
