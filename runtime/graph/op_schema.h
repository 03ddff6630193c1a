// What is known of an operator, all in its own file op_<operator>.cc: what it means, which operands
// each phase has, what it costs, how its node is lowered and derived. Lowering, the registry of
// kernels and their tests read these tables, so that a new operator is said once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/graph/op_spec.h"
#include "runtime/tensor/dtype.h"

namespace trireme::graph {

class StageLowering;
struct LoweringScope;
struct Node;

enum class Access : uint8_t {
  kRead,
  kWrite,
  kReadWrite,   // changed in place
  kAccumulate,  // written, or added to where OpCall::accumulate
};

// What memory an operand is in.
enum class Space : uint8_t { kNone, kBuffer, kParameter, kGradient, kTokens, kTargets, kLossSum };

// What an operand is stored in: the dtype of its OpSpec, AccumulatorOf that, or one for all.
enum class Stored : uint8_t { kCompute, kAccumulator, kI32, kF64 };

// A matrix whose rows lie ld elements apart.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  // Elements from its first to the end of its last.
  int64_t Span() const { return rows == 0 || cols == 0 ? 0 : (rows - 1) * ld + cols; }
};
using ShapeRule = Shape (*)(const OpSpec& spec);

struct OperandSchema {
  Operand name = kOperandCount;
  Access access = Access::kRead;
  ShapeRule shape = nullptr;  // null: of a collective, all elements of LoweredOp::offsets
  Space space = Space::kBuffer;
  Stored stored = Stored::kCompute;
  bool optional = false;           // a node may lack it
  Operand may_be = kOperandCount;  // may be the same memory as this operand

  tensor::DType DTypeIn(const OpSpec& spec) const;
};

// Whether backward may run the forward again in place of keeping its outputs.
enum class Recompute : uint8_t {
  kNever,      // its forward adds to a sum, or backward overwrites what it gave
  kInBlock,    // with its whole block: costs as much as what it would spare, or is in place
  kSelective,  // by itself: few flops for the bytes it spares, and its inputs stay as they are
};

struct OpSchema {
  std::string_view name;
  // By phase, then operand; a phase without any does not exist.
  OperandSchema operands[3][8] = {};
  double (*flops)(const OpSpec& spec) = nullptr;  // of any phase; null: none worth counting
  Recompute recompute = Recompute::kNever;
  // False: weight-grad runs right after its input-grad, even where the two lists are separate.
  bool weight_grad_waits = true;
  // Of an operator that is a node of a ModelGraph: all of its OpSpec but the phase, and the rules
  // that add the operators of the node's forward and backward.
  OpSpec (*spec)(const LoweringScope& scope, const Node& node) = nullptr;
  void (*forward)(StageLowering& stage, const Node& node) = nullptr;
  void (*backward)(StageLowering& stage, const Node& node) = nullptr;

  std::span<const OperandSchema> Operands(Phase phase) const;
  // Null where the phase has no such operand.
  const OperandSchema* Find(Phase phase, Operand name) const;
};

const OpSchema& SchemaOf(OpKind kind);

}  // namespace trireme::graph
