// Guarded memory for the operands that an operator's schema names, and comparisons.
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
using graph::OperandSchema;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using tensor::BFloat16;
using tensor::DType;

constexpr int64_t kGuard = 256;  // elements before and after each operand: a few rows
constexpr std::byte kSentinel{0x7b};
constexpr const char* kOperandNames[] = {"kX",      "kY",  "kW",  "kB",    "kResidual", "kStats",
                                         "kTokens", "kDY", "kDX", "kBase", "kDW",       "kDB"};

bool IsNorm(OpKind kind) { return kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm; }

const OperandSchema* SchemaOf(const OpSpec& spec, Operand operand) {
  return graph::SchemaOf(spec.kind).Find(spec.phase, operand);
}

bool Has(const OpCase& op_case, const OperandSchema& operand) {
  if (!operand.optional) return true;
  if (operand.name == graph::kBase) return op_case.base != BaseMemory::kAbsent;
  if (operand.name == graph::kY) return op_case.restored;
  return operand.name == graph::kResidual ? op_case.residual : op_case.bias;
}

// Columns of a value or of its gradient, whichever the phase has.
int64_t ColumnsOf(const OpSpec& spec, Operand value, Operand gradient) {
  const OperandSchema* schema = SchemaOf(spec, value);
  if (schema == nullptr) schema = SchemaOf(spec, gradient);
  return schema == nullptr ? spec.cols : schema->shape(spec).cols;
}

size_t ElementBytes(const OpSpec& spec, Operand operand) {
  return tensor::SizeOf(StoredIn(spec, operand));
}

// Calls `visit` with a number of the type that `dtype` names.
template <typename Visit>
void AsTyped(DType dtype, const Visit& visit) {
  if (dtype == DType::kF64) return visit(double{});
  if (dtype == DType::kBf16) return visit(BFloat16{});
  visit(float{});
}

template <typename T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

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
  return SchemaOf(spec, operand)->DTypeIn(spec);
}

OpSpec WithLeadingDimensions(OpSpec spec, int64_t padding) {
  spec.x_ld = ColumnsOf(spec, graph::kX, graph::kDX) + padding;
  spec.y_ld = ColumnsOf(spec, graph::kY, graph::kDY) + padding;
  if (spec.kind == OpKind::kLmHeadLoss) spec.vocab_rows = spec.cols;
  return spec;
}

std::optional<OperandShape> ShapeOf(const OpCase& op_case, Operand operand) {
  const OperandSchema* schema = SchemaOf(op_case.spec, operand);
  if (schema == nullptr || !Has(op_case, *schema)) return std::nullopt;
  return OperandShape{schema->shape(op_case.spec), schema->access != graph::Access::kRead};
}

OpMemory::OpMemory(const OpCase& op_case) : case_(op_case) {
  const OpSpec& spec = case_.spec;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const Operand operand = static_cast<Operand>(name);
    shape_[operand] = ShapeOf(case_, operand);
    if (!shape_[operand] || operand == graph::kTokens) continue;
    const OperandShape& shape = *shape_[operand];
    memory_[operand].assign(
        static_cast<size_t>(shape.Span() + 2 * kGuard) * ElementBytes(spec, operand), kSentinel);
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
  const bool same =
      case_.base == BaseMemory::kSameAsDx && SchemaOf(case_.spec, operand)->may_be == graph::kDX;
  return memory_[same ? graph::kDX : operand].data();
}

size_t OpMemory::Offset(Operand operand, int64_t index) const {
  const OperandShape& shape = *shape_[operand];
  const int64_t element = kGuard + index / shape.cols * shape.ld + index % shape.cols;
  return static_cast<size_t>(element) * ElementBytes(case_.spec, operand);
}

double OpMemory::At(Operand operand, int64_t index) const {
  const std::byte* place = Memory(operand) + Offset(operand, index);
  double result = 0;
  AsTyped(StoredIn(case_.spec, operand), [&]<typename T>(T value) {
    std::memcpy(&value, place, sizeof(value));
    result = static_cast<double>(static_cast<Arithmetic<T>>(value));
  });
  return result;
}

void OpMemory::SetAt(Operand operand, int64_t index, double value) {
  std::byte* place = Memory(operand) + Offset(operand, index);
  AsTyped(StoredIn(case_.spec, operand), [&]<typename T>(T narrow) {
    narrow = T(static_cast<Arithmetic<T>>(value));
    std::memcpy(place, &narrow, sizeof(narrow));
  });
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
  scratch_.assign(kernel.ScratchBytes() + 64, std::byte{0xFF});  // NaNs: nothing to rely on
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
  const auto of_forward = [&](Operand operand) {
    return memory.Has(operand) && SchemaOf(spec, operand)->access != graph::Access::kWrite;
  };
  if (!of_forward(graph::kStats) && !of_forward(graph::kY)) return memory;
  OpCase forward = op_case;
  forward.spec.phase = Phase::kForward;
  OpMemory first(forward);
  REQUIRE(first.Run(*PrepareKernel(registry, forward.spec)) == "");
  for (Operand operand : {graph::kStats, graph::kY}) {
    if (of_forward(operand)) memory.Set(operand, first.Get(operand));
  }
  if (spec.kind == OpKind::kLmHeadLoss && spec.phase == Phase::kInputGrad) {
    // As if another rank held as much again of the vocabulary.
    for (int64_t row = 0; row < spec.rows; ++row) {
      const double greatest = first.At(graph::kStats, 3 * row);
      const double sum = 2 * first.At(graph::kStats, 3 * row + 1);
      memory.SetAt(graph::kBase, row, spec.cols == 0 ? 0.5 : greatest + std::log(sum));
    }
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
