// A slice is small, holds its stage whole and the others by name, and two slices of one plan know
// each other.
#include "runtime/plan/slice.h"

#include <catch2/catch.hpp>

#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {

namespace {

const v1::Plan& LargePlan() {
  static const v1::Plan plan = [] {
    auto made = MakePlan(LargeJob(), 3072);
    REQUIRE(made.ok());
    return *std::move(made);
  }();
  return plan;
}

}  // namespace

TEST_CASE("slice: one rank's of 3072 is small, and the same for all ranks of its stage") {
  const v1::Plan& plan = LargePlan();
  const size_t whole = SerializePlan(plan).size();
  for (const int rank : {0, 1, 31, 32, 1500, 3071}) {
    const v1::Plan slice = SliceOf(plan, rank);
    const std::string bytes = SerializePlan(slice);
    CHECK(bytes.size() < whole / 20);
    CHECK(bytes.size() < 256 << 10);
    CHECK(slice.ByteSizeLong() < size_t{4} << 20);
    const int first_of_stage = rank - rank % 32;
    CHECK(SerializePlan(SliceOf(plan, first_of_stage)) == bytes);
    CHECK(SerializePlan(SliceOf(slice, rank)) == bytes);
  }
}

TEST_CASE("slice: the own stage is whole and of the others stands what all ranks ask") {
  const v1::Plan& plan = LargePlan();
  const v1::Plan slice = SliceOf(plan, 70);
  REQUIRE(slice.stages_size() == plan.stages_size());
  CHECK(slice.job().SerializeAsString() == plan.job().SerializeAsString());
  for (int index = 0; index < plan.stages_size(); ++index) {
    const v1::StagePlan& stage = slice.stages(index);
    CHECK(stage.first_block(0) == plan.stages(index).first_block(0));
    CHECK(stage.end_block(0) == plan.stages(index).end_block(0));
    CHECK(stage.arena_bytes() == plan.stages(index).arena_bytes());
    if (index == 2) {
      CHECK(stage.SerializeAsString() == plan.stages(2).SerializeAsString());
    } else {
      CHECK((stage.step().instructions().empty() && stage.evaluate().instructions().empty() &&
             stage.generate().instructions().empty()));
      CHECK((stage.pools().empty() && stage.buckets().empty()));
    }
  }
}

TEST_CASE("slice: hashes tell slices of one plan from those of another") {
  const v1::Plan& plan = LargePlan();
  const SliceHash of_0 = HashOf(SliceOf(plan, 0), 0);
  const SliceHash of_40 = HashOf(SliceOf(plan, 40), 40);
  CHECK(of_0.common == of_40.common);
  CHECK(of_0.stage != of_40.stage);
  CHECK((HashOf(plan, 40).common == of_40.common && HashOf(plan, 40).stage == of_40.stage));
  CHECK(HashOf(SliceOf(plan, 41), 41).stage == of_40.stage);
  v1::Plan of_another_job = plan;
  of_another_job.mutable_job()->set_seed(plan.job().seed() + 1);
  CHECK(HashOf(of_another_job, 0).common != of_0.common);
  v1::Plan of_another_planner = plan;
  of_another_planner.mutable_stages(0)->mutable_step()->mutable_instructions(3)->set_channel(99);
  CHECK(HashOf(of_another_planner, 0).stage != of_0.stage);
}

}  // namespace trireme::plan
