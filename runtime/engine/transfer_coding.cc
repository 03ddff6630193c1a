#include "runtime/engine/transfer_coding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/coded.h"
#include "runtime/plan/coded_transfers.h"

namespace trireme::engine {

namespace {

// The first steps that are coded are measured, and then one in so many: it costs about a fifth more
// coding.
constexpr uint64_t kStepsPerMeasurement = 16;
// Root mean square of the error over that of the values, from which on the loss was measurably
// worse (docs/performance.md, training within a bound). What gradients lose, later ones make up
// for; an activation's error goes through all later layers.
constexpr double kLargeSumError = 0.5;
constexpr double kLargeMessageError = 0.08;

// A row or column that had hardly a gradient yet is coded no finer than this part of the tensor.
constexpr double kLeastRelativeScale = 1.0 / 64;
// Norms and biases are few: they cost little, and get a quarter of the bound.
constexpr double kOfVectors = 0.25;
constexpr float kUnknownScale = 0x1p-40F;

// The nearest by ratio, of those that lines may have.
float NearestPowerOfTwo(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [1/2, 1)
  if (mantissa < M_SQRT1_2) --exponent;
  constexpr int kLeast = -50, kMost = 50;
  return std::ldexp(1.0F, std::clamp(exponent, kLeast, kMost));
}

compress::Bound BoundOf(const std::string& text) {
  const auto bound = compress::ParseBound(text);
  TRIREME_CHECK(bound.ok());  // the planner has validated it
  return *bound;
}

}  // namespace

AxisCoding TransferCoding::Axis::Sum() const { return {.errors = all, .sum = totals.sum()}; }

void TransferCoding::Axis::Measure(const comm::CodingReport& report, double large) {
  if (!report.coded || report.value_squares == 0) return;
  ++step.measured;
  if (report.relative_error() > large) ++step.large;
}

TransferCoding::TransferCoding(const v1::Plan& plan, const plan::Coordinates& at,
                               const TrainingState& state, const TransferCounts& counts)
    : plan_(plan),
      program_(plan.stages(static_cast<int>(at.pipeline)).step()),
      state_(state),
      buckets_(state.buckets().size()),
      reports_(counts.tickets) {
  const v1::CompressionSpec& compression = plan.job().compression();
  for (const v1::Instruction& instruction : program_.instructions()) {
    if (instruction.kind() != v1::REDUCE || !instruction.coded()) continue;
    codes_sums_ = true;
    Bucket& bucket = buckets_[instruction.bucket()];
    bucket.run.end = static_cast<int64_t>(state.buckets()[instruction.bucket()].count());
    ++bucket.sums;
  }
  as_bf16_ = plan::SumsTravelAsBf16(plan.job());
  if (codes_sums_ && !as_bf16_) {
    data_.bound = BoundOf(compression.data_parallel().bound());
    data_.chooses = compression.data_parallel().mode() == "auto";
  }
  // What another stage has no part in, it still counts.
  if (counts.coded_messages > 0) {
    pipeline_.bound = BoundOf(compression.pipeline().bound());
    pipeline_.chooses = compression.pipeline().mode() == "auto";
    const auto stages = static_cast<size_t>(plan.job().parallelism().virtual_stages());
    links_.resize(2 * plan.mesh().pipeline() * stages);
  }
  LayOutBuckets();
}

// Every row is a line, whatever lies between parameters too.
void TransferCoding::LayOutBuckets() {
  if (as_bf16_) {
    for (Bucket& bucket : buckets_) bucket.run.format = comm::RunFormat::kBf16;
    return;
  }
  if (codes_sums_ && data_.bound.mode == compress::BoundMode::kRms) {
    size_t sums = 0, columns = 0;
    std::vector<int64_t> covered(buckets_.size(), 0);
    const auto& places = state_.gradients();
    for (size_t gradient = 0; gradient < places.size(); ++gradient) {
      const TrainingState::GradientPlace& place = places[gradient];
      Bucket& bucket = buckets_[place.bucket];
      if (bucket.run.end == 0) continue;
      int64_t& end = covered[place.bucket];
      if (end < place.begin) bucket.lines.push_back({.begin = end});
      const Tensor& tensor =
          tensors_.emplace_back(Tensor{.gradient = gradient,
                                       .first_line = bucket.lines.size(),
                                       .rows = static_cast<size_t>(place.rows),
                                       .columns = static_cast<size_t>(place.columns),
                                       .sums = sums,
                                       .column_scale = columns});
      for (int64_t row = 0; row < place.rows; ++row) {
        bucket.lines.push_back({.begin = place.begin + row * place.columns});
      }
      end = place.begin + place.rows * place.columns;
      sums += tensor.rows + tensor.columns;
      columns += place.matrix ? tensor.columns : 0;
    }
    for (size_t index = 0; index < buckets_.size(); ++index) {
      Bucket& bucket = buckets_[index];
      if (covered[index] < bucket.run.end) bucket.lines.push_back({.begin = covered[index]});
    }
    moments_.resize(sums);
    column_scales_.resize(columns);
  }
  for (const Tensor& tensor : tensors_) {
    const TrainingState::GradientPlace& place = state_.gradients()[tensor.gradient];
    for (size_t row = 0; row < tensor.rows && place.matrix; ++row) {
      buckets_[place.bucket].lines[tensor.first_line + row].columns =
          &column_scales_[tensor.column_scale];
    }
  }
  for (size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& bucket = buckets_[index];
    // What the tensor ranks have parts of is added up over them afterwards, errors too.
    const bool parts = plan::IsPartialOver(state_.buckets()[index], v1::AXIS_TENSOR);
    // And so are the sums of a step, one for each micro-batch under ZeRO-2 and ZeRO-3.
    const uint32_t terms = plan_.mesh().data() * (parts ? plan_.mesh().tensor() : 1) *
                           std::max(bucket.sums, uint32_t{1});
    bucket.run.bound = data_.bound.value / terms;
    bucket.run.lines = bucket.lines;
  }
}

std::span<double> TransferCoding::RowSums(const Tensor& tensor) {
  return std::span(moments_).subspan(tensor.sums, tensor.rows);
}

std::span<double> TransferCoding::ColumnSums(const Tensor& tensor) {
  return std::span(moments_).subspan(tensor.sums + tensor.rows, tensor.columns);
}

void TransferCoding::BeginStep(uint64_t step, int64_t updates) {
  measures_ = step % kStepsPerMeasurement == 1;
  data_.step = pipeline_.step = {};
  updates_ = updates;
  ready_ = codes_sums_ &&
           (as_bf16_ || data_.bound.mode == compress::BoundMode::kAbsolute || updates > 0);
}

void TransferCoding::SumMoments() {
  std::fill(moments_.begin(), moments_.end(), 0.0);
  for (const Tensor& tensor : tensors_) {
    state_.AddMoment2(tensor.gradient, RowSums(tensor), ColumnSums(tensor));
  }
}

void TransferCoding::SetBounds() {
  if (!ready_ || as_bf16_) return;
  const double correction =
      1 - std::pow(plan_.job().optimizer().beta2(), static_cast<double>(updates_));
  for (const Tensor& tensor : tensors_) SetScales(tensor, correction);
}

void TransferCoding::SetScales(const Tensor& tensor, double correction) {
  const TrainingState::GradientPlace& place = state_.gradients()[tensor.gradient];
  Bucket& bucket = buckets_[place.bucket];
  const std::span<double> rows = RowSums(tensor), columns = ColumnSums(tensor);
  const auto width = static_cast<double>(tensor.columns);
  double total = 0;
  for (const double row : rows) total += row;
  const double rms = std::sqrt(total / static_cast<double>(tensor.rows) / width / correction);
  // Nothing is known of a gradient that was always 0: what comes now is kept as it is.
  const bool known = std::isnormal(rms);
  for (size_t row = 0; row < tensor.rows; ++row) {
    const double own = std::sqrt(rows[row] / width / correction);
    const double scale = place.matrix ? std::max(own, rms * kLeastRelativeScale) : rms * kOfVectors;
    bucket.lines[tensor.first_line + row].row = known ? NearestPowerOfTwo(scale) : kUnknownScale;
  }
  if (!place.matrix) return;
  for (size_t column = 0; column < tensor.columns; ++column) {
    const double relative = known ? std::sqrt(columns[column] * width / total) : 1;
    column_scales_[tensor.column_scale + column] =
        NearestPowerOfTwo(std::max(relative, kLeastRelativeScale));
  }
}

const comm::Coding* TransferCoding::Of(const v1::Instruction& instruction) {
  if (!instruction.coded()) return nullptr;
  coding_ = {};
  coding_.measure_error = measures_;
  coding_.report = &reports_[instruction.ticket()];
  if (plan::IsMessage(instruction)) {
    coding_.message_bound = pipeline_.bound;
    coding_.totals = &pipeline_.totals;
    coding_.chooser = &links_[instruction.channel()].chooser;
    return &coding_;
  }
  const Bucket& bucket = buckets_[instruction.bucket()];
  coding_.enabled = ready_;
  coding_.runs = {&bucket.run, 1};
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
      data_.Measure(report, kLargeSumError);
      buckets_[instruction.bucket()].seconds += seconds;
    } else if (plan::IsSend(instruction)) {
      pipeline_.Measure(report, kLargeMessageError);
      links_[instruction.channel()].seconds += seconds;
    }
  }
  for (Axis* axis : {&data_, &pipeline_}) {
    axis->all.measured += axis->step.measured;
    axis->all.large += axis->step.large;
  }
  for (Bucket& bucket : buckets_) {
    const double seconds = std::exchange(bucket.seconds, 0);
    if (bucket.sums > 0 && data_.chooses && ready_) bucket.chooser.Record(seconds);
  }
  if (!pipeline_.chooses) return;
  for (Link& link : links_) link.chooser.Record(std::exchange(link.seconds, 0));
}

absl::Status TransferCoding::Agree(Groups& groups, tensor::Stream& stream,
                                   std::chrono::milliseconds deadline) {
  // The tensor ranks hold copies of the same activations and of some parameters: one of them coded
  // and another not, they would drift apart.
  const auto agree = [&](comm::Communicator* group, std::span<comm::CodingSwitch* const> switches) {
    comm::Communicator* const both[] = {group, groups.tensor.get()};
    const size_t count = groups.tensor == nullptr ? 1 : 2;
    return comm::AgreeOnCoding(std::span(both).first(count), switches, stream, deadline);
  };
  std::vector<comm::CodingSwitch*> switches;
  if (data_.chooses) {
    for (Bucket& bucket : buckets_) {
      if (bucket.chooser.due()) switches.push_back(&bucket.chooser);
    }
    RETURN_IF_ERROR(agree(groups.data.get(), switches));
  }
  if (!pipeline_.chooses) return absl::OkStatus();
  switches.clear();
  for (Link& link : links_) {
    if (link.chooser.due()) switches.push_back(&link.chooser);
  }
  return agree(groups.pipeline.get(), switches);
}

}  // namespace trireme::engine
