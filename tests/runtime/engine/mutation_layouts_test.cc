// The bug kinds of ZeRO-2 and ZeRO-3, recomputing, offload, tiles of logits and
// node memory once more on layouts of eight ranks, drawn from all that such a bug can act in, in
// both families: what turns red does not depend on what else is in a layout.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/bucket_names.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

namespace {

constexpr int kRanksOfDrawn = 8;
constexpr int64_t kDrawnLayers = 4;

// What is drawn: a layout and a family.
struct Drawn {
  Layout layout;
  std::string family;
  // Of its plan, where it runs.
  std::set<std::string> of_first_buckets = {}, behind_swaps = {};
};

struct Mutant {
  const char* name;
  Mutation mutation;
  std::function<bool(const Drawn&)> acts;
  // Parameters whose first gradient must be red, and whose weights after the last step; the
  // others' must be green.
  std::function<bool(const Drawn&, const std::string&)> gradient;
  std::function<bool(const Drawn&, const std::string&)> weight;
  double dropout = 0;  // of gpt2
  int64_t vocabulary = 29;
  size_t window_bytes = 0;
  bool in_first_bucket = false;  // of each stage; else in all
};

bool NoTensor(const Drawn&, const std::string&) { return false; }
bool EachTensor(const Drawn&, const std::string&) { return true; }

int64_t MicroBatches(const Layout& layout) {
  return (8 / layout.data + layout.micro_batch - 1) / layout.micro_batch;
}

bool IsOfHead(const Drawn& drawn, const std::string& name) {
  return name == (drawn.family == "gpt2" ? "wte.weight" : "lm_head.weight");
}

bool IsOfVocabulary(const Drawn& drawn, const std::string& name) {
  return IsOfHead(drawn, name) || name == "model.embed_tokens.weight";
}

// Backward comes to the last layer's first: what it has not yet made again is sound.
bool IsBehindRecomputed(const Drawn& drawn, const std::string& name) {
  const std::string last = absl::StrCat("h.", kDrawnLayers - 1, ".");
  if (absl::StartsWith(name, "ln_f") || name == last + "mlp.c_proj.bias") return false;
  if (drawn.layout.recompute == "full") return true;
  return !absl::StartsWith(name, last + "mlp") && !absl::StartsWith(name, last + "ln_2") &&
         name != last + "attn.c_proj.bias";
}

bool IsOfFirstBucket(const Drawn& drawn, const std::string& name) {
  return drawn.of_first_buckets.contains(name);
}

Mutant InFirstBucket(const char* name, Mutation mutation, std::function<bool(const Drawn&)> acts) {
  return {.name = name,
          .mutation = mutation,
          .acts = std::move(acts),
          .gradient = IsOfFirstBucket,
          .weight = IsOfFirstBucket,
          .in_first_bucket = true};
}

// Parameters of the stages whose activations move, and of those before, which backward comes to
// later. It comes to the last bias of a stage with what the next one sends alone.
std::set<std::string> BehindSwaps(const v1::Plan& plan) {
  const auto graph = model::BuildModel(plan.job().model().config());
  REQUIRE(graph.ok());
  std::set<std::string> behind;
  for (uint32_t stage = plan.mesh().pipeline(); stage-- > 0;) {
    uint32_t slots = 0;
    for (const v1::Pool& pool : plan.stages(static_cast<int>(stage)).pools()) {
      if (pool.kind() == v1::STORED) slots += pool.slots();
    }
    // There would be no other to take it from.
    REQUIRE(slots != 1);
    if (behind.empty() && slots == 0) continue;
    std::set<std::string> own;
    std::string last_bias;
    for (const plan::StatePlace& place : plan::LowerStage(plan, *graph, stage).state.places) {
      const std::string& name = graph->parameters[place.parameter].name;
      own.insert(name);
      if (absl::EndsWith(name, "mlp.c_proj.bias")) last_bias = std::max(last_bias, name);
    }
    if (behind.empty() && stage + 1 < plan.mesh().pipeline()) own.erase(last_bias);
    behind.merge(own);
  }
  return behind;
}

bool IsBehindSwaps(const Drawn& drawn, const std::string& name) {
  return drawn.behind_swaps.contains(name);
}

bool Replicated(const Drawn& drawn, int64_t zero) {
  return drawn.layout.data > 1 && drawn.layout.zero >= zero;
}

std::vector<Mutant> Mutants() {
  return {
      {"weights are not gathered", Mutation::kStaleGather,
       [](const Drawn& drawn) { return Replicated(drawn, 3); }, EachTensor, EachTensor},
      {"gathered to another's place", Mutation::kWrongGatheredPlace,
       [](const Drawn& drawn) { return Replicated(drawn, 3); }, EachTensor, EachTensor},
      InFirstBucket("the neighbour's share", Mutation::kShareOfAnother,
                    [](const Drawn& drawn) { return Replicated(drawn, 2); }),
      InFirstBucket("the last micro-batch alone", Mutation::kLastMicroBatchOnly,
                    [](const Drawn& drawn) {
                      return Replicated(drawn, 2) && MicroBatches(drawn.layout) > 1;
                    }),
      {"other dropout", Mutation::kRecomputedDropout,
       [](const Drawn& drawn) {
         return drawn.family == "gpt2" && drawn.layout.recompute != "none";
       },
       IsBehindRecomputed, EachTensor, 0.2},
      {"rows counted from zero", Mutation::kRowOffsetIgnored,
       [](const Drawn& drawn) {
         // Rows tell positions, which are learnt of gpt2 alone.
         return drawn.family == "gpt2" && drawn.layout.sequence_parallel &&
                drawn.layout.micro_batch == 1;
       },
       EachTensor, EachTensor},
      {"another's activations", Mutation::kSwappedFromAnother,
       [](const Drawn& drawn) {
         const Layout& layout = drawn.layout;
         const bool long_lived = layout.schedule == "gpipe" ||
                                 (layout.pipeline > 3 && layout.schedule != "interleaved");
         // Where all layers of a stage are one and made again, nothing is kept that could move.
         return layout.offload_activations != "none" && long_lived && MicroBatches(layout) > 3 &&
                (layout.recompute != "full" || layout.pipeline < kDrawnLayers);
       },
       IsBehindSwaps, EachTensor},
      {"moments are not written back", Mutation::kPieceNotWrittenBack,
       [](const Drawn& drawn) { return drawn.layout.offload_state != "none"; }, NoTensor,
       EachTensor},
      {"another piece's moments", Mutation::kPieceOfAnother,
       [](const Drawn& drawn) {
         return drawn.layout.offload_state != "none" && drawn.layout.data == 1;
       },
       NoTensor, EachTensor},
      {"another tile's rows", Mutation::kTileRowsOfFirst,
       [](const Drawn& drawn) { return drawn.layout.loss_tile == 4; }, IsOfHead, EachTensor},
      {"another tile's sums", Mutation::kTileLossOfFirst,
       [](const Drawn& drawn) { return drawn.layout.loss_tile == 4; }, EachTensor, EachTensor},
      {"a replica left out", Mutation::kReplicaLeftOut,
       [](const Drawn& drawn) {
         return drawn.layout.data > 1 && drawn.layout.pipeline == 1 && drawn.layout.zero < 2;
       },
       IsOfVocabulary, EachTensor, 0, 1997, size_t{512} << 10},
      {"replicas twice", Mutation::kReplicasSummedTwice,
       [](const Drawn& drawn) {
         return drawn.layout.data > 1 && drawn.layout.pipeline == 1 && drawn.layout.zero < 1;
       },
       IsOfVocabulary, EachTensor, 0, 1997, size_t{512} << 10},
  };
}

bool HasMeaning(const Drawn& drawn) {
  const Layout& layout = drawn.layout;
  const bool interleaved = layout.schedule == "interleaved";
  if (layout.sequence_parallel && (layout.tensor == 1 || layout.micro_batch * 5 < layout.tensor)) {
    return false;
  }
  return layout.tensor <= (drawn.family == "gpt2" ? 9 : 5) &&
         layout.pipeline * (interleaved ? 2 : 1) <= kDrawnLayers &&
         (!interleaved || layout.pipeline > 1);
}

// Of all products one in each class of a hash, so that every mutant has many to be drawn from.
std::vector<Drawn> AllDrawn() {
  std::vector<Drawn> all;
  uint32_t index = 0;
  const auto of = [&](std::initializer_list<const char*> choices, uint32_t salt) {
    const uint32_t hash = (index * 2654435761u + salt * 40503u) >> 9;
    return std::string(choices.begin()[hash % choices.size()]);
  };
  for (const auto& [data, tensor, pipeline] : std::vector<std::array<int64_t, 3>>{{8, 1, 1},
                                                                                  {4, 2, 1},
                                                                                  {4, 1, 2},
                                                                                  {2, 4, 1},
                                                                                  {2, 2, 2},
                                                                                  {2, 1, 4},
                                                                                  {1, 8, 1},
                                                                                  {1, 4, 2},
                                                                                  {1, 2, 4}}) {
    for (const bool sequence : {false, true}) {
      for (const char* schedule : {"zb-h1", "interleaved", "gpipe", "1f1b"}) {
        for (int64_t zero = 0; zero < 4; ++zero) {
          for (const int64_t micro_batch : {1, 2}) {
            for (const char* family : {"gpt2", "llama"}) {
              ++index;
              Drawn drawn{{data, tensor, pipeline, sequence, schedule, zero}, family};
              drawn.layout.recompute = of({"full", "none", "selective"}, 1);
              drawn.layout.offload_state = of({"file", "none", "host"}, 2);
              drawn.layout.offload_activations = of({"host", "file", "none"}, 3);
              drawn.layout.micro_batch = micro_batch;
              drawn.layout.loss_tile = of({"4", "0"}, 4) == "4" ? 4 : 0;
              if (HasMeaning(drawn)) all.push_back(drawn);
            }
          }
        }
      }
    }
  }
  return all;
}

v1::JobSpec JobOfDrawn(const Drawn& drawn, const Mutant& mutant) {
  v1::JobSpec job = JobFor(drawn.layout, {.family = drawn.family,
                                          .layers = kDrawnLayers,
                                          .dropout = drawn.family == "gpt2" ? mutant.dropout : 0});
  job.mutable_model()->mutable_config()->set_vocab_size(mutant.vocabulary);
  job.mutable_offload()->set_piece_bytes(1024);
  job.mutable_runtime()->set_replica_check_steps(0);
  if (mutant.in_first_bucket) job.mutable_optimizer()->set_gradient_clip_norm(0);
  return job;
}

std::string NamesApart(const Tensors& sick, const Tensors& sound, const Drawn& drawn,
                       const std::function<bool(const Drawn&, const std::string&)>& red) {
  const auto over = Differences(sick, sound, NormOf(sound), 1e-12);
  std::string text;
  for (const auto& [name, values] : sound) {
    if (over.contains(name) == red(drawn, name)) continue;
    absl::StrAppend(&text, " ", name, red(drawn, name) ? " is green" : " is red");
  }
  return text;
}

// `count` of the layouts in which the mutant acts, spread over all of them.
void CheckMutant(const Mutant& mutant, size_t count) {
  const OnOneProcessor one;
  static const std::vector<Drawn> all = AllDrawn();
  std::vector<Drawn> able;
  std::copy_if(all.begin(), all.end(), std::back_inserter(able), mutant.acts);
  REQUIRE(able.size() >= count);
  const auto dataset = MakeRandomDataset(mutant.vocabulary, 5);
  std::map<std::string, LayoutResult> references;
  const auto seed = static_cast<size_t>(mutant.mutation);
  for (size_t at = 0; at < count; ++at) {
    Drawn drawn = able[(at * able.size() / count + seed) % able.size()];
    INFO(mutant.name << ": " << drawn.family << " " << drawn.layout.Name());
    const auto plan = plan::MakePlan(JobOfDrawn(drawn, mutant), kRanksOfDrawn);
    REQUIRE(plan.ok());
    // One step that does not clip: other weights do not follow.
    LayoutRunOptions options{.steps = mutant.in_first_bucket ? 1 : 3};
    if (mutant.in_first_bucket) drawn.of_first_buckets = OfFirstBuckets(*plan);
    if (mutant.mutation == Mutation::kSwappedFromAnother) {
      drawn.behind_swaps = BehindSwaps(*plan);
      REQUIRE(!drawn.behind_swaps.empty());
    }
    if (!references.contains(drawn.family)) {
      const Drawn single{{.micro_batch = 8}, drawn.family};
      const auto reference = RunLayout(JobOfDrawn(single, mutant), 1, *dataset, options);
      REQUIRE(reference.ok());
      references[drawn.family] = *reference;
    }
    const LayoutResult& sound = references[drawn.family];
    options.mutation = mutant.mutation;
    options.mutated_bucket = mutant.in_first_bucket ? 0 : kEachBucket;
    options.transport.fabric.window_bytes = mutant.window_bytes;
    const auto sick = RunLayout(JobOfDrawn(drawn, mutant), kRanksOfDrawn, *dataset, options);
    INFO(sick.status().ToString());
    REQUIRE(sick.ok());
    CHECK(NamesApart(sick->gradients, sound.gradients, drawn, mutant.gradient) == "");
    CHECK(NamesApart(sick->weights, sound.weights, drawn, mutant.weight) == "");
  }
}

}  // namespace

TEST_CASE("mutation: each new mechanism's on a layout of eight ranks") {
  // Its numbers are no sanitizer's business.
  size_t index = 0;
  for (const Mutant& mutant : Mutants()) {
    if (!tests::kSanitizer || index++ % 4 == 0) CheckMutant(mutant, 1);
  }
}

TEST_CASE("mutation: each new mechanism's on twelve layouts of eight ranks", "[slow][products]") {
  for (const Mutant& mutant : Mutants()) CheckMutant(mutant, 12);
}

}  // namespace trireme::engine
