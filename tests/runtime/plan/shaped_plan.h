// Plans of a small model on any layout.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {

struct PlanShape {
  std::string family = "gpt2", schedule = "1f1b";
  int64_t layers = 8, tensor = 1, pipeline = 1, data = 2, zero = 0;
  int64_t micro_batches = 4;
  bool sequence_parallel = false;
  std::optional<bool> tie;  // else as the family has it
};

// Of small buckets where no stage of ZeRO makes a block one.
inline v1::Plan PlanOfShape(const PlanShape& shape) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type(shape.family);
  config.set_num_hidden_layers(shape.layers);
  config.set_hidden_size(24);
  config.set_num_attention_heads(4);
  config.set_vocab_size(50);
  config.set_max_position_embeddings(8);
  if (shape.tie) config.set_tie_word_embeddings(*shape.tie);
  job.mutable_data()->set_sequence_length(8);
  job.mutable_training()->set_global_batch_size(shape.micro_batches * shape.data);
  job.mutable_training()->set_micro_batch_size(1);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(shape.tensor);
  parallelism.set_pipeline_parallel_size(shape.pipeline);
  parallelism.set_sequence_parallel(shape.sequence_parallel);
  parallelism.set_schedule(shape.schedule);
  parallelism.set_zero_stage(shape.zero);
  parallelism.set_bucket_bytes(4096);
  spec::ApplyDefaults(job);
  const auto plan = MakePlan(job, static_cast<int>(shape.tensor * shape.pipeline * shape.data));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace trireme::plan
