#include "runtime/engine/transfer_coding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/message_fabric.h"

namespace trireme::engine {

namespace {

// The first steps that are coded are measured, and then one in so many: it costs about a fifth more
// coding.
constexpr uint64_t kStepsPerMeasurement = 16;
// Root mean square of the error over that of the values (docs/performance.md, training within a
// bound: from here on the loss was measurably worse).
constexpr double kLargeError = 0.2;

bool IsMessage(const v1::Instruction& instruction) {
  return instruction.kind() >= v1::SEND_ACT && instruction.kind() <= v1::RECV_GRAD;
}

bool IsSend(const v1::Instruction& instruction) {
  return instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::SEND_GRAD;
}

compress::Bound BoundOf(const std::string& text) {
  const auto bound = compress::ParseBound(text);
  TRIREME_CHECK(bound.ok());  // the planner has validated it
  return *bound;
}

// Most coded messages of one direction that a program of any stage has under way.
size_t MostCodedMessages(const v1::Plan& plan) {
  size_t most = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    std::vector<const v1::Instruction*> issued;
    size_t sends = 0, receives = 0;
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      if (instruction.ticket() >= issued.size()) issued.resize(instruction.ticket() + 1);
      const bool wait = instruction.kind() == v1::WAIT;
      const v1::Instruction* transfer = wait ? issued[instruction.ticket()] : &instruction;
      if (!wait) issued[instruction.ticket()] = &instruction;
      if (transfer == nullptr || !transfer->coded() || !IsMessage(*transfer)) continue;
      size_t& count = IsSend(*transfer) ? sends : receives;
      count += wait ? -1 : 1;
      most = std::max(most, count);
    }
  }
  return most;
}

}  // namespace

comm::CodingRoom DataRoom(const v1::Plan& plan) {
  for (const v1::StagePlan& stage : plan.stages()) {
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      if (instruction.kind() != v1::REDUCE || !instruction.coded()) continue;
      const int replicas = static_cast<int>(plan.mesh().data());
      return {.collective_bytes = std::max(comm::kCodingBytes, comm::LeastCodedBytes(replicas))};
    }
  }
  return {};
}

comm::CodingRoom PipelineRoom(const v1::Plan& plan) {
  return {.messages = MostCodedMessages(plan)};
}

AxisCoding TransferCoding::Axis::Sum() const { return {.errors = all, .sum = totals.sum()}; }

void TransferCoding::Axis::Measure(const comm::CodingReport& report) {
  if (!report.coded || report.value_squares == 0) return;
  ++step.measured;
  if (report.relative_error() > kLargeError) ++step.large;
}

TransferCoding::TransferCoding(const v1::Plan& plan, const plan::Coordinates& at,
                               const TrainingState& state, size_t tickets)
    : plan_(plan),
      program_(plan.stages(static_cast<int>(at.pipeline)).step()),
      state_(state),
      buckets_(state.buckets().size()),
      moments_(state.matrices().size()),
      reports_(tickets) {
  const v1::CompressionSpec& compression = plan.job().compression();
  std::vector<bool> marked(buckets_.size(), false);
  for (const v1::Instruction& instruction : program_.instructions()) {
    if (!instruction.coded()) continue;
    (IsMessage(instruction) ? pipeline_ : data_).active = true;
    if (instruction.kind() == v1::REDUCE) marked[instruction.bucket()] = true;
  }
  if (data_.active) {
    data_.bound = BoundOf(compression.data_parallel().bound());
    data_.chooses = compression.data_parallel().mode() == "auto";
  }
  // What another stage has no part in, it still counts.
  if (comm::CodingRoom room = PipelineRoom(plan); room.messages > 0) {
    pipeline_.bound = BoundOf(compression.pipeline().bound());
    pipeline_.chooses = compression.pipeline().mode() == "auto";
    const auto stages = static_cast<size_t>(plan.job().parallelism().virtual_stages());
    links_.resize(2 * plan.mesh().pipeline() * stages);
  }
  for (size_t matrix = 0; matrix < state.matrices().size(); ++matrix) {
    const TrainingState::Matrix& place = state.matrices()[matrix];
    if (!marked[place.bucket]) continue;
    buckets_[place.bucket].runs.push_back({.begin = place.begin, .end = place.end});
    buckets_[place.bucket].matrices.push_back(matrix);
  }
}

std::span<double> TransferCoding::BeginStep(uint64_t step, int threads) {
  measures_ = step % kStepsPerMeasurement == 1;
  data_.step = pipeline_.step = {};
  if (!data_.active || data_.bound.mode == compress::BoundMode::kAbsolute) return {};
  for (size_t matrix = 0; matrix < moments_.size(); ++matrix) {
    moments_[matrix] = state_.SumOfMoment2(matrix, threads);
  }
  return moments_;
}

void TransferCoding::SetBounds(int64_t updates) {
  if (!data_.active) return;
  const double replicas = plan_.mesh().data();
  const double correction =
      1 - std::pow(plan_.job().optimizer().beta2(), static_cast<double>(updates));
  for (Bucket& bucket : buckets_) {
    bucket.bounded = false;
    for (size_t index = 0; index < bucket.runs.size(); ++index) {
      comm::CodedRun& run = bucket.runs[index];
      double scale = 1;
      if (data_.bound.mode == compress::BoundMode::kRms) {
        const double mean =
            moments_[bucket.matrices[index]] / static_cast<double>(run.end - run.begin);
        scale = correction > 0 ? std::sqrt(mean / correction) : 0;
      }
      const double bound = data_.bound.value * scale / replicas;
      run.bound = std::isfinite(bound) ? bound : 0;
      bucket.bounded = bucket.bounded || run.bound > 0;
    }
  }
}

const comm::Coding* TransferCoding::Of(const v1::Instruction& instruction) {
  if (!instruction.coded()) return nullptr;
  coding_ = {};
  coding_.measure_error = measures_;
  coding_.report = &reports_[instruction.ticket()];
  if (IsMessage(instruction)) {
    coding_.message_bound = pipeline_.bound;
    coding_.totals = &pipeline_.totals;
    coding_.chooser = &links_[instruction.channel()].chooser;
    return &coding_;
  }
  const Bucket& bucket = buckets_[instruction.bucket()];
  coding_.enabled = bucket.bounded;
  coding_.runs = bucket.runs;
  coding_.totals = &data_.totals;
  coding_.chooser = &bucket.chooser;
  return &coding_;
}

void TransferCoding::EndStep() {
  for (const v1::Instruction& instruction : program_.instructions()) {
    if (!instruction.coded()) continue;
    const comm::CodingReport& report = reports_[instruction.ticket()];
    const double seconds = static_cast<double>(report.total_ns) * 1e-9;
    if (instruction.kind() == v1::REDUCE) {
      data_.Measure(report);
      Bucket& bucket = buckets_[instruction.bucket()];
      if (data_.chooses && bucket.bounded) bucket.chooser.Record(seconds);
    } else if (IsSend(instruction)) {
      pipeline_.Measure(report);
      links_[instruction.channel()].seconds += seconds;
    }
  }
  for (Axis* axis : {&data_, &pipeline_}) {
    axis->all.measured += axis->step.measured;
    axis->all.large += axis->step.large;
  }
  if (!pipeline_.chooses) return;
  for (Link& link : links_) link.chooser.Record(std::exchange(link.seconds, 0));
}

absl::Status TransferCoding::Agree(Groups& groups, tensor::Stream& stream,
                                   std::chrono::milliseconds deadline) {
  std::vector<comm::CodingSwitch*> switches;
  if (data_.chooses) {
    for (Bucket& bucket : buckets_) {
      if (bucket.chooser.due()) switches.push_back(&bucket.chooser);
    }
    RETURN_IF_ERROR(comm::AgreeOnCoding(*groups.data, switches, stream, deadline));
  }
  if (!pipeline_.chooses || !links_.front().chooser.due()) return absl::OkStatus();
  switches.clear();
  for (Link& link : links_) switches.push_back(&link.chooser);
  return comm::AgreeOnCoding(*groups.pipeline, switches, stream, deadline);
}

}  // namespace trireme::engine
