// Slots are taken for as long as they are needed and no longer: bytes of GPT-2 on eight stages
// against a bound from its shapes, and of many jobs every buffer's life against its pool's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {
namespace {

v1::JobSpec SplitJob(const std::string& family, int64_t pipeline) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type(family);
  config.set_hidden_size(768);
  config.set_num_hidden_layers(12);
  config.set_num_attention_heads(12);
  config.set_vocab_size(50257);
  config.set_max_position_embeddings(1024);
  job.mutable_data()->set_sequence_length(1024);
  job.mutable_training()->set_global_batch_size(64);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_parallelism()->set_pipeline_parallel_size(pipeline);
  job.mutable_parallelism()->set_schedule("zb-h1");
  spec::ApplyDefaults(job);
  return job;
}

uint64_t SavedBytes(const v1::StagePlan& stage) {
  uint64_t bytes = 0;
  for (const v1::PoolKind kind : {v1::ACTIVATION, v1::STASH, v1::GRADIENT_STASH}) {
    const v1::Pool& pool = FindPool(stage, kind, 0);
    bytes += pool.slot_bytes() * pool.slots();
  }
  return bytes;
}

// Of a layer and a row, in widths C. Forward makes: the norms' outputs (2), queries, keys and
// values (3), attention's output and its projection (2), the stream after each residual (2), the
// feed-forward before and after GELU (8) and its output (1). Backward makes a gradient of each. One
// more width holds all statistics of a row (two per norm, one per head).
constexpr uint64_t kForwardWidths = 18 + 1, kBackwardWidths = 18;

TEST_CASE("lives: ZB-H1 keeps what a micro-batch is owed, and nothing before it is made") {
  constexpr uint64_t kStages = 8, kRows = 4 * 1024, kWidth = 768;
  const auto plan = MakePlan(SplitJob("gpt2", kStages), kStages);
  REQUIRE(plan.ok());
  for (uint64_t rank = 0; rank < kStages; ++rank) {
    const v1::StagePlan& stage = plan->stages(static_cast<int>(rank));
    // As many micro-batches as there are stages are between F and W on every rank; rank r puts W
    // off by r, so r + 1 are between I and W. Embedding and head count as a layer each.
    const uint64_t layers = stage.end_block(0) - stage.first_block(0);
    const uint64_t row =
        kWidth * layers * (kStages * kForwardWidths + (rank + 1) * kBackwardWidths);
    // No logits, which are made and gone inside one I.
    INFO("stage " << rank << " of " << layers << " blocks");
    CHECK(SavedBytes(stage) <= sizeof(float) * kRows * row);
  }
}

// By buffer of a virtual stage: the first and the last of F, I (or B), W that touch it.
std::map<int32_t, std::pair<int, int>> BufferLives(const graph::StageOps& ops) {
  std::map<int32_t, std::pair<int, int>> lives;
  const std::vector<graph::LoweredOp>* lists[] = {
      &ops.forward, ops.backward.empty() ? &ops.input_grad : &ops.backward, &ops.weight_grad};
  for (int list = 0; list < 3; ++list) {
    for (const graph::LoweredOp& op : *lists[list]) {
      for (const graph::OperandRef& operand : op.operand) {
        if (operand.space != graph::Space::kBuffer) continue;
        const auto [life, fresh] = lives.emplace(operand.id, std::pair(list, list));
        life->second.second = list;
      }
    }
  }
  return lives;
}

TEST_CASE("lives: a buffer lies in the pool whose slots live as long as it does") {
  using graph::BufferPool;
  // What the builder takes slots for: from the first of the pair to the second.
  const std::map<BufferPool, std::pair<int, int>> pools = {{BufferPool::kActivation, {0, 1}},
                                                           {BufferPool::kStash, {0, 2}},
                                                           {BufferPool::kGradientStash, {1, 2}}};
  for (const char* family : {"gpt2", "llama"}) {
    for (const int64_t pipeline : {1, 2, 8}) {
      const v1::JobSpec job = SplitJob(family, pipeline);
      const auto plan = MakePlan(job, static_cast<int>(pipeline));
      REQUIRE(plan.ok());
      const auto graph = model::BuildModel(job.model().config());
      REQUIRE(graph.ok());
      for (uint32_t stage = 0; stage < pipeline; ++stage) {
        const graph::StageOps ops = LowerForRank(*plan, *graph, {.pipeline = stage}).ops[0][0];
        for (const auto& [id, life] : BufferLives(ops)) {
          const graph::Buffer& buffer = ops.buffers[static_cast<size_t>(id)];
          INFO(family << ", stage " << stage << " of " << pipeline << ", buffer " << buffer.name);
          const auto pool = pools.find(buffer.pool);
          if (pool != pools.end()) CHECK(life == pool->second);
          if (buffer.pool == BufferPool::kTemporary) CHECK(life.first == life.second);
        }
      }
    }
  }
}

// How many micro-batches have a slot of `kind` alive at once at most: from the first to the last of
// the compute instructions that `touches` says they need it for.
size_t MostAlive(const v1::Program& program, const std::set<v1::InstructionKind>& touches) {
  std::map<uint32_t, std::pair<int, int>> lives;  // by micro-batch
  for (int at = 0; at < program.instructions_size(); ++at) {
    const v1::Instruction& each = program.instructions(at);
    if (!touches.contains(each.kind())) continue;
    lives.emplace(each.micro_batch(), std::pair(at, at)).first->second.second = at;
  }
  size_t most = 0;
  for (const auto& [micro_batch, life] : lives) {
    size_t alive = 0;
    for (const auto& [other, span] : lives) {
      alive += span.first <= life.first && life.first <= span.second ? 1 : 0;
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST_CASE("lives: a pool has as many slots as are alive at once") {
  int few_inputs = 0;  // stages with fewer slots than an evaluation has micro-batches
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (const int64_t pipeline : {1, 2, 3, 8}) {
      v1::JobSpec job = SplitJob("gpt2", pipeline);
      job.mutable_parallelism()->set_schedule(schedule);
      const auto plan = MakePlan(job, static_cast<int>(pipeline));
      REQUIRE(plan.ok());
      for (int stage = 0; stage < pipeline; ++stage) {
        const v1::Program& step = plan->stages(stage).step();
        const auto slots = [&](v1::PoolKind kind) {
          return FindPool(plan->stages(stage), kind, 0).slots();
        };
        INFO(schedule << ", stage " << stage << " of " << pipeline);
        CHECK(slots(v1::ACTIVATION) == MostAlive(step, {v1::F, v1::I, v1::B}));
        // One more, as a receive is issued ahead; programs of forward alone ask for two. With gpipe
        // training itself keeps them all.
        if (stage > 0) {
          CHECK(slots(v1::INPUT) <= MostAlive(step, {v1::F, v1::I, v1::B, v1::W}) + 1);
          few_inputs += slots(v1::INPUT) < plan->evaluation_micro_batches() ? 1 : 0;
        }
        if (schedule != std::string("zb-h1")) continue;
        CHECK(slots(v1::STASH) == MostAlive(step, {v1::F, v1::W}));
        CHECK(slots(v1::GRADIENT_STASH) == MostAlive(step, {v1::I, v1::W}));
      }
    }
  }
  CHECK(few_inputs > 10);
}

}  // namespace
}  // namespace trireme::plan
