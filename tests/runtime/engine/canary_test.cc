// No byte beyond a planned slot is written: the plan is data, so the test widens every slot of it
// by a strip that nobody knows of, fills the strips, and looks at them after training, evaluation
// and generation.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
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

bool IsEmpty(const v1::Pool& pool) { return pool.slots() == 0 || pool.slot_bytes() == 0; }

// Strips that a slot is widened by: the tokens' hold two halves, each with a strip behind it, and
// what is stored of activations are whole slots, with theirs. Pieces of state are as large as
// engines ask, which refuse others.
uint64_t StripsOf(const v1::StagePlan& stage, const v1::Pool& of) {
  if (of.kind() == v1::TOKENS) return 2;
  if (of.kind() == v1::UPDATE) return 0;
  uint64_t strips = 1;
  if (of.kind() != v1::STORED) return strips;
  for (const v1::Pool& pool : stage.pools()) {
    const bool moves = pool.kind() == v1::ACTIVATION || pool.kind() == v1::STASH;
    strips += moves && pool.virtual_stage() == of.virtual_stage() && !IsEmpty(pool) ? 1 : 0;
  }
  return strips;
}

v1::Plan Widen(v1::Plan plan) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    uint64_t ends[v1::PoolPlace_ARRAYSIZE] = {};
    const v1::StagePlan before = stage;
    for (int index = 0; index < stage.pools_size(); ++index) {
      v1::Pool& pool = *stage.mutable_pools(index);
      uint64_t& end = ends[pool.place()];
      if (!IsEmpty(pool)) {
        pool.set_slot_bytes(pool.slot_bytes() +
                            StripsOf(before, before.pools(index)) * kStripBytes);
      }
      pool.set_offset_bytes(end);
      end += (pool.slot_bytes() * pool.slots() + 4095) / 4096 * 4096;
    }
    stage.set_arena_bytes(ends[v1::ARENA]);
    stage.set_host_bytes(ends[v1::HOST]);
    stage.set_file_bytes(ends[v1::FILE]);
  }
  return plan;
}

template <typename Visit>
void ForStrips(const v1::StagePlan& stage, const Arena& arena, const Visit& visit) {
  for (const v1::Pool& pool : stage.pools()) {
    // The kernels may use all of the scratch they are given.
    const bool has_none = pool.kind() == v1::SCRATCH || pool.kind() == v1::UPDATE;
    if (IsEmpty(pool) || has_none) continue;
    const uint64_t parts = pool.kind() == v1::TOKENS ? 2 : 1;
    const uint64_t part = pool.slot_bytes() / parts;
    const tensor::DevicePointer begin = arena.Slot(pool.kind(), pool.virtual_stage(), 0);
    for (uint64_t index = 1; index <= pool.slots() * parts; ++index) {
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

// Whether programs make all of it anew; what was there before means nothing to them.
bool IsMadeAnew(v1::PoolKind kind) {
  switch (kind) {
    case v1::TOKENS:
    case v1::ACTIVATION:
    case v1::STASH:
    case v1::GRADIENT_STASH:
    case v1::INPUT:
    case v1::OUTPUT:
    case v1::GRADIENT_IN:
    case v1::GRADIENT_OUT:
    case v1::TEMPORARY:
    case v1::GATHERED:
    case v1::PARTIAL:
    case v1::UPDATE:
    case v1::STORED:
      return true;
    default:
      return false;
  }
}

template <typename Visit>
void ForSlotsMadeAnew(const v1::StagePlan& stage, const Arena& arena, const Visit& visit) {
  for (int index = 0; index < stage.pools_size(); ++index) {
    const v1::Pool& pool = stage.pools(index);
    if (IsEmpty(pool) || !IsMadeAnew(pool.kind())) continue;
    for (uint32_t slot = 0; slot < pool.slots(); ++slot) {
      visit(index, slot,
            std::span(arena.Slot(pool.kind(), pool.virtual_stage(), slot).get(),
                      static_cast<size_t>(pool.slot_bytes())));
    }
  }
}

// How far slots were written, over all ranks of a stage: by stage, pool and slot.
using Written = std::map<std::tuple<int, int, uint32_t>, uint64_t>;

void NoteWritten(Engine& engine, const v1::StagePlan& stage, int at, Written& written,
                 std::mutex& mutex) {
  const auto note = [&](int pool, uint32_t slot, std::span<std::byte> bytes) {
    const v1::Pool& of = stage.pools(pool);
    size_t end = bytes.size() - (of.kind() == v1::UPDATE ? 0 : kStripBytes);
    while (end > 0 && bytes[end - 1] == std::byte{kCanary}) --end;
    const std::lock_guard lock(mutex);
    uint64_t& last = written[{at, pool, slot}];
    last = std::max<uint64_t>(last, end);
  };
  engine.OnDevice([&] { ForSlotsMadeAnew(stage, engine.arena(), note); });
}

// Slots that nothing was written to, and pools of which no slot was to its end: to the line behind
// which the next slot could begin.
std::string Unwritten(const v1::Plan& wide, const Written& written) {
  constexpr uint64_t kLineBytes = 64;
  std::string text;
  std::map<std::pair<int, int>, uint64_t> farthest;
  for (const auto& [key, end] : written) {
    const auto [stage, index, slot] = key;
    uint64_t& far = farthest[{stage, index}];
    far = std::max(far, end);
    if (end > 0) continue;
    absl::StrAppend(&text, " slot ", slot, " of ",
                    v1::PoolKind_Name(wide.stages(stage).pools(index).kind()), " of stage ", stage);
  }
  for (const auto& [key, far] : farthest) {
    const v1::StagePlan& stage = wide.stages(key.first);
    const v1::Pool& pool = stage.pools(key.second);
    // Of what is stored each slot ends with a strip that nobody knows, beside those that came
    // along.
    const uint64_t own = pool.slot_bytes() - (pool.kind() == v1::UPDATE ? 0 : kStripBytes);
    const uint64_t known = pool.kind() == v1::STORED ? own - kStripBytes : own;
    if (far + kLineBytes > known) continue;
    absl::StrAppend(&text, " ", v1::PoolKind_Name(pool.kind()), " of stage ", key.first,
                    " beyond byte ", far, " of ", known);
  }
  return text;
}

struct Found {
  std::string broken;
  Written written;
  std::mutex mutex;
};

absl::Status RunOnWidePlan(const v1::Plan& plan, comm::Fabric& fabric, const data::Dataset& dataset,
                           Found& found) {
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, OptionsOf(plan.job())));
  const int pipeline = static_cast<int>(plan::CoordinatesOf(plan.mesh(), fabric.rank()).pipeline);
  const v1::StagePlan& stage = plan.stages(pipeline);
  // Sets whole pools to zero, so it comes first.
  engine->InitializeState();
  const auto paint = [](const v1::Pool&, std::span<std::byte> strip) {
    std::memset(strip.data(), kCanary, strip.size());
  };
  engine->OnDevice([&] {
    ForSlotsMadeAnew(stage, engine->arena(), [](int, uint32_t, std::span<std::byte> slot) {
      std::memset(slot.data(), kCanary, slot.size());
    });
    ForStrips(stage, engine->arena(), paint);
  });
  for (uint64_t step = 0; step < 2; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
  const std::string after_steps = Broken(*engine, stage);
  RETURN_IF_ERROR(engine->Evaluate(0).status());
  const std::vector<int32_t> context = {1, 2, 3};
  RETURN_IF_ERROR(engine->NextToken(context, {}).status());
  const std::string at_end = Broken(*engine, stage);
  NoteWritten(*engine, stage, pipeline, found.written, found.mutex);
  {
    const std::lock_guard lock(found.mutex);
    if (!after_steps.empty()) absl::StrAppend(&found.broken, " training:", after_steps);
    if (!at_end.empty()) absl::StrAppend(&found.broken, " at the end:", at_end);
  }
  return engine->agreement().AllAgree(true).status();
}

}  // namespace

TEST_CASE("memory: nothing is written behind a slot of the plan, and all of it before") {
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
      {.pipeline = 2,
       .schedule = "gpipe",
       .offload_state = "file",
       .offload_activations = "host",
       .micro_batch = 1},
      {.data = 2,
       .pipeline = 4,
       .schedule = "zb-h1",
       .zero = 3,
       .offload_state = "host",
       .offload_activations = "file",
       .micro_batch = 1},
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
      Found found;
      const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
        return RunOnWidePlan(wide, fabric, *dataset, found);
      });
      INFO(model.family << " " << layout.Name());
      for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
      CHECK(found.broken == "");
      CHECK(Unwritten(wide, found.written) == "");
    }
  }
}

// As of a planner that counts a slot too many, or bytes that nobody asks for.
TEST_CASE("memory: a plan that states more than is written is seen") {
  const auto dataset = MakeRandomDataset(29, 5);
  const Layout layout{.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 3};
  const auto plan = plan::MakePlan(JobFor(layout, {}), layout.ranks());
  REQUIRE(plan.ok());
  const std::set<v1::PoolKind> asked = {v1::ACTIVATION, v1::STASH,        v1::INPUT,
                                        v1::OUTPUT,     v1::GRADIENT_OUT, v1::TEMPORARY,
                                        v1::GATHERED,   v1::PARTIAL,      v1::TOKENS};
  for (const v1::PoolKind kind : asked) {
    for (const bool slot : {true, false}) {
      // Of the last stage that has the pool.
      v1::Plan more = *plan;
      int at = 0;
      for (int index = 0; index < more.stages_size(); ++index) {
        auto& pools = *more.mutable_stages(index)->mutable_pools();
        const auto pool = std::find_if(pools.begin(), pools.end(), [&](const v1::Pool& each) {
          return each.kind() == kind && !IsEmpty(each);
        });
        if (pool == pools.end()) continue;
        at = index;
        slot ? pool->set_slots(pool->slots() + 1) : pool->set_slot_bytes(pool->slot_bytes() + 128);
      }
      const v1::Plan wide = Widen(more);
      Found found;
      const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
        return RunOnWidePlan(wide, fabric, *dataset, found);
      });
      INFO(v1::PoolKind_Name(kind) << (slot ? " one slot more" : " larger slots"));
      for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
      CHECK_THAT(Unwritten(wide, found.written),
                 Catch::Contains(v1::PoolKind_Name(kind) + " of stage " + std::to_string(at)));
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
