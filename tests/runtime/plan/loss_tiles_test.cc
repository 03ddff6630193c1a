// No micro-batch in flight stores logits: what its slots hold does not depend on the vocabulary,
// and GPT-2 124M in bf16 fits 2.6 GB.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {
namespace {

struct HeadCase {
  std::string schedule = "1f1b", dtype = "f32";
  int64_t pipeline = 1, tensor = 1, vocabulary = 50257, micro_batches = 8, tile = 0;
};

v1::Plan PlanOf(const HeadCase& of) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_hidden_size(768);
  config.set_num_hidden_layers(12);
  config.set_num_attention_heads(12);
  config.set_vocab_size(of.vocabulary);
  config.set_max_position_embeddings(1024);
  job.mutable_data()->set_sequence_length(256);
  job.mutable_training()->set_global_batch_size(4 * of.micro_batches);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_training()->set_dtype(of.dtype);
  job.mutable_training()->set_loss_tile_rows(of.tile);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_pipeline_parallel_size(of.pipeline);
  parallelism.set_tensor_parallel_size(of.tensor);
  parallelism.set_schedule(of.schedule);
  spec::ApplyDefaults(job);
  auto plan = MakePlan(job, static_cast<int>(of.pipeline * of.tensor));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

// Of what a micro-batch keeps between its instructions, and of what travels.
bool IsOfMicroBatch(v1::PoolKind kind) {
  return (kind >= v1::ACTIVATION && kind <= v1::GRADIENT_OUT) || kind == v1::GRADIENT_STASH;
}

}  // namespace

TEST_CASE("loss tiles: what a micro-batch in flight keeps is the same for any vocabulary") {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (const std::string dtype : {"f32", "bf16"}) {
      for (const int64_t tensor : {1, 2}) {
        const int64_t pipeline = schedule == "interleaved" ? 2 : 1;
        INFO(schedule << ", " << dtype << ", " << tensor << " tensor ranks");
        const HeadCase large{
            .schedule = schedule, .dtype = dtype, .pipeline = pipeline, .tensor = tensor};
        HeadCase small = large;
        small.vocabulary = 64;
        const v1::Plan with = PlanOf(large), without = PlanOf(small);
        const int last = static_cast<int>(pipeline) - 1;
        const auto& pools = with.stages(last).pools();
        REQUIRE(pools.size() == without.stages(last).pools_size());
        int compared = 0;
        for (int index = 0; index < pools.size(); ++index) {
          const v1::Pool& pool = pools[index];
          const v1::Pool& other = without.stages(last).pools(index);
          REQUIRE(pool.kind() == other.kind());
          if (!IsOfMicroBatch(pool.kind())) continue;
          INFO(v1::PoolKind_Name(pool.kind()));
          CHECK(pool.slot_bytes() == other.slot_bytes());
          CHECK(pool.slots() == other.slots());
          compared += pool.slot_bytes() > 0 ? 1 : 0;
        }
        CHECK(compared > 0);
      }
    }
  }
}

TEST_CASE("loss tiles: more micro-batches in flight cost no logits") {
  const auto bytes = [](int64_t micro_batches, int64_t vocabulary) {
    return PlanOf({.schedule = "gpipe", .vocabulary = vocabulary, .micro_batches = micro_batches})
        .stages(0)
        .arena_bytes();
  };
  CHECK(bytes(16, 50257) - bytes(2, 50257) == bytes(16, 64) - bytes(2, 64));
}

TEST_CASE("loss tiles: GPT-2 124M in bf16, four samples of 256 tokens, takes at most 2.6 GB") {
  const v1::Plan plan = PlanOf({.dtype = "bf16", .micro_batches = 1});
  CHECK(plan.stages(0).arena_bytes() <= 2'600'000'000);
  const v1::Plan smaller = PlanOf({.dtype = "bf16", .micro_batches = 1, .tile = 256});
  CHECK(smaller.stages(0).arena_bytes() <= 2'500'000'000);
}

}  // namespace trireme::plan
