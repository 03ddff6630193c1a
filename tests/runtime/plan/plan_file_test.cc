// A plan for 3,072 ranks fits a gRPC message and comes back whole; damage is told.
#include "runtime/plan/plan_file.h"

#include <catch2/catch.hpp>

#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {

namespace {

v1::JobSpec LargeJob() {
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

}  // namespace

TEST_CASE("plan file: 3072 ranks stay below 4 MiB and come back whole") {
  const auto plan = MakePlan(LargeJob(), 3072);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK(plan->mesh().data() == 4);
  const std::string bytes = SerializePlan(*plan);
  CHECK(bytes.size() < (size_t{4} << 20));
  const auto back = ParsePlan(bytes);
  REQUIRE(back.ok());
  CHECK(back->SerializeAsString() == plan->SerializeAsString());
}

TEST_CASE("plan file: bytes that are no plan are refused") {
  const auto plan = MakePlan(LargeJob(), 3072);
  REQUIRE(plan.ok());
  std::string bytes = SerializePlan(*plan);
  CHECK(ParsePlan("").status().code() != absl::StatusCode::kOk);
  CHECK(ParsePlan("not a plan").status().code() == absl::StatusCode::kDataLoss);
  CHECK_FALSE(ParsePlan(std::string_view(bytes).substr(0, bytes.size() / 2)).ok());
  v1::Plan other = *plan;
  other.set_version(kPlanVersion + 1);
  CHECK(ParsePlan(SerializePlan(other)).status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace trireme::plan
