// Bytes of a step's transfers counted by hand, and the forecast's algebra at its own border.
#include "runtime/plan/compression_forecast.h"

#include <catch2/catch.hpp>

#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {
namespace {

v1::Plan PlanOf(int64_t data, int64_t pipeline, int64_t zero) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("llama");
  config.set_num_hidden_layers(4);
  config.set_hidden_size(32);
  config.set_num_attention_heads(4);
  config.set_intermediate_size(64);
  config.set_vocab_size(48);
  job.mutable_data()->set_sequence_length(16);
  job.mutable_training()->set_global_batch_size(12 * data);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_parallelism()->set_pipeline_parallel_size(pipeline);
  job.mutable_parallelism()->set_zero_stage(zero);
  job.mutable_parallelism()->set_bucket_bytes(16384);
  job.mutable_compression()->mutable_data_parallel()->set_mode("on");
  job.mutable_compression()->mutable_data_parallel()->set_min_bytes(16000);
  job.mutable_compression()->mutable_pipeline()->set_mode("on");
  job.mutable_compression()->mutable_pipeline()->set_min_bytes(0);
  spec::ApplyDefaults(job);
  const auto plan = MakePlan(job, static_cast<int>(data * pipeline));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

TEST_CASE("forecast: bytes of sums are those of the buckets") {
  const v1::Plan whole = PlanOf(4, 1, 0), sharded = PlanOf(4, 1, 1);
  double large = 0, small = 0;
  int count = 0;
  for (const v1::Bucket& bucket : whole.stages(0).buckets()) {
    const double bytes = 4.0 * static_cast<double>(bucket.count());
    (bytes >= 16000 ? large : small) += bytes;
    count += bytes >= 16000 ? 1 : 0;
  }
  REQUIRE(large > 0);
  REQUIRE(small > 0);
  const TransferBytes bytes = DataBytes(whole);
  CHECK(bytes.coded == Approx(2 * 0.75 * large));
  CHECK(bytes.plain == Approx(2 * 0.75 * small));
  CHECK(bytes.coded_transfers == count);
  CHECK(bytes.transfers == whole.stages(0).buckets_size());
  // Parameters are gathered as they are.
  CHECK(DataBytes(sharded).coded == Approx(0.75 * large));
  CHECK(DataBytes(sharded).plain == Approx(0.75 * (large + 2 * small)));
  CHECK(DataBytes(PlanOf(1, 2, 0)).transfers == 0);
}

TEST_CASE("forecast: bytes of messages are those of the stage that sends most") {
  // Three micro-batches of 4 x 16 rows, 32 wide; the stages between send both ways.
  const double message = 4.0 * 4 * 16 * 32;
  CHECK(PipelineBytes(PlanOf(1, 2, 0)).coded == Approx(3 * message));
  CHECK(PipelineBytes(PlanOf(1, 4, 0)).coded == Approx(6 * message));
  CHECK(PipelineBytes(PlanOf(1, 4, 0)).coded_transfers == 6);
  CHECK(PipelineBytes(PlanOf(4, 1, 0)).transfers == 0);
}

TEST_CASE("forecast: plain and coded take as long on the link where coding begins to pay") {
  const TransferBytes bytes{.coded = 3e8, .plain = 1e7};
  const CodecFigures codec{
      .compress_bytes_per_s = 12e9, .decompress_bytes_per_s = 24e9, .ratio = 8};
  const CompressionForecast unknown = Forecast(bytes, codec, 0);
  CHECK(unknown.pays_overlapped_below_bytes_per_s == Approx(8e9));
  CHECK(unknown.pays_below_bytes_per_s == Approx(7e9));
  CHECK(unknown.plain_s == 0);
  const CompressionForecast border = Forecast(bytes, codec, 7e9);
  CHECK(border.plain_s == Approx(3.1e8 / 7e9));
  CHECK(border.coded_s == Approx(border.plain_s));
  const CompressionForecast slow = Forecast(bytes, codec, 1.25e8);
  CHECK(slow.coded_s == Approx((3e8 / 8 + 1e7) / 1.25e8 + 3e8 / 8e9));
}

}  // namespace
}  // namespace trireme::plan
