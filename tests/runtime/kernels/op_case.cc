// Which operands each operator and phase has, their guarded memory, and comparisons.
#include "tests/runtime/kernels/op_case.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/tensor/bf16.h"

namespace trireme::kernels {
namespace {

using graph::OpCall;
using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using tensor::BFloat16;
using tensor::DType;

constexpr int64_t kGuard = 256;  // elements before and after each operand: a few rows
constexpr std::byte kSentinel{0x7b};
constexpr const char* kOperandNames[] = {"kX",      "kY",  "kW",  "kB",    "kResidual", "kStats",
                                         "kTokens", "kDY", "kDX", "kBase", "kDW",       "kDB"};

int64_t InputColumns(const OpSpec& spec) {
  switch (spec.kind) {
    case OpKind::kLinear:
    case OpKind::kLmHeadLoss:
      return spec.inner;
    case OpKind::kAttention:
      return (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
    case OpKind::kSwiGlu:
      return 2 * spec.cols;
    default:
      return spec.cols;
  }
}

int64_t OutputColumns(const OpSpec& spec) {
  if (spec.kind == OpKind::kRope) return (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
  return spec.kind == OpKind::kAttention ? spec.heads * spec.head_dim : spec.cols;
}

OperandShape Dense(int64_t rows, int64_t cols, bool written) { return {rows, cols, cols, written}; }

OperandShape WeightShape(const OpSpec& spec, bool written) {
  switch (spec.kind) {
    case OpKind::kEmbedding:
      return Dense(spec.vocab_rows, spec.cols, written);
    case OpKind::kPositionEmbedding:
      return Dense(spec.weight_rows, spec.cols, written);
    case OpKind::kLinear:
    case OpKind::kLmHeadLoss:
      return spec.weight_layout == graph::WeightLayout::kInOut
                 ? Dense(spec.inner, spec.cols, written)
                 : Dense(spec.cols, spec.inner, written);
    default:
      return Dense(1, spec.cols, written);
  }
}

bool IsNorm(OpKind kind) { return kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm; }

// LossCombine has shapes of its own: kX holds the shares of all ranks, kDB the sum.
std::optional<OperandShape> LossCombineShape(const OpSpec& spec, Operand operand) {
  if (operand == graph::kX) return Dense(spec.tensor_ranks * spec.rows, 3, false);
  if (operand == graph::kY) return Dense(spec.rows, 1, true);
  if (operand == graph::kTokens) return Dense(spec.rows, 1, false);
  if (operand == graph::kDB) return Dense(1, 1, true);
  return std::nullopt;
}

bool Reads(const OpCase& op_case, Operand operand) {
  const OpSpec& spec = op_case.spec;
  const OpKind kind = spec.kind;
  const bool forward = spec.phase == Phase::kForward;
  const bool input_grad = spec.phase == Phase::kInputGrad;
  const bool product = kind == OpKind::kLinear || kind == OpKind::kLmHeadLoss;
  switch (operand) {
    case graph::kX:
      if (kind == OpKind::kEmbedding || kind == OpKind::kRope) return false;
      if (forward) return true;
      if (kind == OpKind::kPositionEmbedding || kind == OpKind::kResidualAdd) return false;
      return !(product && input_grad);
    case graph::kW:
      return (IsNorm(kind) || product || kind == OpKind::kEmbedding ||
              kind == OpKind::kPositionEmbedding) &&
             spec.phase != Phase::kWeightGrad;
    case graph::kB:
      return forward && op_case.bias &&
             (IsNorm(kind) || kind == OpKind::kLinear || kind == OpKind::kResidualAdd);
    case graph::kResidual:
      return forward && ((kind == OpKind::kLinear && spec.fused_residual) ||
                         (kind == OpKind::kResidualAdd && op_case.residual));
    case graph::kStats:
      return !forward && (IsNorm(kind) || kind == OpKind::kAttention);
    case graph::kTokens:
      return kind == OpKind::kEmbedding ||
             (kind == OpKind::kLmHeadLoss && spec.phase != Phase::kWeightGrad);
    case graph::kDY:
      return !forward && kind != OpKind::kLmHeadLoss && kind != OpKind::kRope;
    case graph::kY:
      return (kind == OpKind::kAttention && input_grad) ||
             (kind == OpKind::kLmHeadLoss && spec.phase == Phase::kWeightGrad);
    case graph::kBase:
      if (!input_grad) return false;
      if (kind == OpKind::kLmHeadLoss) return true;
      return op_case.base != BaseMemory::kAbsent &&
             (IsNorm(kind) || kind == OpKind::kLinear || kind == OpKind::kGelu);
    default:
      return false;
  }
}

bool Writes(const OpCase& op_case, Operand operand) {
  const OpSpec& spec = op_case.spec;
  const OpKind kind = spec.kind;
  const bool forward = spec.phase == Phase::kForward;
  switch (operand) {
    case graph::kY:
      return forward || (kind == OpKind::kLmHeadLoss && spec.phase == Phase::kInputGrad);
    case graph::kStats:
      return forward && (IsNorm(kind) || kind == OpKind::kAttention || kind == OpKind::kLmHeadLoss);
    case graph::kDY:
      return kind == OpKind::kRope && !forward;
    case graph::kDX:
      return spec.phase == Phase::kInputGrad && kind != OpKind::kRope;
    case graph::kDW:
      return spec.phase == Phase::kWeightGrad && kind != OpKind::kResidualAdd;
    case graph::kDB:
      return spec.phase == Phase::kWeightGrad && op_case.bias &&
             (IsNorm(kind) || kind == OpKind::kLinear || kind == OpKind::kResidualAdd);
    default:
      return false;
  }
}

size_t ElementBytes(const OpSpec& spec, Operand operand) {
  return tensor::SizeOf(StoredIn(spec, operand));
}

template <typename T>
double Read(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof(value));
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
void Write(double value, std::byte* place) {
  const T narrow =
      T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(value));
  std::memcpy(place, &narrow, sizeof(narrow));
}

int64_t Span(const OperandShape& shape) {
  return shape.rows == 0 || shape.cols == 0 ? 0 : (shape.rows - 1) * shape.ld + shape.cols;
}

// In (-1, 1), of 20 bits, hence exact in f32; rounded where values_in is narrower.
double RandomValue(const OpCase& op_case, Operand operand, int64_t index) {
  const base::RandomSite site{op_case.values, static_cast<uint64_t>(operand), 0};
  double value =
      static_cast<double>(site.Uniform32(static_cast<uint64_t>(index)) >> 12) * 0x1p-19 - 1.0;
  if (operand == graph::kW && IsNorm(op_case.spec.kind)) value = 1.0 + value / 2;
  // A share of the loss statistics: (max, a sum of at least 1, target logit).
  const bool share = operand == graph::kX && op_case.spec.kind == OpKind::kLossCombine;
  if (share && index % 3 == 1) value += 2.0;
  OpSpec held = op_case.spec;
  held.dtype = op_case.values_in;
  if (StoredIn(held, operand) != DType::kBf16) return value;
  return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
}

}  // namespace

DType StoredIn(const OpSpec& spec, Operand operand) {
  const DType accumulator = tensor::AccumulatorOf(spec.dtype);
  const bool loss = spec.kind == OpKind::kLossCombine;
  switch (operand) {
    case graph::kDB:
      return loss ? DType::kF64 : accumulator;
    case graph::kStats:
    case graph::kDW:
      return accumulator;
    case graph::kX:
    case graph::kY:
      return loss ? accumulator : spec.dtype;
    case graph::kBase:
      return spec.kind == OpKind::kLmHeadLoss ? accumulator : spec.dtype;
    default:
      return spec.dtype;
  }
}

OpSpec WithLeadingDimensions(OpSpec spec, int64_t padding) {
  spec.x_ld = InputColumns(spec) + padding;
  spec.y_ld = OutputColumns(spec) + padding;
  if (spec.kind == OpKind::kLmHeadLoss) spec.vocab_rows = spec.cols;
  return spec;
}

std::optional<OperandShape> ShapeOf(const OpCase& op_case, Operand operand) {
  const OpSpec& spec = op_case.spec;
  if (spec.kind == OpKind::kLossCombine) return LossCombineShape(spec, operand);
  const bool written = Writes(op_case, operand);
  if (!written && !Reads(op_case, operand)) return std::nullopt;
  switch (operand) {
    case graph::kX:
    case graph::kDX:
      return OperandShape{spec.rows, InputColumns(spec), spec.x_ld, written};
    case graph::kY:
    case graph::kDY:
    case graph::kResidual:
      return OperandShape{spec.rows, OutputColumns(spec), spec.y_ld, written};
    case graph::kBase:
      if (spec.kind == OpKind::kLmHeadLoss) return Dense(spec.rows, 1, false);
      return OperandShape{spec.rows, InputColumns(spec), spec.x_ld, false};
    case graph::kW:
    case graph::kDW:
      return WeightShape(spec, written);
    case graph::kB:
    case graph::kDB:
      return Dense(1, spec.cols, written);
    case graph::kStats:
      if (spec.kind == OpKind::kLmHeadLoss) return Dense(spec.rows, 3, written);
      if (spec.kind == OpKind::kAttention) return Dense(spec.rows, spec.heads, written);
      return Dense(spec.rows, spec.kind == OpKind::kLayerNorm ? 2 : 1, written);
    default:
      return Dense(spec.rows, 1, written);
  }
}

OpMemory::OpMemory(const OpCase& op_case) : case_(op_case) {
  const OpSpec& spec = case_.spec;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    shape_[operand] = ShapeOf(case_, operand);
    if (!shape_[operand] || operand == graph::kTokens) continue;
    const OperandShape& shape = *shape_[operand];
    memory_[operand].assign(
        static_cast<size_t>(Span(shape) + 2 * kGuard) * ElementBytes(spec, operand), kSentinel);
    for (int64_t index = 0; index < shape.rows * shape.cols; ++index) {
      SetAt(operand, index, RandomValue(case_, operand, index));
    }
  }
  if (!shape_[graph::kTokens]) return;
  const int64_t ids =
      case_.global_vocab > 0 ? case_.global_vocab : spec.vocab_begin + spec.vocab_rows + 2;
  const base::RandomSite site{case_.values, graph::kTokens, 0};
  tokens_.resize(static_cast<size_t>(spec.rows));
  for (size_t row = 0; row < tokens_.size(); ++row) {
    tokens_[row] = static_cast<int32_t>(site.Uniform(2 * row) * static_cast<double>(ids));
    const bool target = spec.kind != OpKind::kEmbedding;
    if (target && site.Uniform(2 * row + 1) < case_.not_counted) tokens_[row] = -1;
  }
}

// kBase of BaseMemory::kSameAsDx lives in kDX.
std::byte* OpMemory::Memory(Operand operand) {
  return const_cast<std::byte*>(std::as_const(*this).Memory(operand));
}

const std::byte* OpMemory::Memory(Operand operand) const {
  const bool same = operand == graph::kBase && case_.base == BaseMemory::kSameAsDx &&
                    case_.spec.kind != OpKind::kLmHeadLoss;
  return memory_[same ? graph::kDX : operand].data();
}

size_t OpMemory::Offset(Operand operand, int64_t index) const {
  const OperandShape& shape = *shape_[operand];
  const int64_t element = kGuard + index / shape.cols * shape.ld + index % shape.cols;
  return static_cast<size_t>(element) * ElementBytes(case_.spec, operand);
}

double OpMemory::At(Operand operand, int64_t index) const {
  const std::byte* place = Memory(operand) + Offset(operand, index);
  switch (StoredIn(case_.spec, operand)) {
    case DType::kF64:
      return Read<double>(place);
    case DType::kBf16:
      return Read<BFloat16>(place);
    default:
      return Read<float>(place);
  }
}

void OpMemory::SetAt(Operand operand, int64_t index, double value) {
  std::byte* place = Memory(operand) + Offset(operand, index);
  switch (StoredIn(case_.spec, operand)) {
    case DType::kF64:
      return Write<double>(value, place);
    case DType::kBf16:
      return Write<BFloat16>(value, place);
    default:
      return Write<float>(value, place);
  }
}

std::vector<double> OpMemory::Get(Operand operand) const {
  TRIREME_CHECK(Has(operand));
  std::vector<double> values(static_cast<size_t>(shape_[operand]->rows * shape_[operand]->cols));
  for (size_t index = 0; index < values.size(); ++index) {
    values[index] = At(operand, static_cast<int64_t>(index));
  }
  return values;
}

void OpMemory::Set(Operand operand, const std::vector<double>& values) {
  TRIREME_CHECK(Has(operand));
  TRIREME_CHECK(static_cast<int64_t>(values.size()) ==
                shape_[operand]->rows * shape_[operand]->cols);
  for (size_t index = 0; index < values.size(); ++index) {
    SetAt(operand, static_cast<int64_t>(index), values[index]);
  }
}

std::string OpMemory::Run(Kernel& kernel) {
  OpCall call;
  call.accumulate = case_.accumulate;
  call.first_sample = case_.first_sample;
  call.seed = case_.seed;
  call.step = case_.step;
  call.training = case_.training;
  call.loss_scale = case_.loss_scale;
  scratch_.resize(kernel.ScratchBytes() + 64);
  void* aligned = scratch_.data();
  size_t space = scratch_.size();
  std::align(64, kernel.ScratchBytes(), aligned, space);
  call.scratch = {static_cast<std::byte*>(aligned), kernel.ScratchBytes()};
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    if (!Has(operand)) continue;
    call.operand[operand] =
        operand == graph::kTokens
            ? static_cast<void*>(tokens_.data())
            : Memory(operand) + static_cast<size_t>(kGuard) * ElementBytes(case_.spec, operand);
  }
  const auto before = memory_;
  const auto tokens_before = tokens_;
  kernel.Run(call);
  if (tokens_ != tokens_before) return "kTokens was changed";
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    if (memory_[operand] == before[operand]) continue;
    // What lies outside of an output, and all of an input, is as it was.
    auto expected = before[operand];
    const OperandShape& shape = *shape_[operand];
    if (shape.written) {
      for (int64_t index = 0; index < shape.rows * shape.cols; ++index) {
        const size_t offset = Offset(operand, index);
        std::memcpy(expected.data() + offset, memory_[operand].data() + offset,
                    ElementBytes(case_.spec, operand));
      }
    }
    if (memory_[operand] != expected) {
      return std::string(kOperandNames[name]) +
             (shape.written ? ": memory outside of it was changed" : ": an input was changed");
    }
  }
  return "";
}

std::unique_ptr<Kernel> PrepareKernel(const KernelRegistry& registry, const OpSpec& spec) {
  auto kernel = registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 30, .threads = 1});
  INFO((kernel.ok() ? std::string() : std::string(kernel.status().message())));
  REQUIRE(kernel.ok());
  return std::move(*kernel);
}

OpMemory PrepareBackward(const KernelRegistry& registry, const OpCase& op_case) {
  OpMemory memory(op_case);
  const OpSpec& spec = op_case.spec;
  if (spec.phase == Phase::kForward) return memory;
  const bool needs_forward =
      IsNorm(spec.kind) || spec.kind == OpKind::kAttention || spec.kind == OpKind::kLmHeadLoss;
  if (!needs_forward) return memory;
  OpCase forward = op_case;
  forward.spec.phase = Phase::kForward;
  OpMemory first(forward);
  REQUIRE(first.Run(*PrepareKernel(registry, forward.spec)) == "");
  for (Operand operand : {graph::kStats, graph::kY}) {
    if (memory.Has(operand)) memory.Set(operand, first.Get(operand));
  }
  if (spec.kind == OpKind::kLmHeadLoss && spec.phase == Phase::kInputGrad) {
    // As if another rank held as much again of the vocabulary.
    std::vector<double> lse(static_cast<size_t>(spec.rows));
    for (int64_t row = 0; row < spec.rows; ++row) {
      lse[static_cast<size_t>(row)] = spec.cols == 0
                                          ? 0.5
                                          : first.At(graph::kStats, 3 * row) +
                                                std::log(2 * first.At(graph::kStats, 3 * row + 1));
    }
    memory.Set(graph::kBase, lse);
  }
  return memory;
}

Difference Compare(const OpMemory& expected, const OpMemory& actual, double floor) {
  Difference difference;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    const auto shape = ShapeOf(expected.op_case(), operand);
    if (!shape || !shape->written) continue;
    const std::vector<double> a = expected.Get(operand);
    const std::vector<double> b = actual.Get(operand);
    double scale = floor;
    for (double value : a) {
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
    }
    for (size_t index = 0; index < a.size(); ++index) {
      if (a[index] == b[index] || (std::isnan(a[index]) && std::isnan(b[index]))) continue;
      double relative = std::abs(a[index] - b[index]) / scale;
      if (std::isnan(relative)) relative = std::numeric_limits<double>::infinity();
      if (relative <= difference.worst) continue;
      difference.worst = relative;
      difference.where = std::string(kOperandNames[name]) + "[" + std::to_string(index) +
                         "]: " + std::to_string(a[index]) + " against " + std::to_string(b[index]);
    }
  }
  return difference;
}

OpMemory Converted(const OpMemory& memory, DType dtype) {
  OpCase op_case = memory.op_case();
  op_case.spec.dtype = dtype;
  OpMemory converted(op_case);
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    if (operand == graph::kTokens || !memory.Has(operand)) continue;
    converted.Set(operand, memory.Get(operand));
  }
  converted.tokens() = memory.tokens();
  return converted;
}

OpMemory ExactOperands(const KernelRegistry& exact, const OpCase& op_case) {
  OpCase wide = op_case;
  wide.spec.dtype = DType::kF64;
  wide.values_in = op_case.spec.dtype;
  return Converted(Converted(PrepareBackward(exact, wide), op_case.spec.dtype), DType::kF64);
}

Difference CompareKernels(const KernelRegistry& exact, const KernelRegistry& actual,
                          const OpCase& op_case, double floor) {
  OpMemory a = ExactOperands(exact, op_case);
  OpMemory b = Converted(a, op_case.spec.dtype);
  const std::string damage =
      a.Run(*PrepareKernel(exact, a.op_case().spec)) + b.Run(*PrepareKernel(actual, op_case.spec));
  if (!damage.empty()) return {std::numeric_limits<double>::infinity(), damage};
  return Compare(a, b, floor);
}

}  // namespace trireme::kernels
