#include "runtime/plan/job_checks.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/graph/lowering.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {

absl::Status CheckJob(const v1::JobSpec& job) {
  std::vector<std::string> lines;
  for (const spec::Fault& fault : spec::ValidateForPlan(job)) {
    lines.push_back(absl::StrCat(fault.path, ": ", fault.message));
  }
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

int64_t LossTileRowsOf(const v1::JobSpec& job) {
  const int64_t given = job.training().loss_tile_rows();
  if (given > 0) return given;
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  const int64_t ranks = job.parallelism().tensor_parallel_size();
  const int64_t widest = (job.model().config().vocab_size() + ranks - 1) / ranks;
  const auto width = static_cast<int64_t>(tensor::SizeOf(ComputeDType(job)));
  return graph::LossTileRows(rows, std::max<int64_t>(1, widest * width));
}

int64_t LossTilesOf(const v1::JobSpec& job) {
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  const int64_t tile = LossTileRowsOf(job);
  return (rows + tile - 1) / tile * job.parallelism().tensor_parallel_size();
}

static absl::Status CheckLossTiles(const v1::JobSpec& job) {
  const int64_t tiles = LossTilesOf(job);
  if (tiles <= kMostLossTiles) return absl::OkStatus();
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  const int64_t ranks = job.parallelism().tensor_parallel_size();
  const int64_t most = std::max<int64_t>(1, kMostLossTiles / ranks);
  return absl::InvalidArgumentError(absl::StrCat("training.loss_tile_rows: ", LossTileRowsOf(job),
                                                 " of the ", rows, " rows of a micro-batch make ",
                                                 tiles, " tiles over ", ranks,
                                                 " tensor ranks, expected at most ", kMostLossTiles,
                                                 "; use ", (rows + most - 1) / most, " or more"));
}

// To lower a stage takes about 15 us for each two of its layers, for each of its tensor ranks.
static absl::Status CheckDepth(const v1::Plan& plan, uint64_t stages) {
  const auto layers = static_cast<double>(plan.job().model().config().num_hidden_layers());
  const double pairs =
      layers * layers / static_cast<double>(stages) * static_cast<double>(plan.mesh().tensor());
  constexpr double kMostPairs = 1 << 21;
  if (pairs <= kMostPairs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "model.config.num_hidden_layers: ", layers, " layers on ", stages, " stages of ",
      plan.mesh().tensor(),
      " tensor ranks are too many to plan, expected layers x layers x tensor "
      "ranks / stages of at most ",
      kMostPairs, "; raise parallelism.pipeline_parallel_size or lower tensor_parallel_size"));
}

absl::Status CheckExtent(const v1::Plan& plan) {
  const v1::ModelConfig& model = plan.job().model().config();
  const int64_t samples = plan.job().training().micro_batch_size();
  const int64_t tokens = plan.job().data().sequence_length();
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  if (samples * tokens > kMostRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.micro_batch_size: ", samples, " x data.sequence_length ", tokens,
                     " = ", samples * tokens, " rows, expected at most ", kMostRows));
  }
  if (absl::Status tiles = CheckLossTiles(plan.job()); !tiles.ok()) return tiles;
  const int64_t heads = model.num_attention_heads() + 2 * model.num_key_value_heads();
  const double widths = static_cast<double>(model.hidden_size() + 2 * model.intermediate_size() +
                                            model.vocab_size()) +
                        static_cast<double>(heads) * static_cast<double>(model.head_dim());
  const double elements = static_cast<double>(samples * tokens + model.hidden_size() +
                                              model.max_position_embeddings()) *
                          widths * static_cast<double>(model.num_hidden_layers() + 2);
  constexpr double kMostElements = 0x1p50;
  if (elements > kMostElements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.config: with micro-batches of ", samples, " x ", tokens,
        " tokens it asks for about ", elements, " numbers, expected at most ", kMostElements));
  }
  const uint64_t stages = uint64_t{plan.mesh().pipeline()} *
                          static_cast<uint64_t>(plan.job().parallelism().virtual_stages());
  if (absl::Status depth = CheckDepth(plan, stages); !depth.ok()) return depth;
  // Each takes about 3 KiB and 30 us of the planner: no plan may fill a coordinator that others
  // use. Under ZeRO-2 and ZeRO-3 each block of a stage has instructions of its own.
  constexpr uint64_t kMostCells = 1 << 18;
  const bool by_block = ZeroStage(plan) >= 2;
  const uint64_t cells = by_block ? static_cast<uint64_t>(model.num_hidden_layers()) + 2 : stages;
  if (cells * plan.micro_batches() > kMostCells) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.micro_batch_size: ", plan.micro_batches(), " micro-batches through ",
                     cells, by_block ? " blocks (parallelism.zero_stage 2 and 3)" : " stages",
                     " are too many to plan one by one, expected a product of at most ", kMostCells,
                     "; use larger micro-batches, or more replicas"));
  }
  // Blocks of a stage have at most five buckets, by who writes them and what they are Partial over.
  constexpr int64_t kMostByBlock = static_cast<int64_t>(kMostBuckets) / 5;
  const int64_t own = plan.job().parallelism().virtual_stages();
  if (by_block && own > kMostByBlock) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parallelism.virtual_stages: ", own, " have more than ", kMostBuckets,
        " buckets where parallelism.zero_stage is 2 or 3, expected at most ", kMostByBlock));
  }
  if (stages > kMostCuts + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("parallelism.pipeline_parallel_size: ", stages, " stages (with ",
                     "parallelism.virtual_stages) are too many, expected at most ", kMostCuts + 1));
  }
  return absl::OkStatus();
}

}  // namespace trireme::plan
