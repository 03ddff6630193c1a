// The verifier on plans that the planner made, with many buckets and operators: it knows which
// operator writes which bucket and what fits a slot, so a plan that sums too early, leaves an
// operator out or gives a slot too little is refused by name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/plan/forget_axis.h"
#include "tests/runtime/plan/shaped_plan.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

std::vector<PlanShape> Shapes() {
  return {{},
          {.schedule = "zb-h1", .pipeline = 2},
          {.family = "llama", .schedule = "interleaved", .pipeline = 2, .zero = 1},
          {.tensor = 2, .pipeline = 2, .zero = 1, .sequence_parallel = true}};
}

std::vector<StageFacts> Facts(const v1::Plan& plan) {
  const auto graph = model::BuildModel(plan.job().model().config());
  REQUIRE(graph.ok());
  const auto facts = FactsOf(plan, *graph);
  REQUIRE(facts.ok());
  return *facts;
}

bool Writes(const StageFacts& facts, const v1::Instruction& instruction, uint32_t bucket) {
  const VirtualStageFacts& stage = facts.virtual_stages[instruction.virtual_stage()];
  for (const auto& [op, written] : stage.WritesOf(instruction.kind())) {
    if (written != bucket) continue;
    if (op >= instruction.op_begin() && op < instruction.op_end()) return true;
  }
  return false;
}

v1::Plan WithMoved(const v1::Plan& plan, int stage, int from, int to) {
  v1::Plan moved = plan;
  auto& list = *moved.mutable_stages(stage)->mutable_step()->mutable_instructions();
  for (; from > to; --from) list.SwapElements(from, from - 1);
  return moved;
}

TEST_CASE("verifier: no bucket is summed before each of its writers is done") {
  int moves = 0;
  for (const PlanShape& shape : Shapes()) {
    const v1::Plan plan = PlanOfShape(shape);
    const std::vector<StageFacts> facts = Facts(plan);
    for (int stage = 0; stage < plan.stages_size(); ++stage) {
      CHECK(plan.stages(stage).buckets_size() > 4);
      const v1::Program& program = plan.stages(stage).step();
      for (int at = 0; at < program.instructions_size(); ++at) {
        if (program.instructions(at).kind() != v1::REDUCE) continue;
        const uint32_t bucket = program.instructions(at).bucket();
        int writers = 0;
        for (int writer = at - 1; writer >= 0; --writer) {
          if (!Writes(facts[static_cast<size_t>(stage)], program.instructions(writer), bucket)) {
            continue;
          }
          ++writers;
          const absl::Status verdict = VerifyPlan(WithMoved(plan, stage, at, writer), facts);
          CHECK(verdict.code() == absl::StatusCode::kFailedPrecondition);
          CHECK_THAT(std::string(verdict.message()),
                     Contains("REDUCE of bucket " + std::to_string(bucket)) &&
                         Contains("which writes its bucket"));
          ++moves;
        }
        CHECK(writers >= static_cast<int>(plan.micro_batches()));
      }
    }
  }
  CHECK(moves > 200);
}

TEST_CASE("verifier: a slot smaller than what any tensor coordinate needs is refused by name") {
  for (const PlanShape& shape : Shapes()) {
    const v1::Plan plan = PlanOfShape(shape);
    const std::vector<StageFacts> facts = Facts(plan);
    REQUIRE(VerifyPlan(plan).ok());
    for (int stage = 0; stage < plan.stages_size(); ++stage) {
      for (int index = 0; index < plan.stages(stage).pools_size(); ++index) {
        const v1::Pool& pool = plan.stages(stage).pools(index);
        if (pool.slots() == 0 || pool.slot_bytes() == 0 || pool.kind() == v1::SCRATCH) continue;
        v1::Plan shrunk = plan;
        v1::StagePlan& changed = *shrunk.mutable_stages(stage);
        const uint64_t less = std::min<uint64_t>(pool.slot_bytes(), 128);
        changed.mutable_pools(index)->set_slot_bytes(pool.slot_bytes() - less);
        const bool last = index + 1 == changed.pools_size();
        if (last) changed.set_arena_bytes(changed.arena_bytes() - less);
        CHECK_THAT(std::string(VerifyPlan(shrunk, facts).message()),
                   Contains("stage " + std::to_string(stage)) &&
                       Contains("in the pool " + v1::PoolKind_Name(pool.kind()) + ", the plan"));
      }
    }
  }
}

TEST_CASE("verifier: an operator that no micro-batch runs is missed") {
  for (const v1::InstructionKind kind : {v1::F, v1::I, v1::W}) {
    v1::Plan plan = PlanOfShape({.schedule = "zb-h1", .pipeline = 2});
    const VirtualStageFacts facts = Facts(plan)[1].virtual_stages[0];
    const uint32_t length = kind == v1::F   ? facts.forward[0]
                            : kind == v1::I ? facts.input_grad
                                            : facts.weight_grad;
    for (v1::Instruction& each : *plan.mutable_stages(1)->mutable_step()->mutable_instructions()) {
      if (each.kind() == kind && each.op_end() == length) each.set_op_end(length - 1);
    }
    CHECK_THAT(std::string(VerifyPlan(plan).message()),
               Contains("stage 1, step, instruction") &&
                   (Contains("but the stage has") || Contains("must run exactly once")));
  }
}

TEST_CASE("verifier: buckets that the operators' gradients do not fill are refused") {
  v1::Plan plan = PlanOfShape({.tensor = 2, .sequence_parallel = true});
  for (v1::Bucket& bucket : *plan.mutable_stages(0)->mutable_buckets()) {
    Forget(v1::AXIS_TENSOR, bucket);
  }
  CHECK_THAT(std::string(VerifyPlan(plan).message()), Contains("the operators ask for"));
}

v1::Plan PlanWithCompression(const std::string& mode) {
  v1::JobSpec job = PlanOfShape({.pipeline = 2}).job();
  for (const bool data : {true, false}) {
    v1::CompressionSpec& spec = *job.mutable_compression();
    (data ? spec.mutable_data_parallel()->set_mode(mode) : spec.mutable_pipeline()->set_mode(mode));
    (data ? spec.mutable_data_parallel()->set_min_bytes(0)
          : spec.mutable_pipeline()->set_min_bytes(0));
  }
  const auto plan = MakePlan(job, 4);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

TEST_CASE("verifier: transfers are coded where the job asks for it and nowhere else") {
  const v1::Plan plan = PlanWithCompression("on");
  const auto facts = Facts(plan);
  REQUIRE(VerifyPlan(plan, facts).ok());
  int sums = 0, messages = 0;
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    const auto& list = plan.stages(stage).step().instructions();
    for (int at = 0; at < list.size(); ++at) {
      const v1::Instruction& instruction = list[at];
      const bool message =
          instruction.kind() >= v1::SEND_ACT && instruction.kind() <= v1::RECV_GRAD;
      (message ? messages : sums) += instruction.coded() ? 1 : 0;
      v1::Plan changed = plan;
      changed.mutable_stages(stage)->mutable_step()->mutable_instructions(at)->set_coded(
          !instruction.coded());
      CHECK_THAT(std::string(VerifyPlan(changed, facts).message()), Contains("coded, but"));
    }
    for (const v1::Instruction& instruction : plan.stages(stage).evaluate().instructions()) {
      CHECK_FALSE(instruction.coded());
    }
  }
  CHECK(sums > 4);
  CHECK(messages == 2 * 2 * 4);  // both sides, both ways, four micro-batches
  // As bf16 the same sums, and no message.
  v1::JobSpec job = PlanWithCompression("off").job();
  job.mutable_training()->set_gradient_transfer("bf16");
  const auto as_bf16 = MakePlan(job, 4);
  REQUIRE(as_bf16.ok());
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    const auto& list = as_bf16->stages(stage).step().instructions();
    for (int at = 0; at < list.size(); ++at) {
      const bool sum = list[at].kind() == v1::REDUCE;
      CHECK(list[at].coded() == (sum && plan.stages(stage).step().instructions(at).coded()));
    }
  }
  const v1::Plan off = PlanWithCompression("off");
  for (const v1::StagePlan& stage : off.stages()) {
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      CHECK_FALSE(instruction.coded());
    }
  }
}

}  // namespace
}  // namespace trireme::plan
