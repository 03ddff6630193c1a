// Shapes whose temporaries are largest on another tensor coordinate than the first: they once
// overflowed into the next pool, silently. Parity against one rank, and a plan whose slots are too
// small is refused before anything runs.
#include <catch2/catch.hpp>
#include <mutex>
#include <string>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

using Catch::Contains;

struct Shape {
  int64_t heads, head_dim, intermediate, vocabulary, layers;
  int64_t tensor, pipeline, micro_batch, tokens;
  double dropout;
};

v1::JobSpec JobOf(const Shape& shape) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_attention_heads(shape.heads);
  config.set_hidden_size(shape.heads * shape.head_dim);
  config.set_intermediate_size(shape.intermediate);
  config.set_vocab_size(shape.vocabulary);
  config.set_num_hidden_layers(shape.layers);
  config.set_max_position_embeddings(64);
  config.set_embd_pdrop(shape.dropout);
  config.set_attn_pdrop(shape.dropout);
  config.set_resid_pdrop(shape.dropout);
  config.set_initializer_range(0.1);
  job.mutable_data()->set_sequence_length(shape.tokens);
  job.mutable_training()->set_micro_batch_size(shape.micro_batch);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_training()->set_dtype("f32");
  spec::ApplyDefaults(job);
  return job;
}

v1::JobSpec Split(v1::JobSpec job, const Shape& shape) {
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(shape.tensor);
  parallelism.set_pipeline_parallel_size(shape.pipeline);
  parallelism.set_sequence_parallel(true);
  parallelism.set_schedule("1f1b");
  return job;
}

constexpr Shape kSecondNeedsMost = {10, 21, 329, 55, 6, 3, 3, 2, 15, 0};
constexpr Shape kFourthNeedsMost = {6, 22, 261, 58, 4, 6, 2, 4, 18, 0.1};

}  // namespace

TEST_CASE("uneven shapes: temporaries largest on a later tensor coordinate give one rank's sums") {
  for (const Shape& shape : {kSecondNeedsMost, kFourthNeedsMost}) {
    const v1::JobSpec job = JobOf(shape);
    const auto dataset = MakeRandomDataset(shape.vocabulary, shape.tokens);
    const LayoutRunOptions options{.steps = 1, .evaluate = true};
    const auto one = RunLayout(job, 1, *dataset, options);
    REQUIRE(one.ok());
    const int ranks = static_cast<int>(shape.tensor * shape.pipeline);
    const auto split = RunLayout(Split(job, shape), ranks, *dataset, options);
    INFO(split.status().ToString());
    REQUIRE(split.ok());
    CHECK(FaultsOf(*split, *one, 1e-6) == "");
  }
}

TEST_CASE("uneven shapes: a plan with a slot too small is refused where it would run") {
  const Shape& shape = kSecondNeedsMost;
  v1::JobSpec job = Split(JobOf(shape), shape);
  job.mutable_parallelism()->set_schedule("zb-h1");
  const auto plan = plan::MakePlan(job, 9);
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(shape.vocabulary, shape.tokens);
  for (const v1::PoolKind kind : {v1::ACTIVATION, v1::STASH, v1::GRADIENT_STASH, v1::INPUT,
                                  v1::OUTPUT, v1::GRADIENT_IN, v1::GRADIENT_OUT, v1::TEMPORARY}) {
    v1::Plan broken = *plan;
    for (v1::Pool& pool : *broken.mutable_stages(1)->mutable_pools()) {
      if (pool.kind() == kind) pool.set_slot_bytes(pool.slot_bytes() - 64);
    }
    std::mutex mutex;
    std::string refusals;
    comm::RunRanks(9, [&](comm::Fabric& fabric) {
      const auto engine = Engine::Create(broken, fabric, *dataset, OptionsOf(job));
      const std::lock_guard lock(mutex);
      if (engine.status().code() == absl::StatusCode::kInternal) {
        refusals += std::string(engine.status().message());
      }
      return absl::OkStatus();
    });
    CHECK_THAT(refusals, Contains("stage 1, virtual stage 0, tensor coordinate ") &&
                             Contains("pool " + v1::PoolKind_Name(kind)) &&
                             Contains("the plan gives"));
  }
}

}  // namespace trireme::engine
