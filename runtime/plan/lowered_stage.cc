#include "runtime/plan/lowered_stage.h"

namespace trireme::plan {

namespace {

// By block: the embedding, the layers, the head.
std::vector<graph::RecomputeMode> RecomputeOf(const v1::JobSpec& job) {
  const auto& given = job.parallelism().recompute();
  if (given.empty()) return {};
  const auto layers = static_cast<int>(job.model().config().num_hidden_layers());
  std::vector<graph::RecomputeMode> modes(static_cast<size_t>(layers) + 2,
                                          graph::RecomputeMode::kNone);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string& mode = given[given.size() == 1 ? 0 : layer];
    modes[static_cast<size_t>(layer) + 1] = mode == "full"        ? graph::RecomputeMode::kFull
                                            : mode == "selective" ? graph::RecomputeMode::kSelective
                                                                  : graph::RecomputeMode::kNone;
  }
  return modes;
}

std::vector<graph::StageOps> Lower(const v1::Plan& plan, const graph::ModelGraph& graph,
                                   uint32_t pipeline, uint32_t tensor) {
  const v1::JobSpec& job = plan.job();
  const graph::LoweringOptions options = {
      .tensor_size = plan.mesh().tensor(),
      .tensor_index = tensor,
      .sequence_parallel = job.parallelism().sequence_parallel() && plan.mesh().tensor() > 1,
      .micro_batch = job.training().micro_batch_size(),
      .tokens = job.data().sequence_length(),
      .dtype = ComputeDType(job),
      .split_backward = SplitsBackward(job),
      .loss_tile_rows = job.training().loss_tile_rows(),
      .recompute = RecomputeOf(job)};
  const v1::StagePlan& stage = plan.stages(static_cast<int>(pipeline));
  std::vector<graph::StageOps> result;
  for (int index = 0; index < stage.first_block_size(); ++index) {
    result.push_back(graph::LowerStage(graph, static_cast<int>(stage.first_block(index)),
                                       static_cast<int>(stage.end_block(index)), options));
  }
  return result;
}

// `ops`: of tensor coordinate 0.
StateLayout LayOut(const v1::Plan& plan, const graph::ModelGraph& graph, uint32_t pipeline,
                   const std::vector<graph::StageOps>& ops) {
  std::vector<StageOpsRef> stages;
  for (size_t index = ops.size(); index-- > 0;) {
    stages.push_back({.virtual_stage = static_cast<uint32_t>(index), .ops = &ops[index]});
  }
  return LayOutState(
      stages, {.graph = &graph,
               .tensor_size = plan.mesh().tensor(),
               .data_size = plan.mesh().data(),
               .bucket_bytes = plan.job().parallelism().bucket_bytes(),
               .by_block = ZeroStage(plan) >= 2,
               .tied_across_stages = graph.tied != graph::kNone && plan.mesh().pipeline() > 1,
               .last_stage = pipeline + 1 == plan.mesh().pipeline()});
}

}  // namespace

LoweredStage LowerStage(const v1::Plan& plan, const graph::ModelGraph& graph, uint32_t pipeline) {
  LoweredStage stage;
  for (uint32_t tensor = 0; tensor < plan.mesh().tensor(); ++tensor) {
    stage.ops.push_back(Lower(plan, graph, pipeline, tensor));
  }
  stage.state = LayOut(plan, graph, pipeline, stage.ops[0]);
  return stage;
}

LoweredStage LowerForRank(const v1::Plan& plan, const graph::ModelGraph& graph,
                          const Coordinates& at) {
  LoweredStage stage;
  stage.ops.push_back(Lower(plan, graph, at.pipeline, 0));
  stage.state = LayOut(plan, graph, at.pipeline, stage.ops[0]);
  if (at.tensor > 0) stage.ops[0] = Lower(plan, graph, at.pipeline, at.tensor);
  return stage;
}

}  // namespace trireme::plan
