// Steps from slot to slot (docs/adr/0024): the same numbers to the bit as where the state is
// updated in place; each version whole, with its sums; and the one before left as it was.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/sanitizer.h"

namespace trireme::engine {
namespace {

constexpr v1::PoolKind kSlotPools[] = {v1::MASTER, v1::MOMENT1, v1::MOMENT2};

void SameBitsInSlots(const Layout& layout, const TinyJobOptions& options, uint32_t slots,
                     bool asynchronous = false) {
  const OnOneProcessor one;
  const auto dataset = MakeRandomDataset(29, 5);
  v1::JobSpec job = JobFor(layout, options);
  job.mutable_runtime()->set_asynchronous_streams(asynchronous);
  const auto run = [&](uint32_t snapshot_slots) {
    return RunLayout(
        job, layout.ranks(), *dataset,
        {.steps = 4, .evaluate = true, .draw = 4, .threads = 2, .snapshot_slots = snapshot_slots});
  };
  const auto expected = run(0), result = run(slots);
  INFO(layout.Name() << " " << options.family << " " << options.dtype << ", " << slots << " slots");
  INFO(result.status().ToString());
  REQUIRE(expected.ok());
  REQUIRE(result.ok());
  CHECK(UnlikeIn(*result, *expected) == "");
}

// All bytes of a slot's pools.
std::vector<std::string> BytesOf(Engine& engine, uint32_t slot) {
  std::vector<std::string> all;
  for (const v1::PoolKind pool : kSlotPools) {
    std::string& bytes = all.emplace_back(engine.arena().SlotBytes(pool, 0), '\0');
    engine.Read(engine.arena().Slot(pool, 0, slot), std::as_writable_bytes(std::span(bytes)));
  }
  return all;
}

// Empty if the sums that the last step made are those of the slot that is the state.
std::string WrongSums(Engine& engine) {
  StateSlots& slots = engine.state().slots();
  std::vector<std::string> bytes = BytesOf(engine, slots.state());
  for (size_t index = 0; index < bytes.size(); ++index) {
    const auto sums = slots.sums(kSlotPools[index]);
    bytes[index].resize(sums.size() * checksum::kSummedBytes);
    for (size_t piece = 0; piece < sums.size(); ++piece) {
      const auto part = std::as_bytes(std::span(bytes[index]))
                            .subspan(piece * checksum::kSummedBytes, checksum::kSummedBytes);
      if (checksum::Folded(sums[piece]) == checksum::SumOfPiece(part)) continue;
      return absl::StrCat("piece ", piece, " of ", v1::PoolKind_Name(kSlotPools[index]));
    }
  }
  return "";
}

// Empty if `report`'s step has left its predecessor as it was, and is whole itself.
std::string FaultOfStep(Engine& engine, uint32_t before, const std::vector<std::string>& bytes) {
  StateSlots& slots = engine.state().slots();
  if (slots.state() != (before + 1) % slots.count()) return "the slots do not take turns";
  if (BytesOf(engine, before) != bytes) return "the step has written to the version before it";
  if (BytesOf(engine, slots.state()) == bytes) return "the step has written nothing";
  return WrongSums(engine);
}

absl::Status RunInSlots(const v1::Plan& plan, comm::Fabric& fabric, const data::Dataset& dataset) {
  EngineOptions options = OptionsOf(plan.job());
  options.threads = 2;
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, options));
  engine->InitializeState();
  std::string fault;
  for (uint64_t step = 0; step < 5; ++step) {
    const uint32_t before = engine->state().slots().state();
    const std::vector<std::string> bytes = BytesOf(*engine, before);
    RETURN_IF_ERROR(engine->RunStep(step).status());
    const std::string found = FaultOfStep(*engine, before, bytes);
    if (fault.empty() && !found.empty()) fault = absl::StrCat("step ", step, ": ", found);
  }
  RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
  return fault.empty() ? absl::OkStatus() : absl::InternalError(fault);
}

}  // namespace

TEST_CASE("snapshot slots: the same numbers to the bit as in place, in every dtype and layout") {
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    SameBitsInSlots({}, {.dtype = dtype, .dropout = 0.1}, 2);
    if (tests::kSanitizer && dtype != std::string_view("bf16")) continue;
    for (const int64_t zero : {0, 1, 2, 3}) {
      SameBitsInSlots({.data = 3, .zero = zero, .micro_batch = 1}, {.dtype = dtype}, 2);
      SameBitsInSlots({.data = 2,
                       .tensor = 2,
                       .pipeline = 2,
                       .sequence_parallel = true,
                       .schedule = zero % 2 == 0 ? "zb-h1" : "interleaved",
                       .zero = zero,
                       .recompute = "selective",
                       .micro_batch = 1},
                      {.family = "llama", .dtype = dtype}, zero == 1 ? 3 : 2);
    }
  }
}

TEST_CASE(
    "snapshot slots: the same bits beside activations that are moved, in line and on threads") {
  for (const bool asynchronous : {false, true}) {
    SameBitsInSlots(
        {.data = 2, .pipeline = 2, .zero = 1, .offload_activations = "host", .micro_batch = 1},
        {.dtype = "bf16"}, 2, asynchronous);
  }
}

TEST_CASE("snapshot slots: each version is whole with its sums, and the one before stays") {
  const OnOneProcessor one;
  const auto dataset = MakeRandomDataset(29, 5);
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    if (tests::kThreadSanitizer && dtype != std::string_view("bf16")) continue;
    for (const int64_t zero : {0, 1, 3}) {
      for (const uint32_t slots : {2u, 3u}) {
        const Layout layout{.data = 2, .tensor = zero == 1 ? 2 : 1, .zero = zero};
        const auto plan =
            plan::MakePlan(JobFor(layout, {.dtype = dtype}), layout.ranks(), {}, slots);
        REQUIRE(plan.ok());
        const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
          return RunInSlots(*plan, fabric, *dataset);
        });
        for (const absl::Status& status : statuses) {
          INFO(dtype << ", " << layout.Name() << ", " << slots << " slots: " << status.ToString());
          CHECK(status.ok());
        }
      }
    }
  }
}

// NORM lets no STEP run: no slot begins, and the state stays the one it was.
TEST_CASE("snapshot slots: a step that is left out touches no slot") {
  const auto dataset = MakeRandomDataset(29, 5);
  v1::JobSpec job = JobFor({.data = 2, .zero = 1}, {.dtype = "f32"});
  job.mutable_training()->set_nonfinite_policy("skip");
  const auto plan = plan::MakePlan(job, 2, {}, 2);
  REQUIRE(plan.ok());
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    StateSlots& slots = engine->state().slots();
    const uint32_t state = slots.state();
    const auto own = BytesOf(*engine, state), other = BytesOf(*engine, 1 - state);
    // In what the products read, which is derived.
    const tensor::DevicePointer weight = engine->state().Flat(v1::PARAMETER, 0);
    float good = 0;
    engine->OnDevice([&] {
      good = std::exchange(*weight.as<float>(), std::numeric_limits<float>::quiet_NaN());
    });
    ASSIGN_OR_RETURN(const StepReport bad, engine->RunStep(1));
    const bool same = slots.state() == state && BytesOf(*engine, state) == own &&
                      BytesOf(*engine, 1 - state) == other && WrongSums(*engine).empty();
    engine->OnDevice([&] { *weight.as<float>() = good; });
    ASSIGN_OR_RETURN(const StepReport next, engine->RunStep(2));
    const std::string fault = FaultOfStep(*engine, state, own);
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    if (!bad.skipped || next.skipped) return absl::InternalError("another step was left out");
    if (!same) return absl::InternalError("the step that was left out has touched a slot");
    return fault.empty() ? absl::OkStatus() : absl::InternalError(fault);
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(status.ok());
  }
}

}  // namespace trireme::engine
