// Known bug kinds, planted one at a time: each must turn exactly the parameters red that it spoils.
// A parity suite that does not see these proves nothing.
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/bucket_names.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

struct Case {
  Mutation mutation;
  int64_t data = 1, tensor = 1, pipeline = 1;
  bool sequence_parallel = false;
  int64_t zero = 0;
  double dropout = 0;
  std::string recompute = "none";
  std::string schedule = "1f1b";
  std::string offload = "none";
  int steps = 3;
  int64_t micro_batch = 2;
  int64_t loss_tile = 0;
  int64_t vocabulary = 29;
  size_t window_bytes = 0;        // of the replicas' node memory
  uint32_t bucket = kEachBucket;  // in which it is planted
  bool clips = true;              // where not, a gradient moves its own weights alone in a step
  // Parameters whose first gradient, or whose weights after three steps, must be red; the others'
  // must be green.
  std::function<bool(const std::string&)> gradient;
  std::function<bool(const std::string&)> weight;
};

bool None(const std::string&) { return false; }
bool All(const std::string&) { return true; }
bool IsEmbedding(const std::string& name) { return name == "wte.weight"; }
bool IsTied(const std::string& name) { return name == "wte.weight"; }
// What each rank of a tensor group sums over its own rows only.
bool IsRowSummed(const std::string& name) {
  return absl::StrContains(name, "ln_") || absl::EndsWith(name, "c_proj.bias") ||
         name == "wpe.weight";
}
// Biases start at zero, where the first step's decay changes nothing.
bool IsNormWeight(const std::string& name) {
  return absl::StrContains(name, "ln_") && absl::EndsWith(name, ".weight");
}

v1::JobSpec JobFor(const Case& test) {
  v1::JobSpec job = TinyJob({.family = "gpt2", .layers = 2, .dropout = test.dropout});
  job.mutable_model()->mutable_config()->set_vocab_size(test.vocabulary);
  job.mutable_training()->set_loss_tile_rows(test.loss_tile);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_data_parallel_size(test.data);
  parallelism.set_tensor_parallel_size(test.tensor);
  parallelism.set_pipeline_parallel_size(test.pipeline);
  parallelism.set_sequence_parallel(test.sequence_parallel);
  parallelism.set_zero_stage(test.zero);
  parallelism.add_recompute(test.recompute);
  parallelism.set_schedule(test.schedule);
  job.mutable_offload()->set_optimizer_state(test.offload);
  job.mutable_offload()->set_activations(test.offload);
  job.mutable_offload()->set_piece_bytes(1024);
  job.mutable_training()->set_micro_batch_size(test.micro_batch);
  if (!test.clips) job.mutable_optimizer()->set_gradient_clip_norm(0);
  // Some of these bugs make replicas differ; here it is the numbers that must show them.
  job.mutable_runtime()->set_replica_check_steps(0);
  return job;
}

// Parameters all of whose elements lie in the first `count` pieces of their bucket's shares; of a
// job with replicas alone.
std::set<std::string> OfFirstPieces(const Case& test, int64_t count) {
  const auto ranks = static_cast<int>(test.data);
  const auto plan = plan::MakePlan(JobFor(test), ranks);
  REQUIRE(plan.ok());
  const auto graph = model::BuildModel(plan->job().model().config());
  REQUIRE(graph.ok());
  const plan::StateLayout state = plan::LowerForRank(*plan, *graph, {}).state;
  const int64_t firsts = count * plan::PieceElements(*plan, state.buckets);
  std::set<std::string> names;
  for (const plan::StatePlace& place : state.places) {
    const v1::Bucket& bucket = state.buckets[place.bucket];
    const int64_t share = static_cast<int64_t>(bucket.count()) / test.data;
    const graph::Parameter& parameter = graph->parameters[place.parameter];
    const int64_t begin = place.offset - static_cast<int64_t>(bucket.offset());
    const int64_t end = begin + layout::Box::Whole(parameter.shape).elements();
    bool first = true;
    for (int64_t at = begin; at < end; ++at) first = first && at % share < firsts;
    if (first) names.insert(parameter.name);
  }
  return names;
}

std::set<std::string> Names(const std::map<std::string, double>& over) {
  std::set<std::string> names;
  for (const auto& [name, worst] : over) names.insert(name);
  return names;
}

std::set<std::string> Expected(const Tensors& tensors,
                               const std::function<bool(const std::string&)>& red) {
  std::set<std::string> names;
  for (const auto& [name, values] : tensors) {
    if (red(name)) names.insert(name);
  }
  return names;
}

void Check(const Case& test) {
  const auto dataset = MakeRandomDataset(test.vocabulary, 5);
  v1::JobSpec single = TinyJob({.family = "gpt2", .layers = 2, .dropout = test.dropout});
  single.mutable_model()->mutable_config()->set_vocab_size(test.vocabulary);
  if (!test.clips) single.mutable_optimizer()->set_gradient_clip_norm(0);
  comm::LocalOptions transport;
  transport.fabric.window_bytes = test.window_bytes;
  const auto reference = RunLayout(single, 1, *dataset, {.steps = test.steps});
  REQUIRE(reference.ok());
  const int ranks = static_cast<int>(test.data * test.tensor * test.pipeline);
  const auto healthy =
      RunLayout(JobFor(test), ranks, *dataset, {.steps = test.steps, .transport = transport});
  INFO(healthy.status().ToString());
  REQUIRE(healthy.ok());
  const double gradient_norm = NormOf(reference->gradients);
  const double weight_norm = NormOf(reference->weights);
  CHECK(Names(Differences(healthy->gradients, reference->gradients, gradient_norm, 1e-12)).empty());
  CHECK(Names(Differences(healthy->weights, reference->weights, weight_norm, 1e-12)).empty());
  const auto sick = RunLayout(JobFor(test), ranks, *dataset,
                              {.steps = test.steps,
                               .transport = transport,
                               .mutation = test.mutation,
                               .mutated_bucket = test.bucket});
  REQUIRE(sick.ok());
  CHECK(Names(Differences(sick->gradients, reference->gradients, gradient_norm, 1e-12)) ==
        Expected(reference->gradients, test.gradient));
  CHECK(Names(Differences(sick->weights, reference->weights, weight_norm, 1e-12)) ==
        Expected(reference->weights, test.weight));
}

// Planted in the first bucket alone: over three steps all weights follow, in one without clipping
// none but its own.
void CheckFirstBucket(Case test) {
  const auto plan = plan::MakePlan(JobFor(test), static_cast<int>(test.data));
  REQUIRE(plan.ok());
  const std::set<std::string> first = OfFirstBuckets(*plan);
  test.bucket = 0;
  test.gradient = [&first](const std::string& name) { return first.contains(name); };
  test.weight = All;
  Check(test);
  test.steps = 1;
  test.clips = false;
  test.weight = test.gradient;
  Check(test);
}

}  // namespace

TEST_CASE("mutation: missing sum over the tensor group under sequence parallelism") {
  Check({.mutation = Mutation::kMissingSequenceParallelReduce,
         .tensor = 2,
         .sequence_parallel = true,
         .gradient = IsRowSummed,
         .weight = All});
}

TEST_CASE("mutation: tied embedding summed twice") {
  Check(
      {.mutation = Mutation::kTiedCountedTwice, .pipeline = 2, .gradient = IsTied, .weight = All});
}

TEST_CASE("mutation: tied embedding not summed") {
  Check({.mutation = Mutation::kTiedNotSummed, .pipeline = 2, .gradient = IsTied, .weight = All});
}

TEST_CASE("mutation: loss divided by the replica's own token count") {
  Check({.mutation = Mutation::kLocalTokenCount, .data = 2, .gradient = All, .weight = All});
}

TEST_CASE("mutation: clipping by the shard's own norm") {
  Check({.mutation = Mutation::kClipByShardNorm, .pipeline = 2, .gradient = None, .weight = All});
}

TEST_CASE("mutation: mean over the replicas taken twice") {
  Check({.mutation = Mutation::kDataMeanTwice, .data = 2, .gradient = All, .weight = All});
}

TEST_CASE("mutation: updated parameters not gathered under ZeRO") {
  Check(
      {.mutation = Mutation::kStaleGather, .data = 2, .zero = 1, .gradient = None, .weight = All});
}

TEST_CASE("mutation: weights not gathered before their use under ZeRO-3") {
  Check({.mutation = Mutation::kStaleGather, .data = 2, .zero = 3, .gradient = All, .weight = All});
}

TEST_CASE("mutation: weights gathered to the place of another bucket under ZeRO-3") {
  Check({.mutation = Mutation::kWrongGatheredPlace,
         .data = 2,
         .zero = 3,
         .gradient = All,
         .weight = All});
}

// Of one bucket; later steps follow its weights and, by the clipping, its norm.
TEST_CASE("mutation: a replica keeps the share of its neighbour under ZeRO-2") {
  CheckFirstBucket({.mutation = Mutation::kShareOfAnother, .data = 2, .zero = 2});
}

TEST_CASE("mutation: the last micro-batch's share replaces those before under ZeRO-2") {
  for (const int64_t zero : {2, 3}) {
    CheckFirstBucket({.mutation = Mutation::kLastMicroBatchOnly, .data = 2, .zero = zero});
  }
}

TEST_CASE("mutation: missing sum over the tensor group of shares") {
  Check({.mutation = Mutation::kMissingSequenceParallelReduce,
         .data = 2,
         .tensor = 2,
         .sequence_parallel = true,
         .zero = 3,
         .gradient = IsRowSummed,
         .weight = All});
}

TEST_CASE("mutation: tied embedding not summed of shares") {
  Check({.mutation = Mutation::kTiedNotSummed,
         .data = 2,
         .pipeline = 2,
         .zero = 2,
         .gradient = IsTied,
         .weight = All});
}

TEST_CASE("mutation: dropout streams differ over the tensor group") {
  Check({.mutation = Mutation::kDropoutPerTensorRank,
         .tensor = 2,
         .dropout = 0.2,
         .gradient = All,
         .weight = All});
}

TEST_CASE("mutation: weight gradients of the last micro-batch dropped") {
  Check({.mutation = Mutation::kSkippedMicroBatch, .data = 2, .gradient = All, .weight = All});
}

TEST_CASE("mutation: micro-batches overwrite instead of adding") {
  Check({.mutation = Mutation::kOverwrittenGradient, .tensor = 2, .gradient = All, .weight = All});
}

TEST_CASE("mutation: weight decay on norms and biases") {
  Check({.mutation = Mutation::kDecayEverything,
         .data = 2,
         .steps = 1,
         .gradient = None,
         .weight = IsNormWeight});
}

TEST_CASE("mutation: replicated gradients counted once per tensor rank in the norm") {
  Check(
      {.mutation = Mutation::kReplicatedNormCounted, .tensor = 2, .gradient = None, .weight = All});
}

TEST_CASE("mutation: input gradients left Partial over the tensor group") {
  Check(
      {.mutation = Mutation::kMissingBackwardReduce, .tensor = 2, .gradient = All, .weight = All});
}

TEST_CASE("mutation: what is recomputed draws other dropout than forward") {
  // Backward comes to these before anything that it makes again.
  Check({.mutation = Mutation::kRecomputedDropout,
         .data = 2,
         .dropout = 0.2,
         .recompute = "full",
         .gradient =
             [](const std::string& name) {
               return !absl::StartsWith(name, "ln_f") && name != "h.1.mlp.c_proj.bias";
             },
         .weight = All});
}

TEST_CASE("mutation: rows counted from zero on every rank under sequence parallelism") {
  // One sample of 5 tokens: the second rank begins inside it.
  Check({.mutation = Mutation::kRowOffsetIgnored,
         .tensor = 2,
         .sequence_parallel = true,
         .micro_batch = 1,
         .gradient = All,
         .weight = All});
}

TEST_CASE("mutation: activations of another micro-batch are brought back") {
  Check({.mutation = Mutation::kSwappedFromAnother,
         .pipeline = 2,
         .schedule = "gpipe",
         .offload = "file",
         .micro_batch = 1,
         .gradient = All,
         .weight = All});
}

// In the first step there are no moments yet.
TEST_CASE("mutation: updated moments are not written back") {
  for (const int steps : {1, 2}) {
    Check({.mutation = Mutation::kPieceNotWrittenBack,
           .offload = "host",
           .steps = steps,
           .gradient = None,
           .weight = steps == 1 ? None : All});
  }
}

// Two pieces come while another is updated, so the first three of a bucket come before the first
// has gone: with its moments of before, which in the first step are all zero.
TEST_CASE("mutation: a piece of the moments comes back for another") {
  Case test{.mutation = Mutation::kPieceOfAnother,
            .data = 2,
            .zero = 3,
            .offload = "file",
            .gradient = None,
            .weight = All};
  Check(test);
  test.steps = 1;
  const std::set<std::string> sound = OfFirstPieces(test, 3);
  CHECK(!sound.empty());
  test.weight = [&sound](const std::string& name) { return !sound.contains(name); };
  Check(test);
}

// The products of a tile spoil the head's weight alone, its softmax all that the loss depends on.
TEST_CASE("mutation: the head's gradient takes a tile of logits with the rows of another") {
  Check({.mutation = Mutation::kTileRowsOfFirst,
         .data = 2,
         .loss_tile = 4,
         .gradient = IsEmbedding,
         .weight = All});
}

TEST_CASE("mutation: a tile of logits has the log-sum-exp of another") {
  Check({.mutation = Mutation::kTileLossOfFirst,
         .tensor = 2,
         .loss_tile = 4,
         .gradient = All,
         .weight = All});
}

// The embedding is a bucket of its own, and large enough to be summed there.
TEST_CASE("mutation: a replica's part is left out of a sum in node memory") {
  for (const int64_t zero : {0, 1}) {
    Check({.mutation = Mutation::kReplicaLeftOut,
           .data = 2,
           .zero = zero,
           .vocabulary = 997,
           .window_bytes = size_t{256} << 10,
           .gradient = IsEmbedding,
           .weight = All});
  }
}

TEST_CASE("mutation: replicas are summed twice in node memory") {
  Check({.mutation = Mutation::kReplicasSummedTwice,
         .data = 3,
         .vocabulary = 997,
         .window_bytes = size_t{256} << 10,
         .gradient = IsEmbedding,
         .weight = All});
}

}  // namespace trireme::engine
