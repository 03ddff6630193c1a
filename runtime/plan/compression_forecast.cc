#include "runtime/plan/compression_forecast.h"

#include "runtime/layout/layout.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"

namespace trireme::plan {

namespace {

void Add(double bytes, bool coded, TransferBytes& sum) {
  (coded ? sum.coded : sum.plain) += bytes;
  sum.coded_transfers += coded ? 1 : 0;
  ++sum.transfers;
}

void RaiseTo(const TransferBytes& stage, TransferBytes& most) {
  if (stage.coded + stage.plain > most.coded + most.plain) most = stage;
}

}  // namespace

TransferBytes DataBytes(const v1::Plan& plan) {
  const double replicas = plan.mesh().data();
  const tensor::DType compute = ComputeDType(plan.job());
  const auto width = [&](v1::PoolKind kind) {
    return static_cast<double>(tensor::SizeOf(StateDType(compute, kind)));
  };
  const bool sharded = ZeroStage(plan) > 0;
  TransferBytes most;
  if (plan.mesh().data() < 2) return most;
  for (const v1::StagePlan& stage : plan.stages()) {
    TransferBytes sum;
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      const bool reduce = instruction.kind() == v1::REDUCE;
      if (!reduce && instruction.kind() != v1::GATHER) continue;
      const v1::Bucket& bucket = stage.buckets(static_cast<int>(instruction.bucket()));
      const double ways = reduce && !sharded ? 2 : 1;
      const double bytes = (replicas - 1) / replicas * width(reduce ? v1::GRADIENT : v1::PARAMETER);
      Add(ways * bytes * static_cast<double>(bucket.count()), instruction.coded(), sum);
    }
    RaiseTo(sum, most);
  }
  return most;
}

TransferBytes PipelineBytes(const v1::Plan& plan) {
  const v1::JobSpec& job = plan.job();
  int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  if (job.parallelism().sequence_parallel()) {
    rows = layout::SplitEvenly(rows, plan.mesh().tensor(), 0).size();
  }
  const double bytes = static_cast<double>(rows * job.model().config().hidden_size()) *
                       static_cast<double>(tensor::SizeOf(ComputeDType(job)));
  TransferBytes most;
  for (const v1::StagePlan& stage : plan.stages()) {
    TransferBytes sum;
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      const bool send = instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::SEND_GRAD;
      if (send) Add(bytes, instruction.coded(), sum);
    }
    RaiseTo(sum, most);
  }
  return most;
}

CompressionForecast Forecast(const TransferBytes& bytes, const CodecFigures& codec,
                             double link_bytes_per_s) {
  CompressionForecast forecast;
  const double both = 1 / codec.compress_bytes_per_s + 1 / codec.decompress_bytes_per_s;
  forecast.pays_overlapped_below_bytes_per_s = 1 / both;
  forecast.pays_below_bytes_per_s = (1 - 1 / codec.ratio) / both;
  if (link_bytes_per_s > 0) {
    forecast.plain_s = (bytes.coded + bytes.plain) / link_bytes_per_s;
    forecast.coded_s =
        (bytes.coded / codec.ratio + bytes.plain) / link_bytes_per_s + bytes.coded * both;
  }
  return forecast;
}

}  // namespace trireme::plan
