// ZeRO-2 and ZeRO-3: every gather, wait, sum and place is needed, and the verifier names what
// lacks; buckets at hand take the room of a few blocks, however deep the model.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/stage_facts.h"
#include "runtime/plan/state_layout.h"
#include "runtime/plan/verifier.h"
#include "tests/runtime/plan/shaped_plan.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

std::string VerdictOn(const v1::Plan& plan) { return std::string(VerifyPlan(plan).message()); }

// The first instruction that matches, and all behind it that match too.
std::vector<int> All(const v1::Program& program,
                     const std::function<bool(const v1::Instruction&)>& match) {
  std::vector<int> found;
  for (int at = 0; at < program.instructions_size(); ++at) {
    if (match(program.instructions(at))) found.push_back(at);
  }
  return found;
}

std::vector<int> WaitsOf(const v1::Program& program, v1::InstructionKind kind) {
  std::vector<uint32_t> tickets;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (instruction.kind() == kind) tickets.push_back(instruction.ticket());
  }
  return All(program, [&](const v1::Instruction& instruction) {
    return instruction.kind() == v1::WAIT &&
           std::find(tickets.begin(), tickets.end(), instruction.ticket()) != tickets.end();
  });
}

void MoveTo(v1::Program& program, int at, int to) {
  auto& list = *program.mutable_instructions();
  for (; at < to; ++at) list.SwapElements(at, at + 1);
  for (; at > to; --at) list.SwapElements(at, at - 1);
}
void MoveToEnd(v1::Program& program, int at) {
  MoveTo(program, at, program.instructions_size() - 1);
}

int64_t Elements(const v1::Plan& plan, v1::PoolKind kind) {
  return static_cast<int64_t>(FindPool(plan.stages(0), kind, 0).slot_bytes() / sizeof(float));
}

}  // namespace

TEST_CASE("bucket lives: no wait for a gather can be left to the end") {
  for (const char* family : {"gpt2", "llama"}) {
    const v1::Plan good =
        PlanOfShape({.family = family, .layers = 6, .zero = 3, .micro_batches = 2});
    for (const auto get : {&v1::StagePlan::mutable_step, &v1::StagePlan::mutable_evaluate}) {
      v1::Plan plan = good;
      const std::vector<int> waits = WaitsOf(*(plan.mutable_stages(0)->*get)(), v1::GATHER);
      REQUIRE(waits.size() > 6);
      for (const int at : waits) {
        v1::Plan late = good;
        MoveToEnd(*(late.mutable_stages(0)->*get)(), at);
        INFO(family << ", instruction " << at);
        CHECK(VerdictOn(late) != "");
      }
    }
    v1::Plan late = good;
    v1::Program& step = *late.mutable_stages(0)->mutable_step();
    MoveToEnd(step, WaitsOf(step, v1::GATHER)[2]);
    CHECK_THAT(VerdictOn(late), Contains("stage 0, step") && Contains("reads weights of bucket") &&
                                    Contains("not gathered"));
  }
}

TEST_CASE("bucket lives: no wait for a sum can be left to the end") {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const int64_t zero : {2, 3}) {
      const v1::Plan good =
          PlanOfShape({.schedule = schedule, .layers = 6, .zero = zero, .micro_batches = 2});
      v1::Plan plan = good;
      const std::vector<int> waits = WaitsOf(*plan.mutable_stages(0)->mutable_step(), v1::REDUCE);
      // One for each bucket and micro-batch at least.
      CHECK(waits.size() >=
            size_t{plan.micro_batches()} * static_cast<size_t>(plan.stages(0).buckets_size()));
      for (const int at : waits) {
        v1::Plan late = good;
        MoveToEnd(*late.mutable_stages(0)->mutable_step(), at);
        INFO(schedule << " zero " << zero << ", instruction " << at);
        CHECK_THAT(VerdictOn(late), Contains("REDUCE") || Contains("not summed"));
      }
    }
  }
}

TEST_CASE("bucket lives: a gradient that travels is not written, nor what lies over it") {
  for (const int64_t zero : {2, 3}) {
    const v1::Plan good = PlanOfShape({.layers = 6, .zero = zero, .micro_batches = 3});
    const v1::Program& program = good.stages(0).step();
    int refused = 0, moved = 0;
    for (const int wait : WaitsOf(program, v1::REDUCE)) {
      // Behind the next computation but before NORM, whose own check would see it.
      const std::vector<int> computes = All(program, [](const v1::Instruction& instruction) {
        return instruction.kind() == v1::B || instruction.kind() == v1::NORM;
      });
      const auto next = std::upper_bound(computes.begin(), computes.end(), wait);
      if (next == computes.end() || program.instructions(*next).kind() == v1::NORM) continue;
      v1::Plan late = good;
      MoveTo(*late.mutable_stages(0)->mutable_step(), wait, *next);
      const std::string verdict = VerdictOn(late);
      ++moved;
      refused += verdict.find("REDUCE is under way") != std::string::npos ||
                 verdict.find("which is not summed") != std::string::npos;
      if (!verdict.empty()) CHECK_THAT(verdict, Contains("writes the gradient of bucket"));
    }
    // Two blocks' gradients are whole at once, so every other wait stands where it must.
    CHECK(refused >= moved / 3);
    CHECK(moved > 12);
  }
}

TEST_CASE("bucket lives: a bucket is of one virtual stage") {
  for (const bool sequence : {false, true}) {
    const v1::Plan plan = PlanOfShape({.schedule = "interleaved",
                                       .layers = sequence ? 68 : 132,
                                       .tensor = sequence ? 2 : 1,
                                       .pipeline = 2,
                                       .zero = 2,
                                       .sequence_parallel = sequence});
    const auto graph = model::BuildModel(plan.job().model().config());
    const auto facts = FactsOf(plan, *graph);
    REQUIRE(facts.ok());
    for (const StageFacts& stage : *facts) {
      CHECK(stage.buckets.size() > kMostBuckets / 2);
      std::map<uint32_t, std::set<size_t>> stages_of;
      for (size_t v = 0; v < stage.virtual_stages.size(); ++v) {
        for (const auto& [op, bucket] : stage.virtual_stages[v].writes) stages_of[bucket].insert(v);
      }
      for (const auto& [bucket, stages] : stages_of) CHECK(stages.size() == 1);
    }
  }
  // As many as there may be, each with buckets of its own.
  (void)PlanOfShape({.schedule = "interleaved", .layers = 24, .pipeline = 2, .zero = 3});
}

TEST_CASE("bucket lives: buckets that are whole together cannot share a place") {
  const v1::Plan good = PlanOfShape({.layers = 6, .zero = 3, .micro_batches = 2});
  const int buckets = good.stages(0).buckets_size();
  int weights = 0, gradients = 0;
  for (int a = 0; a < buckets; ++a) {
    for (int b = 0; b < buckets; ++b) {
      if (a == b) continue;
      v1::Plan moved = good;
      moved.mutable_stages(0)->mutable_buckets(a)->set_gathered_offset(
          good.stages(0).buckets(b).gathered_offset());
      weights += VerdictOn(moved) != "";
      moved = good;
      moved.mutable_stages(0)->mutable_buckets(a)->set_partial_offset(
          good.stages(0).buckets(b).partial_offset());
      gradients += VerdictOn(moved) != "";
    }
  }
  // At least each with the one that is gathered next, and with the one reduced before.
  CHECK(weights >= buckets - 1);
  CHECK(gradients >= buckets - 1);
  v1::Plan outside = good;
  outside.mutable_stages(0)->mutable_buckets(1)->set_gathered_offset(1 << 20);
  CHECK_THAT(VerdictOn(outside), Contains("bucket 1 lies at") && Contains("GATHERED"));
}

TEST_CASE("bucket lives: a sum over other axes cannot be left out") {
  v1::Plan plan = PlanOfShape({.tensor = 2, .pipeline = 2, .zero = 3, .sequence_parallel = true});
  v1::Program& step = *plan.mutable_stages(0)->mutable_step();
  const std::vector<int> sums =
      All(step, [](const v1::Instruction& instruction) { return instruction.kind() == v1::SUM; });
  REQUIRE(sums.size() > 1);
  step.mutable_instructions()->DeleteSubrange(sums[0], 1);
  CHECK_THAT(VerdictOn(plan), Contains("SUM of bucket") && Contains("is missing"));
  // Before the last micro-batch it would leave the rest unsummed.
  plan = PlanOfShape({.tensor = 2, .zero = 2, .sequence_parallel = true});
  v1::Program& early = *plan.mutable_stages(0)->mutable_step();
  const std::vector<int> again =
      All(early, [](const v1::Instruction& instruction) { return instruction.kind() == v1::SUM; });
  REQUIRE(!again.empty());
  const uint32_t bucket = early.instructions(again[0]).bucket();
  const std::vector<int> reduces = All(early, [&](const v1::Instruction& instruction) {
    return instruction.kind() == v1::REDUCE && instruction.bucket() == bucket;
  });
  REQUIRE(reduces.size() == plan.micro_batches());
  const uint32_t first_ticket = early.instructions(reduces[0]).ticket();
  const std::vector<int> wait = All(early, [&](const v1::Instruction& instruction) {
    return instruction.kind() == v1::WAIT && instruction.ticket() == first_ticket;
  });
  MoveTo(early, again[0], wait.at(0) + 1);
  CHECK_THAT(VerdictOn(plan), Contains("after its SUM"));
  plan = PlanOfShape({.zero = 1});
  v1::Instruction& sum = *plan.mutable_stages(0)->mutable_step()->add_instructions();
  sum.set_kind(v1::SUM);
  CHECK_THAT(VerdictOn(plan), Contains("has no place below ZeRO-2"));
}

TEST_CASE("bucket lives: depth adds shares, and nothing to the buckets at hand") {
  for (const bool sequence : {false, true}) {
    const int64_t tensor = sequence ? 2 : 1;
    const PlanShape shape{.layers = 4, .tensor = tensor, .zero = 3, .sequence_parallel = sequence};
    PlanShape deep = shape;
    deep.layers = 24;  // a bucket for each block still: 64 are the most
    const v1::Plan few = PlanOfShape(shape), many = PlanOfShape(deep);
    CHECK(Elements(few, v1::GATHERED) == Elements(many, v1::GATHERED));
    CHECK(Elements(few, v1::PARTIAL) == Elements(many, v1::PARTIAL));
    for (const v1::PoolKind kind : {v1::PARAMETER, v1::GRADIENT, v1::MOMENT1, v1::MOMENT2}) {
      int64_t all = 0;
      for (const v1::Bucket& bucket : many.stages(0).buckets()) {
        all += static_cast<int64_t>(bucket.count());
      }
      CHECK(2 * Elements(many, kind) == all);
    }
  }
}

}  // namespace trireme::plan
