// What all reference kernels have in common: NaN is never hidden, runs repeat to the bit, ranks
// that are threads may run at once, aliases and accumulation add exactly, and the registry says
// what is missing.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::Phase;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Check>
void ForAllCases(tensor::DType dtype, Check check) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kLossCombine); ++kind) {
    for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      for (const OpCase& op_case : VariedCases(static_cast<OpKind>(kind), phase, dtype)) {
        check(op_case);
      }
    }
  }
}

bool WritesNan(const OpMemory& memory) {
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const auto shape = ShapeOf(memory.op_case(), static_cast<Operand>(name));
    if (!shape || !shape->written || name == graph::kTokens) continue;
    for (double value : memory.Get(static_cast<Operand>(name))) {
      if (std::isnan(value)) return true;
    }
  }
  return false;
}

// Not read are weights of tokens that do not occur, rows that are not counted, positions past the
// sequence, and the factors of products one dimension of which is empty.
bool IsRead(OpMemory& memory, const OpCase& op_case, Operand operand, int64_t index) {
  const graph::OpSpec& spec = op_case.spec;
  if (spec.rows == 0) return false;
  switch (spec.kind) {
    case OpKind::kEmbedding: {
      const int64_t row = index / spec.cols;
      if (operand == graph::kW) {
        for (int32_t token : memory.tokens()) {
          if (token - spec.vocab_begin == row) return true;
        }
        return false;
      }
      const int64_t id = memory.tokens()[static_cast<size_t>(row)] - spec.vocab_begin;
      return id >= 0 && id < spec.vocab_rows;
    }
    case OpKind::kPositionEmbedding:
      if (operand != graph::kW) return true;
      for (int64_t r = 0; r < spec.rows; ++r) {
        if ((spec.row_begin + r) % spec.tokens == index / spec.cols) return true;
      }
      return false;
    case OpKind::kLinear:
      if (operand == graph::kX || operand == graph::kW || operand == graph::kDY) {
        const bool bias = spec.phase == Phase::kWeightGrad && op_case.bias && operand == graph::kDY;
        return (spec.cols > 0 && spec.inner > 0) || bias;
      }
      return true;
    case OpKind::kLmHeadLoss:
      if (spec.phase == Phase::kInputGrad && (operand == graph::kBase || operand == graph::kY)) {
        const int64_t row = operand == graph::kBase ? index : index / spec.cols;
        return spec.cols > 0 && memory.tokens()[static_cast<size_t>(row)] >= 0;
      }
      return spec.cols > 0 && spec.inner > 0;
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      return spec.phase != Phase::kInputGrad || operand != graph::kB || op_case.restored;
    case OpKind::kResidualAdd:
      return spec.phase != Phase::kWeightGrad || op_case.bias;
    case OpKind::kLossCombine:
      return index % 3 != 2 || memory.tokens()[static_cast<size_t>(index / 3 % spec.rows)] >= 0;
    default:
      return true;
  }
}

bool InPlace(const OpCase& op_case, Operand operand) {
  const auto* schema = graph::SchemaOf(op_case.spec.kind).Find(op_case.spec.phase, operand);
  return schema->access == graph::Access::kReadWrite;
}

TEST_CASE("reference: a NaN in any operand that is read reaches the output") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  int64_t planted = 0;
  const auto plant = [&](const OpCase& op_case) {
    const OpMemory clean = PrepareBackward(registry, op_case);
    const auto kernel = PrepareKernel(registry, op_case.spec);
    for (int name = 0; name < graph::kOperandCount; ++name) {
      const Operand operand = static_cast<Operand>(name);
      if (operand == graph::kTokens || !clean.Has(operand)) continue;
      if (ShapeOf(op_case, operand)->written && !InPlace(op_case, operand)) continue;
      const int64_t size = static_cast<int64_t>(clean.Get(operand).size());
      for (int64_t index = 0; index < size; index += std::max<int64_t>(1, size / 3)) {
        OpMemory memory = clean;
        if (!IsRead(memory, op_case, operand, index)) continue;
        memory.SetAt(operand, index, kNan);
        INFO(Describe(op_case) << " operand " << name << " element " << index);
        REQUIRE(memory.Run(*kernel) == "");
        CHECK(WritesNan(memory));
        ++planted;
      }
    }
  };
  ForAllCases(tensor::DType::kF32, plant);
  const int64_t in_f32 = planted;
  CHECK(in_f32 > 1000);
  ForAllCases(tensor::DType::kBf16, plant);
  CHECK(planted == 2 * in_f32);
}

TEST_CASE("reference: what an output held before does not matter, even a NaN") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  const auto hold = [&](const OpCase& op_case) {
    if (op_case.accumulate || op_case.base == BaseMemory::kSameAsDx) return;
    OpMemory memory = PrepareBackward(registry, op_case);
    for (Operand operand : {graph::kY, graph::kStats, graph::kDX, graph::kDW, graph::kDB}) {
      const auto shape = ShapeOf(op_case, operand);
      if (!shape || !shape->written || InPlace(op_case, operand)) continue;
      memory.Set(operand,
                 std::vector<double>(static_cast<size_t>(shape->rows * shape->cols), kNan));
    }
    INFO(Describe(op_case));
    REQUIRE(memory.Run(*PrepareKernel(registry, op_case.spec)) == "");
    CHECK(!WritesNan(memory));
  };
  ForAllCases(tensor::DType::kF64, hold);
  ForAllCases(tensor::DType::kBf16, hold);
}

// Sums with what was there before: one rounding more than the sum alone.
TEST_CASE("reference: accumulation and base add to what was there, wherever base lies") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  ForAllCases(tensor::DType::kF64, [&](const OpCase& varied) {
    if (varied.spec.phase == Phase::kForward) return;
    OpCase alone = varied;
    alone.accumulate = false;
    alone.base = BaseMemory::kAbsent;
    OpCase added = varied;
    added.accumulate = true;
    const OpMemory before = PrepareBackward(registry, added);
    OpMemory a = PrepareBackward(registry, alone);
    OpMemory b = before;
    INFO(Describe(varied));
    REQUIRE(a.Run(*PrepareKernel(registry, alone.spec)) == "");
    REQUIRE(b.Run(*PrepareKernel(registry, added.spec)) == "");
    const bool based = before.Has(graph::kBase) && varied.spec.kind != OpKind::kLmHeadLoss;
    for (const auto& [output, summand] : {std::pair{graph::kDX, graph::kBase},
                                          {graph::kDW, graph::kDW},
                                          {graph::kDB, graph::kDB}}) {
      if (!a.Has(output) || (output == graph::kDX && !based)) continue;
      const std::vector<double> gradient = a.Get(output);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const int64_t index = static_cast<int64_t>(i);
        const double expected = gradient[i] + before.At(summand, index);
        // Sums of up to 130 products below 2 that start elsewhere.
        CHECK(std::abs(b.At(output, index) - expected) <= 2 * 130 * 0x1p-52);
      }
    }
  });
}

TEST_CASE("reference: threads running at once get the same bits as one alone") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  OpCase op_case;
  op_case.spec.kind = OpKind::kLinear;
  op_case.spec.rows = 61;
  op_case.spec.cols = 83;
  op_case.spec.inner = 57;
  op_case.spec = WithLeadingDimensions(op_case.spec, 5);
  for (tensor::DType dtype : {tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kBf16}) {
    op_case.spec.dtype = dtype;
    for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      op_case.spec.phase = phase;
      OpMemory alone(op_case);
      REQUIRE(alone.Run(*PrepareKernel(registry, op_case.spec)) == "");
      std::vector<double> worst(8, -1);
      std::vector<std::thread> threads;
      std::vector<std::unique_ptr<Kernel>> kernels;
      for (size_t t = 0; t < worst.size(); ++t)
        kernels.push_back(PrepareKernel(registry, op_case.spec));
      for (size_t t = 0; t < worst.size(); ++t) {
        threads.emplace_back([&, t] {
          double difference = 0;
          for (int round = 0; round < 20; ++round) {
            OpMemory memory(op_case);
            if (!memory.Run(*kernels[t]).empty()) difference = 1;
            difference = std::max(difference, Compare(alone, memory).worst);
          }
          worst[t] = difference;
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (double difference : worst) CHECK(difference == 0);
    }
  }
}

TEST_CASE(
    "registry: the first that takes the spec is chosen, and none is an error that says what is "
    "missing") {
  class Named : public Kernel {
   public:
    explicit Named(size_t bytes) : bytes_(bytes) {}
    void Run(const graph::OpCall&) override {}
    size_t ScratchBytes() const override { return bytes_; }

   private:
    size_t bytes_;
  };
  KernelRegistry registry;
  const auto narrow = [](const graph::OpSpec& spec,
                         const PrepareOptions& options) -> std::unique_ptr<Kernel> {
    if (spec.cols > 4 || options.scratch_limit_bytes < 10) return nullptr;
    return std::make_unique<Named>(10);
  };
  registry.Register(OpKind::kGelu, Phase::kForward, tensor::DType::kF32, "narrow", narrow);
  graph::OpSpec spec;
  spec.kind = OpKind::kGelu;
  spec.cols = 5;
  auto refused = registry.Prepare(spec, {.scratch_limit_bytes = 64});
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(refused.status().message()) ==
        "no kernel for Gelu (forward, f32): 0 rows, 5 columns and a scratch of 64 bytes are "
        "refused by narrow");
  registry.Register(
      OpKind::kGelu, Phase::kForward, tensor::DType::kF32, "wide",
      [](const graph::OpSpec&, const PrepareOptions&) { return std::make_unique<Named>(20); });
  CHECK((*registry.Prepare(spec, {.scratch_limit_bytes = 64}))->ScratchBytes() == 20);
  spec.cols = 4;
  CHECK((*registry.Prepare(spec, {.scratch_limit_bytes = 64}))->ScratchBytes() == 10);
  CHECK((*registry.Prepare(spec, {.scratch_limit_bytes = 0}))->ScratchBytes() == 20);
  spec.phase = Phase::kInputGrad;
  spec.dtype = tensor::DType::kF64;
  CHECK(std::string(registry.Prepare(spec, {}).status().message()) ==
        "no kernel for Gelu (input gradient, f64): none is registered; register the reference "
        "kernels");
}

}  // namespace
}  // namespace trireme::kernels
