// What a save, a disk or a resume makes of the state, and who reads which data.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/tensor/element.h"
#include "tests/silent_bugs/kinds.h"

namespace trireme::silent_bugs {

namespace {

using checkpoint::StateShard;

const engine::Layout kShared{.data = 2, .zero = 1};  // each replica saves its share

template <typename Predicate>
void Erase(Shards& shards, Predicate predicate) {
  shards.erase(std::remove_if(shards.begin(), shards.end(), predicate), shards.end());
}

bool IsMoment2(const StateShard& shard) { return shard.kind == "moment2"; }

// One element early, where that is inside the tensor.
void Shift(Shards& shards, bool moments_alone) {
  for (StateShard& shard : shards) {
    layout::Interval& interval = shard.shard.interval;
    if (interval.begin == 0 || (moments_alone && shard.kind == "parameter")) continue;
    --interval.begin;
    --interval.end;
  }
}

void SwapOptimizers(const Place&, Shards& shards) {
  for (StateShard& shard : shards) {
    if (shard.kind == "parameter") continue;
    if (absl::StartsWith(shard.name, "h.0.")) {
      shard.name[2] = '1';
    } else if (absl::StartsWith(shard.name, "h.1.")) {
      shard.name[2] = '0';
    }
  }
}

bool WriteZeros(const Place& place, Shards& shards, Memory& memory) {
  for (StateShard& shard : shards) {
    if (place.rank != 1 || shard.kind != "parameter") continue;
    memory.emplace_back(shard.data.size());
    shard.data = memory.back();
  }
  return true;
}

void GiveNaN(engine::Engine& engine, uint64_t step) {
  if (engine.rank() != 1 || step != 1) return;
  for (const engine::StateView& view : engine.state().Held("parameter")) {
    if (view.name != "h.1.ln_2.weight") continue;
    engine.OnDevice([&] { tensor::SetElement(view.dtype, view.data.get(), 5, std::nan("")); });
  }
}

std::vector<Kind> Saves() {
  return {
      {.number = 33,
       .family = "state",
       .bug = "an asynchronous save is torn",
       .source = "pytorch #144657",
       .planted = "save: the second rank writes what it holds one step later",
       .job = {.layout = kShared, .resumes = true},
       .plant = {.torn = true}},
      {.number = 34,
       .family = "state",
       .bug = "a replica gives NaN",
       .source = "Megatron-LM #5281",
       .planted = "memory: a NaN in a weight of one of three replicas, before step 2",
       .job = {.layout = {.data = 3}},
       .plant = {.before_step = GiveNaN},
       .names = {"rank 1", "h.1.ln_2.weight"}},
      {.number = 35,
       .family = "state",
       .bug = "shards are never written",
       .source = "DeepSpeed #7546",
       .planted = "save: the second rank leaves its second moments out",
       .job = {.layout = kShared, .resumes = true},
       .plant = {.save =
                     [](const Place& place, Shards& shards, Memory&) {
                       if (place.rank == 1) Erase(shards, IsMoment2);
                       return true;
                     }},
       .consequence =
           [] {
             return Plant{.restore = [](const Place& place, Shards& shards) {
               if (place.rank == 1) Erase(shards, IsMoment2);
             }};
           }},
      {.number = 36,
       .family = "state",
       .bug = "zeros are written",
       .source = "DeepSpeed #6791",
       .planted = "save: the second rank writes zeros for its share of the weights",
       .job = {.layout = {.data = 2, .zero = 3}, .resumes = true},
       .plant = {.save = WriteZeros}},
  };
}

std::vector<Kind> Restores() {
  return {
      {.number = 37,
       .family = "state",
       .bug = "optimizers are swapped",
       .source = "Megatron-LM #761",
       .planted = "restore: each of two stages asks for the other's moments",
       .job = {.layout = {.pipeline = 2}, .resumes = true},
       .plant = {.restore = SwapOptimizers},
       .spoils =
           [](const std::string& name) {
             return absl::StartsWith(name, "moment") && absl::StrContains(name, " h.");
           }},
      {.number = 38,
       .family = "state",
       .bug = "bf16 weights and their masters differ",
       .source = "Megatron-LM #2789",
       .planted = "restore: masters come back, the weights that products read do not",
       .job = {.model = {.dtype = "bf16", .layers = 2}, .layout = {.data = 2}, .resumes = true},
       .plant = {.restore =
                     [](const Place&, Shards& shards) {
                       Erase(shards, [](const StateShard& shard) {
                         return shard.dtype == tensor::DType::kBf16;
                       });
                     }},
       .spoils = [](const std::string& name) { return absl::StartsWith(name, "rounded "); }},
      {.number = 39,
       .family = "state",
       .bug = "offsets of shards are wrong",
       .source = "DeepSpeed #7584",
       .planted = "save: the second rank's shards are said to lie one element early",
       .job = {.layout = kShared, .resumes = true},
       .plant = {.save =
                     [](const Place& place, Shards& shards, Memory&) {
                       if (place.rank == 1) Shift(shards, /*moments_alone=*/false);
                       return true;
                     }},
       .consequence =
           [] {
             return Plant{.restore = [](const Place& place, Shards& shards) {
               if (place.rank == 1) Shift(shards, /*moments_alone=*/true);
             }};
           }},
      {.number = 40,
       .family = "state",
       .bug = "a run resumes from scratch",
       .source = "Megatron-LM #6691",
       .planted = "disk: the only checkpoint's manifest is cut off",
       .job = {.layout = kShared, .resumes = true},
       .plant = {.disk =
                     [](const std::string& folder) {
                       std::filesystem::resize_file(absl::StrCat(folder, "/manifest.json"), 200);
                     }},
       .consequence =
           [] { return Plant{.restore = [](const Place&, Shards& shards) { shards.clear(); }}; },
       .names = {"manifest.json"}},
      {.number = 42,
       .family = "state",
       .bug = "a partial checkpoint is accepted",
       .source = "Ray #41700",
       .planted = "save: the second rank dies before it writes",
       .job = {.layout = kShared, .resumes = true},
       .plant = {.save = [](const Place& place, Shards&, Memory&) { return place.rank != 1; }},
       .consequence =
           [] {
             return Plant{.restore = [](const Place& place, Shards& shards) {
               if (place.rank == 1) shards.clear();
             }};
           },
       .names = {"rank 1"}},
  };
}

// The angles of rotary positions, which a cast of the whole model to bf16 takes along.
void DowncastRope(kernels::KernelRegistry& registry, const v1::JobSpec& job) {
  const kernels::KernelRegistry& sound = engine::KernelsOf(job);
  for (const graph::Phase phase : {graph::Phase::kForward, graph::Phase::kInputGrad}) {
    registry.Register(
        graph::OpKind::kRope, phase, tensor::DType::kF64, "planted",
        [&sound](graph::OpSpec spec,
                 const kernels::PrepareOptions& with) -> std::unique_ptr<kernels::Kernel> {
          spec.rope_theta =
              static_cast<float>(tensor::BFloat16(static_cast<float>(spec.rope_theta)));
          auto kernel = sound.Prepare(spec, with);
          return kernel.ok() ? *std::move(kernel) : nullptr;
        });
  }
}

std::vector<Kind> BuffersAndData() {
  return {
      {.number = 41,
       .family = "state",
       .bug = "a buffer is downcast with the model",
       .source = "torchtitan #3861",
       .planted = "kernel: the base of rotary positions in bf16",
       .job = {.model = {.family = "llama", .layers = 2}, .layout = {.tensor = 2}},
       .plant = {.kernels = DowncastRope},
       .spoils = Everything},
      {.number = 43,
       .family = "data",
       .bug = "ranks shuffle apart",
       .source = "Lightning #17713",
       .planted = "data: each replica shuffles by its own seed",
       .job = {.layout = {.data = 2}},
       .plant = {.start =
                     [](const data::SampleOrder& order, uint32_t replica, int64_t sample, int64_t) {
                       data::SampleOrder own = order;
                       own.seed += replica;
                       return own.Start(sample);
                     }},
       .spoils = Everything,
       .names = {"replica 1"}},
      {.number = 44,
       .family = "data",
       .bug = "a resume repeats samples",
       .source = "llm-foundry #1277, gpt-neox #308",
       .planted = "data: after a resume the text is read from its beginning",
       .job = {.layout = {.data = 2}, .resumes = true},
       .plant = {.start = [](const data::SampleOrder& order, uint32_t, int64_t sample,
                             int64_t first) { return order.Start(sample - first); }},
       .spoils = Everything,
       .names = {"replica 0, sample 24"}},
  };
}

}  // namespace

std::vector<Kind> KindsOfState() {
  std::vector<Kind> kinds = Saves();
  for (const auto& more : {Restores(), BuffersAndData()}) {
    kinds.insert(kinds.end(), more.begin(), more.end());
  }
  std::sort(kinds.begin(), kinds.end(),
            [](const Kind& a, const Kind& b) { return a.number < b.number; });
  return kinds;
}

std::vector<Kind> AllKinds() {
  std::vector<Kind> kinds = KindsOfNumbers();
  for (const auto& more : {KindsOfPlans(), KindsOfState()}) {
    kinds.insert(kinds.end(), more.begin(), more.end());
  }
  return kinds;
}

}  // namespace trireme::silent_bugs
