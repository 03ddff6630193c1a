// No byte beyond a planned slot is written: the plan is data, so the test widens every slot of it
// by a strip that nobody knows of, fills the strips, and looks at them after training, evaluation
// and generation.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

constexpr uint64_t kStripBytes = 512;
constexpr unsigned char kCanary = 0xa5;

// The tokens' slots hold two halves, so their strips stand behind each half.
uint64_t StripsOf(const v1::Pool& pool) { return pool.kind() == v1::TOKENS ? 2 : 1; }

v1::Plan Widen(v1::Plan plan) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    uint64_t end = 0;
    for (v1::Pool& pool : *stage.mutable_pools()) {
      const bool empty = pool.slots() == 0 || pool.slot_bytes() == 0;
      if (!empty) pool.set_slot_bytes(pool.slot_bytes() + StripsOf(pool) * kStripBytes);
      pool.set_offset_bytes(end);
      end += (pool.slot_bytes() * pool.slots() + 4095) / 4096 * 4096;
    }
    stage.set_arena_bytes(end);
  }
  return plan;
}

template <typename Visit>
void ForStrips(const v1::StagePlan& stage, const Arena& arena, const Visit& visit) {
  for (const v1::Pool& pool : stage.pools()) {
    // The kernels may use all of the scratch they are given.
    if (pool.slot_bytes() == 0 || pool.kind() == v1::SCRATCH) continue;
    const uint64_t part = pool.slot_bytes() / StripsOf(pool);
    const tensor::DevicePointer begin = arena.Slot(pool.kind(), pool.virtual_stage(), 0);
    for (uint64_t index = 1; index <= pool.slots() * StripsOf(pool); ++index) {
      const tensor::DevicePointer end = begin + index * part;
      visit(pool, std::span(end.get() - kStripBytes, kStripBytes));
    }
  }
}

std::string Broken(Engine& engine, const v1::StagePlan& stage) {
  std::string text;
  const auto look = [&](const v1::Pool& pool, std::span<std::byte> strip) {
    for (const std::byte each : strip) {
      if (each == std::byte{kCanary}) continue;
      absl::StrAppend(&text, " ", v1::PoolKind_Name(pool.kind()), " of virtual stage ",
                      pool.virtual_stage());
      return;
    }
  };
  engine.OnDevice([&] { ForStrips(stage, engine.arena(), look); });
  return text;
}

absl::Status RunOnWidePlan(const v1::Plan& plan, comm::Fabric& fabric, const data::Dataset& dataset,
                           std::string& broken, std::mutex& mutex) {
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, OptionsOf(plan.job())));
  const v1::StagePlan& stage =
      plan.stages(static_cast<int>(plan::CoordinatesOf(plan.mesh(), fabric.rank()).pipeline));
  // Sets whole pools to zero, so it comes first.
  engine->InitializeState();
  const auto paint = [](const v1::Pool&, std::span<std::byte> strip) {
    std::memset(strip.data(), kCanary, strip.size());
  };
  engine->OnDevice([&] { ForStrips(stage, engine->arena(), paint); });
  for (uint64_t step = 0; step < 2; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
  const std::string after_steps = Broken(*engine, stage);
  RETURN_IF_ERROR(engine->Evaluate(0).status());
  const std::vector<int32_t> context = {1, 2, 3};
  RETURN_IF_ERROR(engine->NextToken(context, {}).status());
  const std::string at_end = Broken(*engine, stage);
  {
    const std::lock_guard lock(mutex);
    if (!after_steps.empty()) absl::StrAppend(&broken, " training:", after_steps);
    if (!at_end.empty()) absl::StrAppend(&broken, " at the end:", at_end);
  }
  return engine->agreement().AllAgree(true).status();
}

}  // namespace

TEST_CASE("memory: nothing is written behind a slot of the plan") {
  const std::vector<Layout> layouts = {
      {},
      {.micro_batch = 3},
      {.data = 3, .zero = 1, .micro_batch = 1},
      {.data = 2, .zero = 2, .recompute = "selective"},
      {.data = 2,
       .tensor = 2,
       .pipeline = 2,
       .sequence_parallel = true,
       .zero = 3,
       .recompute = "full"},
      {.tensor = 3, .sequence_parallel = true, .micro_batch = 3},
      {.pipeline = 2, .schedule = "gpipe"},
      {.pipeline = 4, .schedule = "1f1b", .micro_batch = 1},
      {.pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
      {.data = 2, .tensor = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "interleaved"},
  };
  const auto dataset = MakeRandomDataset(29, 5);
  for (const Layout& layout : layouts) {
    for (const TinyJobOptions& model :
         {TinyJobOptions{.dropout = 0.1}, TinyJobOptions{.family = "llama", .dtype = "f32"}}) {
      v1::JobSpec job = JobFor(layout, model);
      job.mutable_runtime()->set_asynchronous_streams(layout.micro_batch == 1);
      const auto plan = plan::MakePlan(job, layout.ranks());
      REQUIRE(plan.ok());
      const v1::Plan wide = Widen(*plan);
      std::string broken;
      std::mutex mutex;
      const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
        return RunOnWidePlan(wide, fabric, *dataset, broken, mutex);
      });
      INFO(model.family << " " << layout.Name());
      for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
      CHECK(broken == "");
    }
  }
}

// What lies between gradients travels with them, and is coded with them where a job wants that.
TEST_CASE("memory: gaps between gradients stay zero under ZeRO-2 and ZeRO-3") {
  const auto dataset = MakeRandomDataset(29, 5);
  for (const int64_t zero : {2, 3}) {
    const v1::JobSpec job = JobFor({.data = 2, .zero = zero, .micro_batch = 1}, {});
    const auto plan = plan::MakePlan(job, 2);
    REQUIRE(plan.ok());
    std::atomic<int64_t> gaps = 0, not_zero = 0;
    const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
      ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
      engine->InitializeState();
      for (uint64_t step = 0; step < 2; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
      engine->OnDevice([&] {
        const std::byte* const pool = engine->arena().Slot(v1::GRADIENT, 0, 0).get();
        std::vector<bool> held(engine->arena().SlotBytes(v1::GRADIENT, 0));
        for (const StateView& view : engine->state().Held("gradient")) {
          const auto begin = held.begin() + (view.data.get() - pool);
          std::fill(begin, begin + static_cast<std::ptrdiff_t>(view.size_bytes()), true);
        }
        for (size_t i = 0; i < held.size(); ++i) {
          gaps += held[i] ? 0 : 1;
          not_zero += !held[i] && pool[i] != std::byte{0} ? 1 : 0;
        }
      });
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
    INFO("zero " << zero << ", " << gaps << " bytes of gaps");
    CHECK(gaps > 0);
    CHECK(not_zero == 0);
  }
}

}  // namespace trireme::engine
