// First light of the engine: one rank learns, and its memory is what the plan says (which
// RunLayout looks at in every run, layout_run.h).
#include "runtime/engine/engine.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/local/local_fabric.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

TEST_CASE("engine: a single rank lowers its loss") {
  for (const char* family : {"gpt2", "llama"}) {
    const v1::JobSpec job = TinyJob({.family = family});
    const auto dataset = MakeRandomDataset(29, 5);
    const auto result = RunLayout(job, 1, *dataset, {.steps = 10, .evaluate = true});
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    CHECK(result->losses.back() < result->losses.front());
    CHECK(result->validation_loss > 0);
  }
}

TEST_CASE("engine: memory that is not what the plan says is seen, in every place") {
  const v1::JobSpec job = JobFor(
      {.data = 2, .offload_state = "file", .offload_activations = "host", .micro_batch = 1}, {});
  v1::JobSpec resolved = job;
  resolved.mutable_parallelism()->set_schedule("gpipe");
  const auto dataset = MakeRandomDataset(29, 5);
  const auto plan = plan::MakePlan(resolved, 2);
  REQUIRE(plan.ok());
  const v1::StagePlan& stage = plan->stages(0);
  const std::vector<std::function<void(v1::StagePlan&)>> changes = {
      [](v1::StagePlan& other) { other.set_arena_bytes(other.arena_bytes() - 4096); },
      [](v1::StagePlan& other) { other.set_host_bytes(other.host_bytes() + 4096); },
      [](v1::StagePlan& other) { other.set_file_bytes(other.file_bytes() - 4096); }};
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
    const auto engine = Engine::Create(*plan, fabric, *dataset, OptionsOf(job));
    if (!engine.ok()) return engine.status();
    for (const auto& change : changes) {
      v1::StagePlan other = stage;
      change(other);
      if (CheckMemory(**engine, other).ok()) return absl::InternalError("not seen");
    }
    return CheckMemory(**engine, stage);
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

// As where a coordinator of another version has planned.
TEST_CASE("engine: a plan that counts operators, buckets or bytes otherwise is refused") {
  const v1::JobSpec job = JobFor({.data = 2, .zero = 1}, {});
  const auto dataset = MakeRandomDataset(29, 5);
  const auto plan = plan::MakePlan(job, 2);
  REQUIRE(plan.ok());
  REQUIRE(plan->stages(0).buckets_size() > 2);
  const auto shrink = [](v1::StagePlan& stage, v1::PoolKind kind) {
    for (v1::Pool& pool : *stage.mutable_pools()) {
      if (pool.kind() == kind) pool.set_slot_bytes(pool.slot_bytes() - 64);
    }
  };
  const std::vector<std::function<void(v1::StagePlan&)>> changes = {
      [](v1::StagePlan& stage) { stage.set_fingerprint(0, stage.fingerprint(0) ^ 1); },
      [](v1::StagePlan& stage) { *stage.add_buckets() = stage.buckets(0); },
      [](v1::StagePlan& stage) { stage.mutable_buckets()->RemoveLast(); },
      [](v1::StagePlan& stage) { stage.mutable_buckets()->SwapElements(0, 1); },
      [](v1::StagePlan& stage) {
        v1::Bucket& bucket = *stage.mutable_buckets(1);
        bucket.set_count(bucket.count() - 32);
      },
      [](v1::StagePlan& stage) { stage.mutable_buckets(0)->add_axes(v1::AXIS_TENSOR); },
      [&](v1::StagePlan& stage) { shrink(stage, v1::PARAMETER); },
      [&](v1::StagePlan& stage) { shrink(stage, v1::GRADIENT); },
      [&](v1::StagePlan& stage) { shrink(stage, v1::MOMENT1); },
      [&](v1::StagePlan& stage) { shrink(stage, v1::MOMENT2); },
  };
  for (size_t change = 0; change < changes.size(); ++change) {
    v1::Plan other = *plan;
    changes[change](*other.mutable_stages(0));
    std::vector<absl::Status> made(2);
    comm::RunRanks(2, [&](comm::Fabric& fabric) {
      made[static_cast<size_t>(fabric.rank())] =
          Engine::Create(other, fabric, *dataset, OptionsOf(job)).status();
      return absl::OkStatus();  // a failure would end the other rank by another one
    });
    for (const absl::Status& status : made) {
      INFO(change << ": " << status.ToString());
      CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
      CHECK_THAT(std::string(status.message()), Catch::Contains("of different versions"));
    }
  }
}

}  // namespace trireme::engine
