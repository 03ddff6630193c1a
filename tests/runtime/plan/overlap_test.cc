// Gradients are summed while the rest of backward runs: in every plan the REDUCE of a bucket comes
// right after the operator that writes it last, whatever the schedule and the layout.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "tests/runtime/plan/shaped_plan.h"

namespace trireme::plan {
namespace {

std::vector<PlanShape> OverlappedJobs() {
  std::vector<PlanShape> jobs;
  for (const char* family : {"gpt2", "llama"}) {
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
      for (const int64_t pipeline : {1, 2, 4}) {
        if (pipeline == 1 && schedule == std::string("interleaved")) continue;
        // Hundreds of parameters on a rank, more than it has buckets.
        if (family == std::string("gpt2")) {
          jobs.push_back({.schedule = schedule, .layers = 96, .pipeline = pipeline});
        }
        for (const int64_t tensor : {1, 2}) {
          for (const int64_t micro_batches : {1, 3, 8}) {
            jobs.push_back({.family = family,
                            .schedule = schedule,
                            .tensor = tensor,
                            .pipeline = pipeline,
                            .zero = micro_batches % 2,
                            .micro_batches = micro_batches,
                            .sequence_parallel = tensor == 2 && micro_batches == 3,
                            .tie = pipeline != 2});
          }
        }
      }
    }
  }
  return jobs;
}

// Where a bucket is written last: the instruction, and one past the operator in it.
struct LastWrite {
  int instruction = -1;
  uint32_t op_end = 0;
};

LastWrite LastWriteOf(const v1::Program& step, const StageFacts& facts, uint32_t bucket) {
  LastWrite last;
  for (int at = 0; at < step.instructions_size(); ++at) {
    const v1::Instruction& each = step.instructions(at);
    const VirtualStageFacts& stage = facts.virtual_stages[each.virtual_stage()];
    for (const auto& [op, written] : stage.WritesOf(each.kind())) {
      if (written != bucket || op < each.op_begin() || op >= each.op_end()) continue;
      last = {at, op + 1};
    }
  }
  return last;
}

bool Computes(const v1::Instruction& instruction) {
  return instruction.kind() >= v1::F && instruction.kind() <= v1::B;
}

// Between the last write and the REDUCE only other sums are issued.
void CheckRightAfter(const v1::Program& step, const LastWrite& write, uint32_t bucket) {
  CHECK(step.instructions(write.instruction).op_end() == write.op_end);
  int at = write.instruction + 1;
  while (at < step.instructions_size()) {
    const v1::Instruction& each = step.instructions(at);
    if (each.kind() == v1::REDUCE && each.bucket() == bucket) return;
    if (each.kind() != v1::REDUCE) break;
    ++at;
  }
  FAIL_CHECK("after its last write follows " << step.instructions(at).ShortDebugString());
}

TEST_CASE("overlap: the REDUCE of a bucket comes right after its last write") {
  int covered = 0, all = 0;
  for (const PlanShape& shape : OverlappedJobs()) {
    const v1::Plan plan = PlanOfShape(shape);
    const auto graph = model::BuildModel(plan.job().model().config());
    REQUIRE(graph.ok());
    const auto facts = FactsOf(plan, *graph);
    REQUIRE(facts.ok());
    for (int stage = 0; stage < plan.stages_size(); ++stage) {
      const v1::Program& step = plan.stages(stage).step();
      int last_compute = 0;
      for (int at = 0; at < step.instructions_size(); ++at) {
        if (Computes(step.instructions(at))) last_compute = at;
      }
      for (int bucket = 0; bucket < plan.stages(stage).buckets_size(); ++bucket) {
        INFO(shape.family << " " << shape.schedule << ", stage " << stage << " of "
                          << shape.pipeline << ", tensor " << shape.tensor << ", "
                          << shape.micro_batches << " micro-batches, bucket " << bucket);
        const LastWrite write =
            LastWriteOf(step, (*facts)[static_cast<size_t>(stage)], static_cast<uint32_t>(bucket));
        REQUIRE(write.instruction >= 0);
        CheckRightAfter(step, write, static_cast<uint32_t>(bucket));
        covered += write.instruction < last_compute ? 1 : 0;
        ++all;
      }
    }
  }
  // All but the last bucket or two of a stage have computing left to hide behind.
  CHECK(all > 1000);
  CHECK(covered * 3 > all * 2);
}

}  // namespace
}  // namespace trireme::plan
