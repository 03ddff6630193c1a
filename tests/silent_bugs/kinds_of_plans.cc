// What is read too early or left from before, what is drawn twice, what a cut loses.
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tests/silent_bugs/kinds.h"
#include "tests/silent_bugs/plan_changes.h"

namespace trireme::silent_bugs {

using engine::Mutation;

namespace {

// What a gather into the gradients' buffer has left there.
void LeaveWeights(engine::Engine& engine, uint64_t) {
  const auto weights = engine.state().Held("parameter");
  const auto gradients = engine.state().Held("gradient");
  engine.OnDevice([&] {
    for (size_t index = 0; index < weights.size(); ++index) {
      std::memcpy(gradients[index].data.get(), weights[index].data.get(),
                  weights[index].size_bytes());
    }
  });
}

// Biases begin with zeros.
bool IsNoZero(const std::string& name) { return !absl::EndsWith(name, ".bias"); }

// In the head's block alone: the tied embedding is in that of the embedding.
bool IsOfFirstBucket(const std::string& name) { return absl::StartsWith(name, "ln_f"); }

std::vector<Kind> Stales() {
  return {
      {.number = 22,
       .family = "stale",
       .bug = "forward reads weights before their gather has ended",
       .source = "Megatron-LM #663, #950",
       .planted = "plan: each GATHER before the STEPs, so it brings the weights of the step before",
       .job = {.layout = {.data = 2, .zero = 1}},
       .plant = {.plan = GatherBeforeSteps},
       .spoils = Everything,
       .names = {"bucket 0"}},
      {.number = 23,
       .family = "stale",
       .bug = "a gather leaves its bytes in the gradient buffer",
       .source = "Megatron-LM #4609",
       .planted = "plan: weights, which a gather brings, laid over gradients; engine: gradients "
                  "added to the weights' bytes",
       .job = {.layout = {.data = 2, .zero = 1}},
       .plant = {.mutation = Mutation::kLeftInGradientBuffer,
                 .plan = [](v1::Plan& plan) { LayOver(plan, v1::PARAMETER, v1::GRADIENT); },
                 .runs_plan = false,
                 .before_step = LeaveWeights},
       .spoils = IsNoZero,
       .names = {"pool GRADIENT, pool PARAMETER"}},
      {.number = 24,
       .family = "stale",
       .bug = "a shared buffer is zeroed too early",
       .source = "Megatron-LM #4769",
       .planted = "plan: a sum is awaited after its place is used again; engine: one bucket "
                  "cleared before its sum",
       .job = {.layout = {.data = 2, .zero = 2}},
       .plant = {.mutation = Mutation::kClearedTooEarly, .plan = AwaitSumLate, .runs_plan = false},
       .spoils = IsOfFirstBucket},
      {.number = 25,
       .family = "stale",
       .bug = "the hook that reduces a gradient is lost",
       .source = "pytorch #104336",
       .planted = "plan: one bucket without its REDUCE",
       .job = {.layout = {.data = 2}},
       .plant = {.plan = [](v1::Plan& plan) { DropReduce(plan, 2); }},
       .spoils = [](const std::string& name) { return name == "h.1.attn.c_proj.weight"; },
       .names = {"bucket 2", "h.1.attn.c_proj.weight"}},
      {.number = 26,
       .family = "stale",
       .bug = "the optimizer is not tied to its shards",
       .source = "accelerate #2665",
       .planted = "plan: no STEP, the optimizer updates nothing of the model",
       .job = {.layout = {.data = 2, .zero = 1}},
       .plant = {.plan = DropSteps},
       .spoils = Everything},
  };
}

std::vector<Kind> Randoms() {
  return {
      {.number = 27,
       .family = "random",
       .bug = "recomputing draws new dropout",
       .source = "OLMo-core #828, pytorch #190717",
       .planted = "engine: what is recomputed draws by another seed",
       .job = {.model = {.layers = 2, .dropout = 0.2}, .layout = {.data = 2, .recompute = "full"}},
       .plant = {.mutation = Mutation::kRecomputedDropout},
       // Backward comes to these before anything that it makes again.
       .spoils =
           [](const std::string& name) {
             return !absl::StartsWith(name, "ln_f") && name != "h.1.mlp.c_proj.bias";
           }},
      {.number = 28,
       .family = "random",
       .bug = "streams are restored wrongly",
       .source = "Megatron-LM #2658, #6858",
       .planted = "engine: after a resume dropout draws the masks of the first step in each one",
       .job = {.model = {.layers = 2, .dropout = 0.2}, .layout = {.data = 2}, .resumes = true},
       .plant = {.mutation = Mutation::kMasksRestart},
       .spoils = Everything},
      {.number = 29,
       .family = "random",
       .bug = "masks differ over tensor ranks",
       .source = "no single thread",
       .planted = "engine: each tensor rank draws by its own seed",
       .job = {.model = {.layers = 2, .dropout = 0.2}, .layout = {.tensor = 2}},
       .plant = {.mutation = Mutation::kDropoutPerTensorRank},
       .spoils = Everything},
  };
}

// One fused matrix of gate over up, cut by rows: the first rank gets the gate, the second the up.
void CutFusedRows(const Place& place, Shards& shards) {
  for (checkpoint::StateShard& shard : shards) {
    const bool gate = absl::StrContains(shard.name, ".gate_proj.");
    const bool up = absl::StrContains(shard.name, ".up_proj.");
    if (!gate && !up) continue;
    layout::Interval& rows = shard.shard.box.dims[0];
    const int64_t count = rows.size();
    if (place.at.tensor == 0 && up) {
      shard.name = absl::StrReplaceAll(shard.name, {{".up_proj.", ".gate_proj."}});
      rows = {count, 2 * count};
    } else if (place.at.tensor == 1 && gate) {
      shard.name = absl::StrReplaceAll(shard.name, {{".gate_proj.", ".up_proj."}});
      rows = {0, count};
    }
  }
}

// Of four layers on two stages the second stage names its own 0 and 1.
void NameByStage(const Place& place, Shards& shards) {
  if (place.at.pipeline == 0) return;
  for (checkpoint::StateShard& shard : shards) {
    for (const auto& [layer, local] : {std::pair("h.2.", "h.0."), std::pair("h.3.", "h.1.")}) {
      if (absl::StartsWith(shard.name, layer)) {
        shard.name = std::string(local) + std::string(absl::StripPrefix(shard.name, layer));
      }
    }
  }
}

std::vector<Kind> Cuts() {
  return {
      {.number = 30,
       .family = "cut",
       .bug = "layers that the stages do not divide are dropped",
       .source = "Megatron-LM #1304, #2718",
       .planted = "plan: the last stage ends one layer early; job: one layer less is trained",
       .job = {.model = {.layers = 3}, .layout = {.pipeline = 2}},
       .plant = {.job =
                     [](v1::JobSpec& job) {
                       v1::ModelConfig& config = *job.mutable_model()->mutable_config();
                       config.set_num_hidden_layers(config.num_hidden_layers() - 1);
                     },
                 .plan = DropLastLayer,
                 .runs_plan = false},
       .spoils = Everything,
       .names = {"3 layers"}},
      {.number = 31,
       .family = "cut",
       .bug = "fused gate and up are cut as one matrix",
       .source = "Megatron-LM #520",
       .planted = "restore: one tensor rank gets all of the gate, the other all of up",
       .job = {.model = {.family = "llama", .layers = 2},
               .layout = {.tensor = 2},
               .tweak =
                   [](v1::JobSpec& job) {
                     job.mutable_model()->mutable_config()->set_intermediate_size(20);
                   },
               .resumes = true},
       .plant = {.restore = CutFusedRows},
       .spoils =
           [](const std::string& name) {
             return absl::StrContains(name, ".gate_proj.") || absl::StrContains(name, ".up_proj.");
           }},
      {.number = 32,
       .family = "cut",
       .bug = "names local to a stage load other layers",
       .source = "Megatron-LM #7452",
       .planted = "restore: the second stage asks for its layers from 0 on",
       .job = {.model = {.layers = 4}, .layout = {.pipeline = 2}, .resumes = true},
       .plant = {.restore = NameByStage},
       .spoils =
           [](const std::string& name) {
             return absl::StrContains(name, " h.2.") || absl::StrContains(name, " h.3.");
           }},
  };
}

}  // namespace

std::vector<Kind> KindsOfPlans() {
  std::vector<Kind> kinds = Stales();
  for (const auto& more : {Randoms(), Cuts()}) kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

}  // namespace trireme::silent_bugs
