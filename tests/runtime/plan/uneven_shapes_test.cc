// Plans of shapes that no axis divides: what the operators of every tensor coordinate reach into
// must be inside the planned slots. Sizes over the tensor axis are not monotone (a rank with
// smaller buffers can colour them worse), so every coordinate is looked at.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/sanitizer.h"

namespace trireme::plan {
namespace {

class Shapes {
 public:
  explicit Shapes(uint32_t seed) : random_(seed) {}

  v1::JobSpec Next() {
    v1::JobSpec job;
    Model(*job.mutable_model()->mutable_config());
    v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
    const int64_t pipeline = From(1, 3);
    const char* schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
    const int64_t schedule = From(0, pipeline > 1 ? 3 : 2);
    const int64_t stages = schedule == 3 ? 2 * pipeline : pipeline;
    const int64_t groups = job.model().config().num_key_value_heads();
    job.mutable_model()->mutable_config()->set_num_hidden_layers(stages * From(1, 2));
    parallelism.set_pipeline_parallel_size(pipeline);
    parallelism.set_schedule(schedules[schedule]);
    parallelism.set_tensor_parallel_size(From(2, std::min<int64_t>(groups, 6)));
    parallelism.set_sequence_parallel(From(0, 1) == 1);
    parallelism.set_zero_stage(From(0, 3));
    parallelism.set_bucket_bytes(From(1, 8) * 4096);
    job.mutable_data()->set_sequence_length(From(6, 24));
    job.mutable_training()->set_micro_batch_size(From(1, 4));
    job.mutable_training()->set_global_batch_size(4);
    job.mutable_training()->set_dtype(From(0, 1) == 1 ? "f32" : "f64");
    job.mutable_runtime()->set_kernels("reference");
    spec::ApplyDefaults(job);
    return job;
  }

 private:
  int64_t From(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }

  void Model(v1::ModelConfig& config) {
    const bool gpt2 = From(0, 1) == 1;
    const int64_t groups = From(2, 12), width = gpt2 ? From(2, 24) : 2 * From(1, 12);
    const int64_t heads = groups * (gpt2 ? 1 : From(1, 3));
    config.set_model_type(gpt2 ? "gpt2" : "llama");
    config.set_num_attention_heads(heads);
    config.set_num_key_value_heads(groups);
    config.set_head_dim(width);
    int64_t hidden = gpt2 ? heads * width : From(8, 200);
    // The rules would take head_dim for one derived from a hidden_size that the heads do not
    // divide.
    if (hidden / heads == width) hidden = heads * width;
    config.set_hidden_size(hidden);
    config.set_intermediate_size(From(16, 600));
    config.set_vocab_size(From(16, 400));
    config.set_max_position_embeddings(64);
    const double dropout = gpt2 && From(0, 1) == 1 ? 0.1 : 0;
    config.set_embd_pdrop(dropout);
    config.set_attn_pdrop(dropout);
    config.set_resid_pdrop(dropout);
  }

  std::mt19937 random_;
};

// Empty, or what does not fit.
std::string FaultOfBuffers(const v1::StagePlan& stage, uint32_t virtual_stage,
                           const graph::StageOps& ops) {
  for (const graph::Buffer& buffer : ops.buffers) {
    const v1::PoolKind kind = PoolKindOf(buffer.pool);
    const uint64_t end = static_cast<uint64_t>(buffer.offset + buffer.bytes);
    const v1::Pool& pool = FindPool(stage, kind, kind == v1::TEMPORARY ? 0 : virtual_stage);
    if (end > pool.slot_bytes()) {
      return buffer.name + " ends at byte " + std::to_string(end) + " of a slot of " +
             v1::PoolKind_Name(kind) + " of " + std::to_string(pool.slot_bytes());
    }
  }
  for (const auto* list : {&ops.forward, &ops.backward, &ops.input_grad, &ops.weight_grad}) {
    for (const graph::LoweredOp& op : *list) {
      if (!op.is_collective()) continue;
      const graph::OperandRef& data = op.operand[graph::kY];
      const auto width = static_cast<int64_t>(tensor::SizeOf(op.spec.dtype));
      if (data.offset + op.offsets.back() * width > ops.buffers[data.id].bytes) {
        return op.name + " gathers more than its buffer holds";
      }
    }
  }
  return "";
}

std::string FaultOfState(const v1::Plan& plan, const graph::ModelGraph& graph,
                         const StateLayout& state, uint32_t pipeline, uint32_t tensor,
                         uint64_t element) {
  for (size_t index = 0; index < state.places.size(); ++index) {
    const StatePlace& place = state.places[index];
    const v1::Bucket& bucket = state.buckets[place.bucket];
    const bool last =
        index + 1 == state.places.size() || state.places[index + 1].bucket != place.bucket;
    const int64_t end = last ? static_cast<int64_t>(bucket.offset() + bucket.count())
                             : state.places[index + 1].offset;
    const graph::Parameter& parameter = graph.parameters[place.parameter];
    const int64_t own = parameter.LocalBox(plan.mesh().tensor(), tensor).elements();
    if (place.offset + own > end) return parameter.name + " reaches into the next parameter";
  }
  const v1::StagePlan& stage = plan.stages(static_cast<int>(pipeline));
  const uint64_t bytes = static_cast<uint64_t>(state.elements) * element;
  if (FindPool(stage, v1::GRADIENT, 0).slot_bytes() != bytes) return "the gradients' pool";
  return "";
}

TEST_CASE("uneven shapes: every tensor coordinate fits the slots of the plan") {
  Shapes shapes(3);
  int larger = 0;  // shapes in which another coordinate than 0 needs most of some pool
  for (int shape = 0; shape < tests::Tries(2000); ++shape) {
    const v1::JobSpec job = shapes.Next();
    const int ranks = static_cast<int>(job.parallelism().tensor_parallel_size() *
                                       job.parallelism().pipeline_parallel_size());
    INFO("shape " << shape << ": " << job.ShortDebugString());
    const auto plan = MakePlan(job, ranks);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok());
    const auto graph = model::BuildModel(job.model().config());
    const uint64_t element = tensor::SizeOf(ComputeDType(job));
    bool any = false;
    for (uint32_t pipeline = 0; pipeline < plan->mesh().pipeline(); ++pipeline) {
      const LoweredStage lowered = LowerStage(*plan, *graph, pipeline);
      for (uint32_t tensor = 0; tensor < plan->mesh().tensor(); ++tensor) {
        const std::vector<graph::StageOps>& stages = lowered.ops[tensor];
        for (uint32_t index = 0; index < stages.size(); ++index) {
          INFO("stage " << pipeline << ", virtual stage " << index << ", tensor " << tensor);
          CHECK(FaultOfBuffers(plan->stages(static_cast<int>(pipeline)), index, stages[index]) ==
                "");
          any = any || stages[index].temporary_bytes > lowered.ops[0][index].temporary_bytes;
        }
        CHECK(FaultOfState(*plan, *graph, lowered.state, pipeline, tensor, element) == "");
      }
    }
    larger += any;
  }
  CHECK(larger >= tests::Tries(3));
}

}  // namespace
}  // namespace trireme::plan
