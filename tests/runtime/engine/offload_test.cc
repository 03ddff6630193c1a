// State and activations that are not in the arena: the same numbers, to the bit, as where they are;
// what the plan says is what is taken; and what goes wrong with a disk is told.
#include "runtime/plan/offload.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

namespace {

std::vector<v1::InstructionKind> KindsOf(const v1::Program& program) {
  std::vector<v1::InstructionKind> kinds;
  for (const v1::Instruction& each : program.instructions()) kinds.push_back(each.kind());
  return kinds;
}

int64_t Count(const v1::Plan& plan, v1::InstructionKind kind, v1::PoolKind pool) {
  int64_t count = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    for (const v1::Instruction& each : stage.step().instructions()) {
      count += each.kind() == kind && each.pool() == pool ? 1 : 0;
    }
  }
  return count;
}

uint64_t BytesOf(const v1::StagePlan& stage, v1::PoolKind kind) {
  uint64_t bytes = 0;
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() == kind) bytes += pool.slot_bytes() * pool.slots();
  }
  return bytes;
}

void SameBits(const Layout& layout, const TinyJobOptions& options, bool asynchronous) {
  const OnOneProcessor one;
  const auto dataset = MakeRandomDataset(29, 5);
  Layout there = layout;
  there.offload_state = there.offload_activations = "none";
  v1::JobSpec job = JobFor(layout, options), plain = JobFor(there, options);
  for (v1::JobSpec* each : {&job, &plain}) {
    each->mutable_runtime()->set_asynchronous_streams(asynchronous);
  }
  const auto expected = RunLayout(plain, layout.ranks(), *dataset, {.evaluate = true, .draw = 4});
  const auto result = RunLayout(job, layout.ranks(), *dataset, {.evaluate = true, .draw = 4});
  INFO(layout.Name() << " " << options.family << " " << options.dtype);
  INFO(result.status().ToString());
  REQUIRE(expected.ok());
  REQUIRE(result.ok());
  CHECK(UnlikeIn(*result, *expected) == "");
}

}  // namespace

TEST_CASE("offload: the same numbers to the bit, in every dtype, place and schedule") {
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    if (tests::kSanitizer && dtype != std::string_view("bf16")) continue;
    for (const char* place : {"host", "file"}) {
      SameBits({.pipeline = 2,
                .schedule = "gpipe",
                .offload_state = place,
                .offload_activations = place,
                .micro_batch = 1},
               {.dtype = dtype, .dropout = 0.1}, false);
    }
  }
  for (const bool asynchronous : {false, true}) {
    if (tests::kThreadSanitizer && !asynchronous) continue;
    for (const char* schedule : {"1f1b", "interleaved", "zb-h1"}) {
      SameBits({.pipeline = 4,
                .schedule = schedule,
                .offload_state = "file",
                .offload_activations = "host",
                .micro_batch = 1},
               {.layers = 8}, asynchronous);
    }
    // Recomputed from what is received, a stage keeps nothing that could move.
    SameBits({.pipeline = 4,
              .schedule = "gpipe",
              .recompute = "full",
              .offload_activations = "file",
              .micro_batch = 1},
             {}, asynchronous);
    for (const int64_t zero : {1, 2, 3}) {
      SameBits({.data = 2,
                .tensor = 2,
                .pipeline = 2,
                .sequence_parallel = true,
                .schedule = "gpipe",
                .zero = zero,
                .recompute = zero == 2 ? "full" : "selective",
                .offload_state = "host",
                .offload_activations = "file",
                .micro_batch = 1},
               {.family = "llama"}, asynchronous);
    }
  }
}

// Most of what forward keeps is outside, in a schedule that keeps much; and only a few pieces of
// the optimizer's state are in.
TEST_CASE("offload: the arena holds a few micro-batches and pieces at a time") {
  Layout layout{.pipeline = 2, .schedule = "gpipe", .micro_batch = 1};
  const auto before = plan::MakePlan(JobFor(layout, {}), 2);
  layout.offload_state = layout.offload_activations = "file";
  const auto after = plan::MakePlan(JobFor(layout, {}), 2);
  REQUIRE(before.ok());
  REQUIRE(after.ok());
  CHECK(Count(*after, v1::SWAP_OUT, v1::ACTIVATION) > 8);
  CHECK(Count(*after, v1::SWAP_OUT, v1::ACTIVATION) == Count(*after, v1::SWAP_IN, v1::ACTIVATION));
  CHECK(Count(*after, v1::SWAP_OUT, v1::UPDATE) > 4);
  for (int stage = 0; stage < 2; ++stage) {
    const v1::StagePlan &in = before->stages(stage), &out = after->stages(stage);
    CHECK(2 * BytesOf(out, v1::ACTIVATION) <= BytesOf(in, v1::ACTIVATION));
    CHECK(BytesOf(out, v1::UPDATE) <= 4 * 8192);
    CHECK(BytesOf(out, v1::MOMENT1) == BytesOf(in, v1::MOMENT1));
    CHECK(out.arena_bytes() < in.arena_bytes());
    CHECK(out.file_bytes() >= BytesOf(in, v1::MOMENT1) + BytesOf(in, v1::MOMENT2));
    CHECK(out.host_bytes() == 0);
    CHECK(plan::MemoryBytes(out) == out.arena_bytes());
    // The first pieces are on their way while ranks agree on the norm.
    const auto kinds = KindsOf(out.step());
    const auto norm = std::find(kinds.begin(), kinds.end(), v1::NORM);
    CHECK(*(norm - 1) == v1::SWAP_IN);
  }
}

TEST_CASE("offload: a disk without room, or no folder, is told before the first step") {
  const auto dataset = MakeRandomDataset(29, 5);
  Layout layout{.offload_state = "file"};
  const auto missing =
      RunLayout(JobFor(layout, {}), 1, *dataset, {.offload_folder = {.path = "/nowhere/at all"}});
  REQUIRE(!missing.ok());
  CHECK(missing.status().message().find("offload.directory") != std::string::npos);
}

}  // namespace trireme::engine
