// The planner at full size (3,072 ranks), what it refuses and how it says so, and how memory grows.
#include "runtime/plan/planner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/job_checks.h"
#include "runtime/plan/verifier.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/plan/forget_axis.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

struct Shape {
  int64_t layers = 4, hidden = 32, heads = 4, vocabulary = 50;
  int64_t pipeline = 1, tensor = 1, zero = 0;
  int64_t global_batch = 16, micro_batch = 2, sequence = 8;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
};

v1::JobSpec JobOf(const Shape& shape) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(shape.layers);
  config.set_hidden_size(shape.hidden);
  config.set_num_attention_heads(shape.heads);
  config.set_vocab_size(shape.vocabulary);
  config.set_max_position_embeddings(shape.sequence);
  job.mutable_data()->set_sequence_length(shape.sequence);
  job.mutable_training()->set_global_batch_size(shape.global_batch);
  job.mutable_training()->set_micro_batch_size(shape.micro_batch);
  job.mutable_runtime()->set_kernels("reference");  // no library scratch: the arena is the model's
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_pipeline_parallel_size(shape.pipeline);
  parallelism.set_tensor_parallel_size(shape.tensor);
  parallelism.set_zero_stage(shape.zero);
  parallelism.set_schedule(shape.schedule);
  parallelism.set_sequence_parallel(shape.sequence_parallel);
  spec::ApplyDefaults(job);
  return job;
}

v1::Plan PlanOf(const Shape& shape, int ranks) {
  auto plan = MakePlan(JobOf(shape), ranks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

std::string RefusalOf(const v1::JobSpec& job, int ranks) {
  const auto plan = MakePlan(job, ranks);
  REQUIRE(!plan.ok());
  CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
}

uint64_t Bytes(const v1::Plan& plan, v1::PoolKind kind, int stage = 0) {
  const v1::Pool& pool = FindPool(plan.stages(stage), kind, 0);
  return pool.slot_bytes() * pool.slots();
}

// Of pipeline stages of one layer each.
TEST_CASE("a list of recompute modes is by layer, from the first") {
  const auto kept = [](const std::vector<const char*>& modes) {
    v1::JobSpec job = JobOf({.pipeline = 4});
    for (const char* mode : modes) job.mutable_parallelism()->add_recompute(mode);
    const auto plan = MakePlan(job, 4);
    REQUIRE(plan.ok());
    std::vector<uint64_t> bytes;
    for (const v1::StagePlan& stage : plan->stages()) {
      uint64_t of_stage = 0;
      for (const v1::Pool& pool : stage.pools()) {
        if (pool.kind() == v1::ACTIVATION || pool.kind() == v1::STASH)
          of_stage += pool.slot_bytes();
      }
      bytes.push_back(of_stage);
    }
    return bytes;
  };
  const std::vector<uint64_t> none = kept({"none"}), selective = kept({"selective"}),
                              full = kept({"full"});
  const std::vector<uint64_t> listed = kept({"full", "none", "selective", "none"});
  CHECK(full[0] < selective[0]);
  CHECK(selective[2] < none[2]);
  CHECK(listed == std::vector<uint64_t>{full[0], none[1], selective[2], none[3]});
}

TEST_CASE("planner: a plan for 3072 ranks stays under 4 MiB") {
  // GPT-2 XL's shape, and 96 layers of GPT-3's width.
  const Shape xl{.layers = 48,
                 .hidden = 1600,
                 .heads = 25,
                 .vocabulary = 50257,
                 .pipeline = 48,
                 .tensor = 8,
                 .zero = 1,
                 .global_batch = 512,
                 .micro_batch = 1,
                 .sequence = 1024};
  Shape deep = xl;
  deep.layers = 96;
  deep.hidden = 12288;
  deep.heads = 96;
  deep.sequence_parallel = true;
  for (const Shape& shape : {xl, deep}) {
    const v1::Plan plan = PlanOf(shape, 3072);
    CHECK(plan.mesh().data() == 8);
    CHECK(plan.stages_size() == 48);
    CHECK(plan.micro_batches() == 64);
    CHECK(plan.ByteSizeLong() < (4u << 20));
    CHECK(plan.bubble() == Approx(47.0 / 64));
  }
}

TEST_CASE("planner: a given plan is refused, whatever is wrong with it, before anybody runs it") {
  const v1::Plan good = PlanOf({.pipeline = 4}, 4);
  CHECK(VerifyGiven(good).ok());
  const auto refused = [&](const auto& change) {
    v1::Plan plan = good;
    change(plan);
    const absl::Status status = VerifyGiven(plan);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  // Of a stage that reads none.
  CHECK_THAT(refused([](v1::Plan& plan) {
               auto& pools = *plan.mutable_stages(1)->mutable_pools();
               const auto at = std::find_if(pools.begin(), pools.end(), [](const v1::Pool& pool) {
                 return pool.kind() == v1::TOKENS;
               });
               REQUIRE(at != pools.end());
               pools.erase(at);
             }),
             Contains("TOKENS"));
  CHECK_THAT(refused([](v1::Plan& plan) {
               plan.mutable_job()->mutable_training()->set_micro_batch_size(-1);
             }),
             Contains("micro_batch"));
}

TEST_CASE("planner: refusals name the field and a legal value") {
  CHECK_THAT(RefusalOf(JobOf({.pipeline = 2, .tensor = 2}), 6), Contains("use a multiple of 4"));
  CHECK_THAT(RefusalOf(JobOf({.layers = 4, .pipeline = 5}), 5),
             Contains("parallelism.pipeline_parallel_size") && Contains("expected 1 to 4"));
  CHECK_THAT(RefusalOf(JobOf({.global_batch = 3}), 4),
             Contains("training.global_batch_size") && Contains("at least 4"));
  v1::JobSpec job = JobOf({.tensor = 2});
  job.mutable_parallelism()->set_data_parallel_size(3);
  CHECK_THAT(RefusalOf(job, 8), Contains("parallelism.data_parallel_size") && Contains("use 4"));
}

// No job may keep a coordinator that others use at one plan for hours.
TEST_CASE("planner: instructions and operators of a plan are bounded, at their borders") {
  const auto fault = [](const Shape& shape, uint32_t micro_batches) {
    v1::Plan plan;
    *plan.mutable_job() = JobOf(shape);
    plan.mutable_mesh()->set_pipeline(1);
    plan.mutable_mesh()->set_data(2);
    plan.mutable_mesh()->set_tensor(1);
    plan.set_micro_batches(micro_batches);
    return std::string(CheckExtent(plan).message());
  };
  // 2^18 cells: of the one stage, or of its blocks, which are the layers and both ends.
  for (const int64_t zero : {0, 1, 2, 3}) {
    INFO("ZeRO " << zero);
    const Shape shape{.layers = 14, .zero = zero};
    const bool by_block = zero >= 2;
    const uint32_t most = (uint32_t{1} << 18) / (by_block ? 16 : 1);
    CHECK(fault(shape, most).empty());
    CHECK_THAT(fault(shape, most + 1),
               Contains("training.micro_batch_size") &&
                   Contains(by_block ? "16 blocks (parallelism.zero_stage 2 and 3)" : "1 stages"));
  }
  // 2^21 pairs of layers.
  CHECK(fault({.layers = 1448}, 1).empty());
  CHECK_THAT(fault({.layers = 1449}, 1),
             Contains("model.config.num_hidden_layers") && Contains("pipeline_parallel_size"));
}

// Each cut has a channel of its own in both directions, and a group has so many.
TEST_CASE("planner: a pipeline of more cuts than a group has channels is refused") {
  CHECK(MakePlan(JobOf({.layers = 4097, .pipeline = 4097}), 4097).ok());
  CHECK_THAT(RefusalOf(JobOf({.layers = 4098, .pipeline = 4098}), 4098),
             Contains("parallelism.pipeline_parallel_size") && Contains("expected at most 4097"));
}

// Coded, every rank would send every other a message of fewer bytes than the message itself takes.
TEST_CASE("planner: a sum of few bytes for each replica is not coded") {
  const auto coded = [](int ranks, bool as_bf16) {
    v1::JobSpec job = JobOf({.hidden = 64, .global_batch = ranks});
    job.mutable_training()->set_micro_batch_size(1);
    if (as_bf16) {
      job.mutable_training()->set_gradient_transfer("bf16");
    } else {
      job.mutable_compression()->mutable_data_parallel()->set_mode("on");
    }
    job.mutable_parallelism()->set_bucket_bytes(int64_t{1} << 20);
    const auto plan = MakePlan(job, ranks);
    REQUIRE(plan.ok());
    CHECK(VerifyPlan(*plan).ok());
    REQUIRE(plan->stages(0).buckets_size() > 0);
    // The largest of a MiB or less.
    for (const v1::Instruction& each : plan->stages(0).step().instructions()) {
      if (each.kind() == v1::REDUCE && each.coded()) return true;
    }
    return false;
  };
  for (const bool as_bf16 : {false, true}) {
    CHECK(coded(300, as_bf16));
    CHECK_FALSE(coded(3072, as_bf16));
  }
}

TEST_CASE("planner: uneven layers per stage are taken as given") {
  v1::JobSpec job = JobOf({.layers = 7, .pipeline = 3});
  for (int64_t layers : {1, 4, 2}) job.mutable_parallelism()->add_layers_per_stage(layers);
  const auto plan = MakePlan(job, 3);
  REQUIRE(plan.ok());
  // Block 0 is the embedding, blocks 1 to 7 the layers, block 8 the head.
  const uint32_t begin[] = {0, 2, 6}, end[] = {2, 6, 9};
  for (int stage = 0; stage < 3; ++stage) {
    CHECK(plan->stages(stage).first_block(0) == begin[stage]);
    CHECK(plan->stages(stage).end_block(0) == end[stage]);
  }
  // Without a list no layer is lost and no stage has two more than another.
  const v1::Plan even = PlanOf({.layers = 30, .pipeline = 4}, 4);
  uint32_t next = 0;
  for (const v1::StagePlan& stage : even.stages()) {
    CHECK(stage.first_block(0) == next);
    next = stage.end_block(0);
  }
  CHECK(next == 32);
}

TEST_CASE("planner: a gradient that would stay Partial is refused") {
  const auto check = [](const Shape& shape, int ranks, const auto& doctor, const auto& expected) {
    v1::Plan plan = PlanOf(shape, ranks);
    const auto graph = model::BuildModel(plan.job().model().config());
    REQUIRE(graph.ok());
    REQUIRE(CheckGradientsReduced(plan, *graph).ok());
    doctor(plan);
    const absl::Status verdict = CheckGradientsReduced(plan, *graph);
    CHECK(verdict.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(verdict.message()), expected);
  };
  check(
      {.tensor = 2, .sequence_parallel = true}, 2,
      [](v1::Plan& plan) {
        for (v1::Bucket& bucket : *plan.mutable_stages(0)->mutable_buckets()) {
          Forget(v1::AXIS_TENSOR, bucket);
        }
      },
      Contains("ln_") && Contains("axis tensor"));
  for (const int stage : {0, 1}) {
    check(
        {.pipeline = 2, .zero = 1}, 4,
        [stage](v1::Plan& plan) {
          for (v1::Bucket& bucket : *plan.mutable_stages(stage)->mutable_buckets()) {
            Forget(v1::AXIS_TIED, bucket);
          }
        },
        Contains("wte") && Contains("tied stages"));
  }
  check(
      {}, 2,
      [](v1::Plan& plan) {
        for (v1::Instruction& each :
             *plan.mutable_stages(0)->mutable_step()->mutable_instructions()) {
          if (each.kind() == v1::REDUCE) each.set_kind(v1::WAIT);
        }
      },
      Contains("axis data"));
}

TEST_CASE("planner: memory follows batch, layout and schedule") {
  const v1::Plan one = PlanOf({}, 1);
  const v1::Plan twice = PlanOf({.micro_batch = 4}, 1);
  CHECK(Bytes(twice, v1::ACTIVATION) == 2 * Bytes(one, v1::ACTIVATION));
  CHECK(Bytes(twice, v1::PARAMETER) == Bytes(one, v1::PARAMETER));
  // ZeRO-1 leaves a rank its share of the moments.
  const v1::Plan zero = PlanOf({.zero = 1}, 4);
  CHECK(Bytes(zero, v1::MOMENT1) * 4 == Bytes(zero, v1::PARAMETER));
  CHECK(Bytes(one, v1::MOMENT1) == Bytes(one, v1::PARAMETER));
  CHECK(zero.stages(0).arena_bytes() < PlanOf({}, 4).stages(0).arena_bytes());
  // GPipe keeps every micro-batch alive, 1F1B as many as stages follow.
  const v1::Plan gpipe = PlanOf({.pipeline = 2, .schedule = "gpipe"}, 2);
  const v1::Plan flush = PlanOf({.pipeline = 2}, 2);
  CHECK(FindPool(gpipe.stages(0), v1::ACTIVATION, 0).slots() == 8);
  CHECK(FindPool(flush.stages(0), v1::ACTIVATION, 0).slots() == 2);
  CHECK(FindPool(flush.stages(1), v1::ACTIVATION, 0).slots() == 1);
  // Pools lie one after another, and the last ends with the arena.
  for (const v1::Plan* plan : {&one, &zero, &gpipe}) {
    uint64_t end = 0;
    for (const v1::Pool& pool : plan->stages(0).pools()) {
      CHECK(pool.offset_bytes() >= end);
      end = pool.offset_bytes() + pool.slot_bytes() * pool.slots();
    }
    CHECK(plan->stages(0).arena_bytes() == end);
  }
}

TEST_CASE("planner: tiles of the loss are checked like all that a plan follows from") {
  v1::JobSpec job = SmallJob();
  job.mutable_training()->set_loss_tile_rows(-1);
  const auto plan = MakePlan(job, 4);
  CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(plan.status().message()),
             Catch::Contains("training.loss_tile_rows: -1 is out of range"));
}

TEST_CASE(
    "planner: tiles of the loss are bounded over the tensor ranks, with a number that works") {
  v1::JobSpec job = SmallJob();
  job.mutable_model()->mutable_config()->set_max_position_embeddings(1024);
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_training()->set_global_batch_size(256);
  job.mutable_training()->set_micro_batch_size(64);
  job.mutable_training()->set_loss_tile_rows(1);
  job.mutable_parallelism()->set_tensor_parallel_size(2);
  const auto refused = MakePlan(job, 4);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string text(refused.status().message());
  CHECK_THAT(text, Catch::Contains("training.loss_tile_rows: 1 of the 65536 rows") &&
                       Catch::Contains("make 131072 tiles over 2 tensor ranks"));
  job.mutable_training()->set_loss_tile_rows(std::stoll(text.substr(text.rfind("use ") + 4)));
  CHECK(job.training().loss_tile_rows() == 2);
  const auto plan = MakePlan(job, 4);
  INFO(plan.status().ToString());
  CHECK(plan.ok());
}

TEST_CASE("planner: ranks and coordinates are each other's inverse") {
  v1::Mesh mesh;
  mesh.set_pipeline(3);
  mesh.set_data(2);
  mesh.set_tensor(4);
  for (int rank = 0; rank < RankCount(mesh); ++rank) {
    CHECK(RankOf(mesh, CoordinatesOf(mesh, rank)) == rank);
  }
  // Tensor fastest, so a tensor group stays on a node.
  CHECK(RankOf(mesh, {.tensor = 1}) == 1);
  CHECK(RankOf(mesh, {.pipeline = 1}) == 8);
}

}  // namespace
}  // namespace trireme::plan
