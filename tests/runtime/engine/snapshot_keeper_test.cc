// Memory of snapshots that outlives an engine (docs/adr/0024): what its keeper is told, and that an
// engine which goes on from there ends with the bits of one that was never broken.
#include "runtime/engine/snapshot_keeper.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/memory.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"

namespace trireme::engine {
namespace {

using Catch::Contains;

// Keeps all that it is told, and looks at the memory when it is.
class TestKeeper : public SnapshotKeeper {
 public:
  TestKeeper(const v1::Plan& plan, int rank) : rank_(rank) {
    const auto stage = static_cast<int>(plan::CoordinatesOf(plan.mesh(), rank).pipeline);
    bytes_ = plan.stages(stage).snapshot_bytes();
    slot_bytes_ = plan::SnapshotSlotBytes(plan, plan.stages(stage));
    slots_ = plan.snapshot_slots();
    auto memory = tensor::HugeMemory::Map(bytes_);
    TRIREME_CHECK(memory.ok());  // on a thread of each rank, where Catch is not
    memory_ = std::make_shared<tensor::HugeMemory>(*std::move(memory));
  }

  absl::StatusOr<tensor::HostPages> Pages(const SnapshotSlots& slots) override {
    parts = slots.parts;
    if (slots.slot_bytes != slot_bytes_) fault = "asked for slots of another size";
    return tensor::HostPages{.bytes = memory_->pages().first(bytes_), .owner = memory_};
  }
  // Another distance from step to step, and from rank to rank: as pins are, which ranks do not
  // share.
  uint32_t NextSlot(uint32_t state) const override {
    const auto distance = static_cast<uint32_t>(stagings + rank_) % (slots_ - 1);
    named_ = (state + 1 + distance) % slots_;
    return named_;
  }
  void Clear(uint32_t slot) override {
    cleared.push_back(slot);
    staged.reset();
  }
  void Begin(uint32_t slot, uint64_t step) override {
    if (writing.has_value()) fault = "a slot begins while another is being written";
    if (slot != named_) fault = "it begins in another slot than was named";
    begun.insert(slot);
    if (staged.has_value() && staged->first == slot) fault = "it begins in the newest version";
    if (staged.has_value() && SumsOf(staged->first) != sums_) {
      fault = absl::StrCat("the version before ", step, " has been written to");
    }
    writing = {slot, step};
    before_ = SumsOf(slot);
  }
  absl::Status Stage(uint32_t slot, const StagedStep& step,
                     std::span<const uint64_t> sums) override {
    if (!writing.has_value() || *writing != std::pair(slot, step.step)) fault = "not begun";
    writing.reset();
    sums_.assign(sums.begin(), sums.end());
    if (SumsOf(slot) != sums_) fault = absl::StrCat("other sums than those of version ", step.step);
    if (before_ == sums_) fault = absl::StrCat("nothing was written for version ", step.step);
    staged = {slot, step};
    ++stagings;
    return refuse ? absl::FailedPreconditionError("somebody else has been here") : absl::OkStatus();
  }

  std::span<const std::byte> slot(uint32_t slot) const {
    return memory_->span().subspan(slot * slot_bytes_, slot_bytes_);
  }

  std::vector<SnapshotPart> parts;
  std::optional<std::pair<uint32_t, uint64_t>> writing;
  std::optional<std::pair<uint32_t, StagedStep>> staged;
  std::vector<uint32_t> cleared;
  std::set<uint32_t> begun;
  int stagings = 0;
  bool refuse = false;
  std::string fault;

 private:
  std::vector<uint64_t> SumsOf(uint32_t slot) const {
    std::vector<uint64_t> sums;
    const std::span<const std::byte> bytes = this->slot(slot);
    for (size_t at = 0; at < bytes.size(); at += checksum::kSummedBytes) {
      sums.push_back(checksum::SumOfPiece(bytes.subspan(at, checksum::kSummedBytes)));
    }
    return sums;
  }

  uint64_t bytes_ = 0, slot_bytes_ = 0;
  uint32_t slots_ = 0;
  const int rank_;
  mutable uint32_t named_ = 0;
  std::shared_ptr<tensor::HugeMemory> memory_;
  std::vector<uint64_t> sums_, before_;
};

// Weights as operators see them, masters and moments.
std::vector<std::string> StateOf(Engine& engine) {
  std::vector<std::string> all;
  for (const v1::PoolKind pool : {v1::PARAMETER, v1::MASTER, v1::MOMENT1, v1::MOMENT2}) {
    std::string& bytes = all.emplace_back(engine.arena().SlotBytes(pool, 0), '\0');
    engine.Read(engine.state().Flat(pool, 0), std::as_writable_bytes(std::span(bytes)));
  }
  return all;
}

struct HeldState {
  StateView view;
  std::vector<std::byte> bytes;
};

// Weights, those that products read before the masters, and moments.
std::vector<HeldState> HeldBy(Engine& engine) {
  std::vector<HeldState> held;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    for (const StateView& view : engine.state().Held(kind)) {
      HeldState state{.view = view, .bytes = std::vector<std::byte>(view.size_bytes())};
      engine.Read(view.data, state.bytes);
      held.push_back(std::move(state));
    }
  }
  return held;
}

// Whether the parts of the newest slot, and they alone, are the state that the rank updates. While
// an engine lives the memory is its device's.
absl::Status CheckParts(const std::vector<HeldState>& held, const TestKeeper& keeper) {
  const std::span<const std::byte> slot = keeper.slot(keeper.staged->first);
  std::vector<bool> filled(slot.size());
  for (const SnapshotPart& part : keeper.parts) {
    const auto found = std::find_if(held.rbegin(), held.rend(), [&](const HeldState& each) {
      return each.view.name == part.name && each.view.kind == part.kind &&
             each.view.dtype == part.dtype && each.view.shape == part.shape &&
             each.view.shard == part.shard;
    });
    if (found == held.rend()) {
      return absl::InternalError(absl::StrCat("no such state: ", part.kind, " ", part.name));
    }
    const std::vector<std::byte>& bytes = found->bytes;
    if (std::memcmp(bytes.data(), slot.data() + part.offset, bytes.size()) != 0) {
      return absl::InternalError(absl::StrCat("elsewhere: ", part.kind, " ", part.name));
    }
    std::fill_n(filled.begin() + static_cast<std::ptrdiff_t>(part.offset), bytes.size(), true);
  }
  for (size_t at = 0; at < slot.size(); ++at) {
    if (!filled[at] && slot[at] != std::byte{0}) {
      return absl::InternalError(absl::StrCat("byte ", at, " is of no part, and not zero"));
    }
  }
  return absl::OkStatus();
}

absl::Status BrokenAndUnbroken(const v1::Plan& plan, comm::Fabric& fabric,
                               const data::Dataset& dataset) {
  constexpr uint64_t kSteps = 5, kBroken = 3;
  EngineOptions options = OptionsOf(plan.job());
  const auto run = [&](Engine& engine, uint64_t from, uint64_t to) -> absl::Status {
    for (uint64_t step = from; step < to; ++step) RETURN_IF_ERROR(engine.RunStep(step).status());
    return engine.agreement().AllAgree(true).status();
  };
  std::vector<std::string> expected;
  {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, options));
    engine->InitializeState();
    RETURN_IF_ERROR(run(*engine, 0, kSteps));
    expected = StateOf(*engine);
  }
  TestKeeper keeper(plan, fabric.rank());
  options.snapshots = &keeper;
  std::vector<HeldState> held;
  {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, options));
    engine->InitializeState();
    RETURN_IF_ERROR(run(*engine, 0, kBroken));
    held = HeldBy(*engine);
  }
  if (!keeper.staged.has_value() || keeper.staged->second.step != kBroken) {
    return absl::InternalError("the last step is not staged");
  }
  RETURN_IF_ERROR(CheckParts(held, keeper));
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, options));
  RETURN_IF_ERROR(engine->ResumeFrom(keeper.staged->first));
  RETURN_IF_ERROR(run(*engine, kBroken, kSteps));
  if (StateOf(*engine) != expected) return absl::InternalError("other bits than the unbroken run");
  if (keeper.stagings != kSteps) return absl::InternalError("not every step was staged");
  // Not always the one behind the state, where there are more.
  const size_t used = std::min(plan.snapshot_slots(), 3u);
  if (keeper.begun.size() < used) return absl::InternalError("a slot was named and not written");
  return keeper.fault.empty() ? absl::OkStatus() : absl::InternalError(keeper.fault);
}

}  // namespace

TEST_CASE("snapshot keeper: who goes on from a slot ends as if it had never been broken") {
  const OnOneProcessor one;
  const auto dataset = MakeRandomDataset(29, 5);
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    for (const int64_t zero : {0, 1, 2, 3}) {
      const Layout layout{.data = 2,
                          .tensor = zero == 1 ? 2 : 1,
                          .pipeline = zero == 2 ? 2 : 1,
                          .zero = zero,
                          .micro_batch = 1};
      v1::JobSpec job = JobFor(layout, {.dtype = dtype});
      job.mutable_snapshots()->set_every_step(true);
      job.mutable_runtime()->set_asynchronous_streams(zero == 3);
      const uint32_t slots = zero % 2 == 0 ? 2 : 4;
      const auto plan = plan::MakePlan(job, layout.ranks(), {}, slots);
      REQUIRE(plan.ok());
      const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
        return BrokenAndUnbroken(*plan, fabric, *dataset);
      });
      for (const absl::Status& status : statuses) {
        INFO(dtype << ", " << layout.Name() << ": " << status.ToString());
        CHECK(status.ok());
      }
    }
  }
}

TEST_CASE("snapshot keeper: it is told what each version is, and nothing of a step left out") {
  const auto dataset = MakeRandomDataset(29, 5);
  v1::JobSpec job = JobFor({}, {.dtype = "f32"});
  job.mutable_training()->set_nonfinite_policy("skip");
  job.mutable_snapshots()->set_every_step(true);
  const auto plan = plan::MakePlan(job, 1);
  REQUIRE(plan.ok());
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
    TestKeeper keeper(*plan, 0);
    EngineOptions options = OptionsOf(job);
    options.snapshots = &keeper;
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, options));
    engine->InitializeState();
    ASSIGN_OR_RETURN(const StepReport first, engine->RunStep(0));
    CHECK(keeper.staged->first == 1);
    CHECK(keeper.staged->second.step == 1);
    CHECK(keeper.staged->second.loss == first.loss);
    RETURN_IF_ERROR(engine->Evaluate(2).status());
    CHECK(keeper.stagings == 1);
    // In what the products read, which is derived.
    const tensor::DevicePointer weight = engine->state().Flat(v1::PARAMETER, 0);
    float good = 0;
    engine->OnDevice([&] {
      good = std::exchange(*weight.as<float>(), std::numeric_limits<float>::quiet_NaN());
    });
    ASSIGN_OR_RETURN(const StepReport bad, engine->RunStep(1));
    CHECK(bad.skipped);
    CHECK(keeper.stagings == 1);
    CHECK_FALSE(keeper.writing.has_value());
    engine->OnDevice([&] { *weight.as<float>() = good; });
    RETURN_IF_ERROR(engine->RunStep(2).status());
    CHECK(keeper.staged->first == 0);
    CHECK(keeper.staged->second.step == 3);
    CHECK(keeper.staged->second.skipped_steps == 1);
    CHECK(keeper.fault == "");
    keeper.refuse = true;
    CHECK_THAT(engine->RunStep(3).status().ToString(), Contains("somebody else has been here"));
    return absl::OkStatus();
  });
  INFO(statuses[0].ToString());
  CHECK(statuses[0].ok());
}

// A slot that says a version is whole must not be written by another way than a step's.
TEST_CASE("snapshot keeper: state that no step writes takes every version with it") {
  const auto dataset = MakeRandomDataset(29, 5);
  const v1::JobSpec job = JobFor({}, {.dtype = "f32"});
  const auto plan = plan::MakePlan(job, 1, {}, 3);
  REQUIRE(plan.ok());
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
    TestKeeper keeper(*plan, 0);
    EngineOptions options = OptionsOf(job);
    options.snapshots = &keeper;
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, options));
    CHECK(keeper.cleared.empty());  // it may be gone on from
    engine->InitializeState();
    CHECK(keeper.cleared == std::vector<uint32_t>{0, 1, 2});
    RETURN_IF_ERROR(engine->RunStep(0).status());
    CHECK(keeper.staged.has_value());
    engine->ClearSnapshots();
    CHECK_FALSE(keeper.staged.has_value());
    CHECK(absl::IsInvalidArgument(engine->ResumeFrom(3)));
    return engine->ResumeFrom(2);
  });
  INFO(statuses[0].ToString());
  CHECK(statuses[0].ok());
}

TEST_CASE("snapshot keeper: memory of another size than the plan's is refused") {
  const auto dataset = MakeRandomDataset(29, 5);
  const v1::JobSpec job = JobFor({}, {.dtype = "f32"});
  const auto two = plan::MakePlan(job, 1, {}, 2), three = plan::MakePlan(job, 1, {}, 3);
  REQUIRE((two.ok() && three.ok()));
  TestKeeper keeper(*three, 0);
  EngineOptions options = OptionsOf(job);
  options.snapshots = &keeper;
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) {
    return Engine::Create(*two, fabric, *dataset, options).status();
  });
  CHECK(statuses[0].code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("snapshot keeper: a plan without slots is refused") {
  const auto dataset = MakeRandomDataset(29, 5);
  const v1::JobSpec job = JobFor({}, {.dtype = "f32"});
  const auto none = plan::MakePlan(job, 1), two = plan::MakePlan(job, 1, {}, 2);
  REQUIRE((none.ok() && two.ok()));
  TestKeeper keeper(*two, 0);
  EngineOptions options = OptionsOf(job);
  options.snapshots = &keeper;
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) {
    return Engine::Create(*none, fabric, *dataset, options).status();
  });
  CHECK_THAT(statuses[0].ToString(),
             Contains("FAILED_PRECONDITION") && Contains("no slots for them"));
}

}  // namespace trireme::engine
