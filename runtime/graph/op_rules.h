// What the files op_<operator>.cc are written with: shapes and operands for their tables, specs and
// rules that several operators share. Internal to runtime/graph.
#pragma once

#include <cstdint>

#include "runtime/graph/op_schema.h"
#include "runtime/graph/stage_lowering.h"

namespace trireme::graph {

// In the order of OpKind.
extern const OpSchema kEmbeddingSchema, kPositionEmbeddingSchema, kLayerNormSchema, kRmsNormSchema,
    kLinearSchema, kRopeSchema, kAttentionSchema, kGeluSchema, kSwiGluSchema, kResidualAddSchema,
    kLmHeadLossSchema, kLossCombineSchema, kAllReduceSchema, kAllGatherSchema, kReduceScatterSchema;

constexpr Shape Dense(int64_t rows, int64_t cols) { return {rows, cols, cols}; }
// [rows, cols] activations at the leading dimension of x or y.
constexpr Shape XRows(const OpSpec& spec) { return {spec.rows, spec.cols, spec.x_ld}; }
constexpr Shape YRows(const OpSpec& spec) { return {spec.rows, spec.cols, spec.y_ld}; }
constexpr Shape InnerRows(const OpSpec& spec) { return {spec.rows, spec.inner, spec.x_ld}; }
constexpr Shape OneRow(const OpSpec& spec) { return Dense(1, spec.cols); }
template <int64_t kCols>
constexpr Shape PerRow(const OpSpec& spec) {
  return Dense(spec.rows, kCols);
}
// The weight of a product.
constexpr Shape Factor(const OpSpec& spec) {
  return spec.weight_layout == WeightLayout::kInOut ? Dense(spec.inner, spec.cols)
                                                    : Dense(spec.cols, spec.inner);
}
// Columns of queries, keys and values side by side.
constexpr int64_t PackedHeads(const OpSpec& spec) {
  return (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
}

constexpr double FlopsOfProduct(const OpSpec& spec) {
  return 2.0 * static_cast<double>(spec.rows * spec.cols * spec.inner);
}

constexpr OperandSchema Read(Operand name, ShapeRule shape) { return {name, Access::kRead, shape}; }
constexpr OperandSchema Write(Operand name, ShapeRule shape) {
  return {name, Access::kWrite, shape};
}
constexpr OperandSchema InPlace(Operand name, ShapeRule shape) {
  return {name, Access::kReadWrite, shape};
}
constexpr OperandSchema Learned(Operand name, ShapeRule shape) {
  return {name, Access::kRead, shape, Space::kParameter};
}
constexpr OperandSchema GradientOf(Operand name, ShapeRule shape) {
  return {name, Access::kAccumulate, shape, Space::kGradient, Stored::kAccumulator};
}
constexpr OperandSchema TokensIn(Space space) {
  return {kTokens, Access::kRead, PerRow<1>, space, Stored::kI32};
}
// Of the accumulator's dtype.
constexpr OperandSchema Wide(OperandSchema operand) {
  operand.stored = Stored::kAccumulator;
  return operand;
}
constexpr OperandSchema Optional(OperandSchema operand) {
  operand.optional = true;
  return operand;
}
// Added to dx, perhaps in its memory.
constexpr OperandSchema BaseOfDx(ShapeRule shape) {
  return {.name = kBase, .shape = shape, .optional = true, .may_be = kDX};
}

// The output, given once more by an input-grad that has all it is made of: see restore.h.
constexpr OperandSchema Restored(ShapeRule shape) { return Optional(Write(kY, shape)); }

// Kind, dtype and dropout.
OpSpec SpecOf(const LoweringScope& scope, const Node& node);
// Of an operator on this rank's rows of the residual stream.
OpSpec RowSpec(const LoweringScope& scope, const Node& node);
// Of an operator on this rank's columns of all rows.
OpSpec ColumnSpec(const LoweringScope& scope, const Node& node);
// ColumnSpec on packed heads.
OpSpec HeadSpec(const LoweringScope& scope, const Node& node);

// From x to y in the residual stream; kGathered: y is at this rank's own in a buffer of all rows.
template <bool kGathered>
void ForwardOnRows(StageLowering& stage, const Node& node);
// From x to y, each rank on its columns; in place where the schema has no x, or no dx.
void ForwardOnColumns(StageLowering& stage, const Node& node);
void BackwardOnColumns(StageLowering& stage, const Node& node);

}  // namespace trireme::graph
