// A job of the size of the largest models, and one for four ranks.
#pragma once

#include "runtime/spec/job_spec.h"

namespace trireme::plan {

// On 3,072 ranks: 96 stages of 4 replicas of 8 tensor ranks.
inline v1::JobSpec LargeJob() {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_hidden_size(12288);
  config.set_num_hidden_layers(96);
  config.set_num_attention_heads(96);
  config.set_vocab_size(50257);
  config.set_max_position_embeddings(2048);
  job.mutable_data()->set_sequence_length(2048);
  job.mutable_training()->set_global_batch_size(1536);
  job.mutable_training()->set_micro_batch_size(1);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(8);
  parallelism.set_pipeline_parallel_size(96);
  parallelism.set_schedule("zb-h1");
  parallelism.set_sequence_parallel(true);
  parallelism.set_zero_stage(1);
  spec::ApplyDefaults(job);
  return job;
}

// On 4 ranks: 2 stages of 2 replicas.
inline v1::JobSpec SmallJob() {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_hidden_size(16);
  config.set_num_hidden_layers(2);
  config.set_num_attention_heads(2);
  config.set_vocab_size(29);
  config.set_max_position_embeddings(8);
  job.mutable_data()->set_sequence_length(8);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_parallelism()->set_pipeline_parallel_size(2);
  spec::ApplyDefaults(job);
  return job;
}

}  // namespace trireme::plan
