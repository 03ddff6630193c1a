// Whatever a job asks: a plan that the verifier passes, or InvalidArgument with a field and a way
// out. Never a crash, and never Internal: that would be a rule that is missing.
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "runtime/spec/job_spec.h"
#include "tests/sanitizer.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

class Jobs {
 public:
  explicit Jobs(uint32_t seed) : random_(seed) {}

  int64_t From(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }

  // Mostly sizes that go together, so that many jobs can be planned.
  v1::JobSpec Next() {
    v1::JobSpec job;
    v1::ModelConfig& config = *job.mutable_model()->mutable_config();
    const bool gpt2 = From(0, 1) == 1;
    const int64_t groups = From(1, 6), heads = groups * (gpt2 ? 1 : From(1, 2));
    const int64_t width = gpt2 ? From(1, 9) : 2 * From(1, 5);
    config.set_model_type(gpt2 ? "gpt2" : "llama");
    config.set_num_attention_heads(heads);
    config.set_num_key_value_heads(groups);
    config.set_head_dim(width);
    config.set_hidden_size(gpt2 || From(0, 1) == 1 ? heads * width : From(1, 40));
    config.set_intermediate_size(From(1, 50));
    config.set_vocab_size(From(1, 50));
    config.set_num_hidden_layers(From(1, 9));
    config.set_max_position_embeddings(From(1, 12));
    const double dropout = gpt2 && From(0, 3) == 0 ? 0.1 : 0;
    config.set_embd_pdrop(dropout);
    config.set_attn_pdrop(dropout);
    config.set_resid_pdrop(dropout);
    config.set_tie_word_embeddings(From(0, 1) == 1);
    v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
    const char* schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
    parallelism.set_schedule(schedules[From(0, 3)]);
    const bool interleaved = parallelism.schedule() == "interleaved";
    parallelism.set_virtual_stages(interleaved ? From(1, 3) : From(0, 9) == 0 ? 2 : 1);
    parallelism.set_pipeline_parallel_size(From(1, 4));
    parallelism.set_tensor_parallel_size(From(1, 4));
    parallelism.set_sequence_parallel(From(0, 1) == 1);
    parallelism.set_zero_stage(From(0, 3));
    parallelism.add_recompute(From(0, 1) == 0 ? "full" : "selective");
    parallelism.set_bucket_bytes(1024 * From(1, 8));
    job.mutable_data()->set_sequence_length(From(1, 6));
    job.mutable_training()->set_micro_batch_size(From(1, 3));
    job.mutable_training()->set_global_batch_size(From(1, 12));
    job.mutable_training()->set_dtype(From(0, 1) == 1 ? "f32" : "f64");
    job.mutable_runtime()->set_kernels("reference");
    spec::ApplyDefaults(job);
    return job;
  }

  // One field of any value, in a job that is otherwise as above.
  void Break(v1::JobSpec& job) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const int64_t values[] = {-kMost, -1, 0, 1, 2, 3, 5, 64, 1 << 14, 1 << 20, 1 << 24, kMost};
    const int64_t value = values[From(0, 11)];
    v1::ModelConfig& config = *job.mutable_model()->mutable_config();
    v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
    switch (From(0, 15)) {
      case 0:
        return config.set_hidden_size(value);
      case 1:
        return config.set_num_attention_heads(value);
      case 2:
        return config.set_num_key_value_heads(value);
      case 3:
        return config.set_head_dim(value);
      case 4:
        return config.set_intermediate_size(value);
      case 5:
        return config.set_vocab_size(value);
      case 6:
        return config.set_num_hidden_layers(value > 64 ? -value : value);
      case 7:
        return config.set_max_position_embeddings(value);
      case 8:
        return parallelism.set_virtual_stages(value);
      case 9:
        return parallelism.set_pipeline_parallel_size(value);
      case 10:
        return parallelism.set_tensor_parallel_size(value);
      case 11:
        return parallelism.set_bucket_bytes(value);
      case 12:
        return parallelism.add_layers_per_stage(value);
      case 13:
        return job.mutable_data()->set_sequence_length(value);
      case 14:
        return job.mutable_training()->set_micro_batch_size(value);
      default:
        return job.mutable_training()->set_global_batch_size(value == 1 << 20 ? 77 : value);
    }
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("any job: a verified plan or a refusal that names a field") {
  Jobs jobs(5);
  int planned = 0;
  std::set<std::string> refusals;  // by what they begin with
  for (int shape = 0; shape < tests::Tries(5000); ++shape) {
    v1::JobSpec job = jobs.Next();
    if (shape % 2 == 1) jobs.Break(job);
    const v1::ParallelismSpec& parallelism = job.parallelism();
    int ranks = static_cast<int>(jobs.From(-1, 8));
    const auto multiplies = [](int64_t size) { return size > -64 && size < 64; };
    if (jobs.From(0, 3) != 0 && multiplies(parallelism.tensor_parallel_size()) &&
        multiplies(parallelism.pipeline_parallel_size())) {
      ranks = static_cast<int>(parallelism.tensor_parallel_size() *
                               parallelism.pipeline_parallel_size() * jobs.From(1, 3));
    }
    INFO("shape " << shape << ", " << ranks << " ranks: " << job.ShortDebugString());
    const auto plan = MakePlan(job, ranks);
    if (plan.ok()) {
      ++planned;
      CHECK(VerifyPlan(*plan).ok());
      continue;
    }
    const std::string message(plan.status().message());
    INFO(message);
    CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(message.find(": ") != std::string::npos);
    refusals.insert(message.substr(0, message.find(": ")));
  }
  CHECK(planned > tests::Tries(500));
  CHECK(refusals.size() >= 12);
}

TEST_CASE("any job: what once crashed the planner or hung the ranks is refused by name") {
  const auto refusal = [](const auto& change, int ranks) {
    v1::JobSpec job;
    v1::ModelConfig& config = *job.mutable_model()->mutable_config();
    config.set_model_type("gpt2");
    config.set_num_hidden_layers(4);
    config.set_num_attention_heads(4);
    config.set_hidden_size(32);
    config.set_vocab_size(50);
    job.mutable_data()->set_sequence_length(8);
    job.mutable_training()->set_global_batch_size(4);
    change(job);
    spec::ApplyDefaults(job);
    const auto plan = MakePlan(job, ranks);
    CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  CHECK_THAT(refusal(
                 [](v1::JobSpec& job) {
                   job.mutable_parallelism()->set_schedule("interleaved");
                   job.mutable_parallelism()->set_virtual_stages(2);
                 },
                 1),
             Contains("parallelism.schedule") && Contains("pipeline_parallel_size to 2"));
  const auto one_row = [](v1::JobSpec& job) {
    job.mutable_parallelism()->set_tensor_parallel_size(2);
    job.mutable_parallelism()->set_sequence_parallel(true);
    job.mutable_data()->set_sequence_length(1);
    job.mutable_training()->set_micro_batch_size(4);
  };
  // Four rows of the file become one when four replicas share the batch.
  CHECK_THAT(refusal(one_row, 8), Contains("parallelism.sequence_parallel") && Contains("= 1;"));
  CHECK_THAT(refusal(
                 [](v1::JobSpec& job) {
                   job.mutable_training()->set_global_batch_size(1 << 24);
                   job.mutable_training()->set_micro_batch_size(1);
                 },
                 1),
             Contains("training.micro_batch_size") && Contains("larger micro-batches"));
  v1::JobSpec bare;
  bare.mutable_model()->mutable_config()->set_model_type("gpt2");
  CHECK_THAT(std::string(MakePlan(bare, 1).status().message()),
             Contains("parallelism.tensor_parallel_size: absent"));
}

}  // namespace
}  // namespace trireme::plan
