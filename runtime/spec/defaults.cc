// The only place with default values. Models take those of Hugging Face's GPT2Config and
// LlamaConfig.
#include <algorithm>

#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

// Sets the field `name` of `message` unless it is present.
#define TRIREME_DEFAULT(message, name, value) \
  if (!(message).has_##name()) (message).set_##name(value)

void Gpt2Defaults(v1::ModelConfig& model) {
  TRIREME_DEFAULT(model, hidden_size, 768);
  TRIREME_DEFAULT(model, num_hidden_layers, 12);
  TRIREME_DEFAULT(model, num_attention_heads, 12);
  TRIREME_DEFAULT(model, max_position_embeddings, 1024);
  TRIREME_DEFAULT(model, intermediate_size,
                  4 * std::clamp<int64_t>(model.hidden_size(), 1, 1 << 20));
  TRIREME_DEFAULT(model, norm_epsilon, 1e-5);
  TRIREME_DEFAULT(model, tie_word_embeddings, true);
  TRIREME_DEFAULT(model, bias, true);
  TRIREME_DEFAULT(model, embd_pdrop, 0.1);
  TRIREME_DEFAULT(model, attn_pdrop, 0.1);
  TRIREME_DEFAULT(model, resid_pdrop, 0.1);
}

void LlamaDefaults(v1::ModelConfig& model) {
  TRIREME_DEFAULT(model, hidden_size, 4096);
  TRIREME_DEFAULT(model, num_hidden_layers, 32);
  TRIREME_DEFAULT(model, num_attention_heads, 32);
  TRIREME_DEFAULT(model, max_position_embeddings, 2048);
  TRIREME_DEFAULT(model, intermediate_size, 11008);
  TRIREME_DEFAULT(model, norm_epsilon, 1e-6);
  TRIREME_DEFAULT(model, tie_word_embeddings, false);
  TRIREME_DEFAULT(model, bias, false);
  TRIREME_DEFAULT(model, embd_pdrop, 0.0);
  TRIREME_DEFAULT(model, attn_pdrop, 0.0);
  TRIREME_DEFAULT(model, resid_pdrop, 0.0);
}

void ModelDefaults(v1::ModelConfig& model) {
  if (model.model_type() == "gpt2") {
    Gpt2Defaults(model);
  } else if (model.model_type() == "llama") {
    LlamaDefaults(model);
  } else {
    return;  // Validate names the families
  }
  TRIREME_DEFAULT(model, num_key_value_heads,
                  std::clamp<int64_t>(model.num_attention_heads(), 1, 1 << 16));
  // Where heads do not divide the width there is no default: the job gives one, or HeadsDivide
  // asks.
  if (model.num_attention_heads() > 0 && model.hidden_size() % model.num_attention_heads() == 0) {
    TRIREME_DEFAULT(
        model, head_dim,
        std::clamp<int64_t>(model.hidden_size() / model.num_attention_heads(), 1, 1 << 16));
  }
  TRIREME_DEFAULT(model, vocab_size, 0);
  TRIREME_DEFAULT(model, rope_theta, 10000.0);
  TRIREME_DEFAULT(model, initializer_range, 0.02);
}

void OptimizerDefaults(v1::OptimizerSpec& optimizer, int64_t steps) {
  TRIREME_DEFAULT(optimizer, learning_rate, 1e-3);
  TRIREME_DEFAULT(optimizer, min_learning_rate, std::max(0.0, optimizer.learning_rate() / 10));
  TRIREME_DEFAULT(optimizer, schedule, "cosine");
  if (optimizer.decay_steps() == 0) optimizer.set_decay_steps(std::max<int64_t>(1, steps));
  TRIREME_DEFAULT(optimizer, warmup_steps, std::clamp<int64_t>(steps / 10, 0, 100));
  TRIREME_DEFAULT(optimizer, beta1, 0.9);
  TRIREME_DEFAULT(optimizer, beta2, 0.95);
  TRIREME_DEFAULT(optimizer, epsilon, 1e-8);
  TRIREME_DEFAULT(optimizer, weight_decay, 0.1);
  TRIREME_DEFAULT(optimizer, gradient_clip_norm, 1.0);
}

void ParallelismDefaults(v1::ParallelismSpec& parallelism) {
  TRIREME_DEFAULT(parallelism, data_parallel_size, 0);
  TRIREME_DEFAULT(parallelism, tensor_parallel_size, 1);
  TRIREME_DEFAULT(parallelism, pipeline_parallel_size, 1);
  TRIREME_DEFAULT(parallelism, sequence_parallel, false);
  TRIREME_DEFAULT(parallelism, zero_stage, 0);
  TRIREME_DEFAULT(parallelism, schedule, "1f1b");
  TRIREME_DEFAULT(parallelism, virtual_stages, parallelism.schedule() == "interleaved" ? 2 : 1);
  TRIREME_DEFAULT(parallelism, bucket_bytes, 4 << 20);
}

void RuntimeDefaults(v1::RuntimeSpec& runtime, bool reference) {
  TRIREME_DEFAULT(runtime, runs_directory, "runs");
  TRIREME_DEFAULT(runtime, threads, 0);
  TRIREME_DEFAULT(runtime, deadline_seconds, 60.0);
  TRIREME_DEFAULT(runtime, kernels, reference ? "reference" : "cpu");
  TRIREME_DEFAULT(runtime, log_every_steps, 1);
  TRIREME_DEFAULT(runtime, trace_steps, 2);
  TRIREME_DEFAULT(runtime, asynchronous_streams, false);
  TRIREME_DEFAULT(runtime, replica_check_steps, 100);
}

void ResourceDefaults(v1::ResourceSpec& resources) {
  TRIREME_DEFAULT(resources, ranks, 0);
  TRIREME_DEFAULT(resources, cpus_per_rank, 0);
  TRIREME_DEFAULT(resources, memory_mib_per_rank, 0);
  TRIREME_DEFAULT(resources, gpus_per_rank, 0);
  TRIREME_DEFAULT(resources, priority, 0);
  TRIREME_DEFAULT(resources, max_failures, 5);
  TRIREME_DEFAULT(resources, on_lost_node, "restart");
  TRIREME_DEFAULT(resources, time_limit_seconds, 0.0);
}

void OffloadDefaults(v1::OffloadSpec& offload) {
  TRIREME_DEFAULT(offload, optimizer_state, "none");
  TRIREME_DEFAULT(offload, activations, "none");
  TRIREME_DEFAULT(offload, piece_bytes, 0);
}

template <typename Axis>
void CompressionDefaults(Axis& axis, const char* bound) {
  TRIREME_DEFAULT(axis, mode, "off");
  TRIREME_DEFAULT(axis, bound, bound);
  TRIREME_DEFAULT(axis, min_bytes, 64 << 10);
}

}  // namespace

void ApplyDefaults(v1::JobSpec& spec) {
  TRIREME_DEFAULT(spec, name, "job");
  TRIREME_DEFAULT(spec, seed, 1337);
  ModelDefaults(*spec.mutable_model()->mutable_config());

  v1::DataSpec& data = *spec.mutable_data();
  TRIREME_DEFAULT(data, tokenizer, "char");
  TRIREME_DEFAULT(data, sequence_length, 64);
  TRIREME_DEFAULT(data, validation_fraction, 0.1);
  TRIREME_DEFAULT(data, order, "random");

  v1::TrainingSpec& training = *spec.mutable_training();
  TRIREME_DEFAULT(training, steps, 1000);
  TRIREME_DEFAULT(training, global_batch_size, 8);
  if (training.micro_batch_size() == 0) {
    training.set_micro_batch_size(std::clamp<int64_t>(training.global_batch_size(), 1, 4));
  }
  TRIREME_DEFAULT(training, nonfinite_policy, "stop");
  TRIREME_DEFAULT(training, dtype, "f32");
  TRIREME_DEFAULT(training, loss_tile_rows, 0);
  TRIREME_DEFAULT(training, gradient_transfer, "f32");

  OptimizerDefaults(*spec.mutable_optimizer(), training.steps());
  ParallelismDefaults(*spec.mutable_parallelism());

  OffloadDefaults(*spec.mutable_offload());
  TRIREME_DEFAULT(*spec.mutable_snapshots(), every_step, false);

  v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  TRIREME_DEFAULT(checkpoint, every_steps, 0);
  TRIREME_DEFAULT(checkpoint, keep, 2);
  v1::EvaluationSpec& evaluation = *spec.mutable_evaluation();
  TRIREME_DEFAULT(evaluation, every_steps, 250);
  TRIREME_DEFAULT(evaluation, samples, 0);
  RuntimeDefaults(*spec.mutable_runtime(), training.dtype() == "f64");

  v1::GenerationSpec& generation = *spec.mutable_generation();
  TRIREME_DEFAULT(generation, prompt, "\n");
  TRIREME_DEFAULT(generation, max_new_tokens, 200);
  TRIREME_DEFAULT(generation, temperature, 0.8);
  TRIREME_DEFAULT(generation, top_k, 200);

  v1::CompressionSpec& compression = *spec.mutable_compression();
  CompressionDefaults(*compression.mutable_data_parallel(), "rms:0.55");
  CompressionDefaults(*compression.mutable_pipeline(), "rms:0.05");
  TRIREME_DEFAULT(compression, link_gbits, 0.0);
  ResourceDefaults(*spec.mutable_resources());
}

#undef TRIREME_DEFAULT

}  // namespace trireme::spec
