// The shapes every kernel is tried on: primes and ones rather than powers of two.
#include <sstream>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

struct Rows {
  int64_t rows;
  int64_t tokens;
  int64_t row_begin;
};

std::vector<OpSpec> RowWise(OpSpec spec) {
  std::vector<OpSpec> specs;
  for (const Rows& rows : {Rows{6, 3, 0}, Rows{1, 1, 0}, Rows{5, 4, 3}, Rows{0, 4, 4}}) {
    for (int64_t cols : {1, 7, 70}) {
      spec.rows = rows.rows;
      spec.tokens = rows.tokens;
      spec.row_begin = rows.row_begin;
      spec.cols = cols;
      spec.weight_rows = spec.tokens + 1;
      spec.vocab_begin = 3;
      spec.vocab_rows = rows.rows == 5 ? 1 : 4;
      specs.push_back(spec);
    }
  }
  if (spec.kind == OpKind::kEmbedding) {
    spec.rows = 4;
    spec.vocab_rows = 0;
    specs.push_back(spec);
  }
  return specs;
}

std::vector<OpSpec> Products(OpSpec spec) {
  std::vector<OpSpec> specs;
  const int64_t shapes[][3] = {{6, 5, 3},    {1, 1, 1}, {7, 1, 9}, {33, 29, 41}, {1, 67, 71},
                               {64, 130, 3}, {5, 0, 4}, {5, 4, 0}, {0, 4, 3}};
  for (const auto& shape : shapes) {
    for (WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      spec.rows = shape[0];
      spec.cols = shape[1];
      spec.inner = shape[2];
      spec.weight_layout = layout;
      spec.fused_residual = spec.kind == OpKind::kLinear && layout == WeightLayout::kOutIn;
      spec.vocab_begin = spec.kind == OpKind::kLmHeadLoss ? 2 : 0;
      specs.push_back(spec);
    }
  }
  return specs;
}

std::vector<OpSpec> Heads(OpSpec spec) {
  std::vector<OpSpec> specs;
  // rows, tokens, heads, kv_heads, head_dim, head_begin, global_heads
  const int64_t shapes[][7] = {
      {6, 3, 2, 2, 4, 0, 2},   {5, 5, 4, 2, 6, 2, 6}, {3, 1, 3, 1, 2, 0, 3}, {7, 7, 1, 1, 2, 4, 5},
      {34, 17, 6, 3, 8, 0, 6}, {4, 2, 0, 0, 4, 3, 3}, {0, 4, 2, 1, 4, 0, 2}};
  for (const auto& shape : shapes) {
    spec.rows = shape[0];
    spec.tokens = shape[1];
    spec.heads = shape[2];
    spec.kv_heads = shape[3];
    spec.head_dim = shape[4];
    spec.head_begin = shape[5];
    spec.global_heads = shape[6];
    spec.cols = spec.heads * spec.head_dim;
    spec.rope_theta = 10000;
    specs.push_back(spec);
  }
  return specs;
}

std::vector<OpSpec> Specs(const OpSpec& spec) {
  switch (spec.kind) {
    case OpKind::kLinear:
    case OpKind::kLmHeadLoss:
      return Products(spec);
    case OpKind::kRope:
    case OpKind::kAttention:
      return Heads(spec);
    default:
      return RowWise(spec);
  }
}

}  // namespace

std::vector<OpCase> VariedCases(OpKind kind, Phase phase, tensor::DType dtype) {
  std::vector<OpCase> cases;
  if (graph::SchemaOf(kind).Operands(phase).empty()) return cases;
  OpSpec first;
  first.kind = kind;
  first.phase = phase;
  first.dtype = dtype;
  first.epsilon = 0.05;
  first.site = 77;
  for (const OpSpec& spec : Specs(first)) {
    for (uint64_t variant = 0; variant < 3; ++variant) {
      OpCase op_case;
      op_case.spec = spec;
      const bool dropout = kind == OpKind::kAttention || kind == OpKind::kResidualAdd;
      if (dropout && variant > 0) op_case.spec.dropout_p = 0.3;
      if (kind == OpKind::kLossCombine)
        op_case.spec.tensor_ranks = 1 + static_cast<int64_t>(variant);
      op_case.spec = WithLeadingDimensions(op_case.spec, variant == 0 ? 0 : 3);
      op_case.bias = variant != 1;
      op_case.residual = kind == OpKind::kLinear ? spec.fused_residual : variant != 2;
      op_case.base = static_cast<BaseMemory>(variant);
      op_case.restored = phase == Phase::kInputGrad && variant == 2;
      op_case.accumulate = variant == 1;
      op_case.first_sample = static_cast<int64_t>(5 * variant);
      op_case.step = variant;
      op_case.values = 10 + variant;
      cases.push_back(op_case);
    }
  }
  return cases;
}

std::string Describe(const OpCase& op_case) {
  const OpSpec& spec = op_case.spec;
  std::ostringstream text;
  text << "kind " << static_cast<int>(spec.kind) << " phase " << static_cast<int>(spec.phase) << " "
       << tensor::NameOf(spec.dtype) << " rows " << spec.rows << " cols " << spec.cols << " inner "
       << spec.inner << " x_ld " << spec.x_ld << " y_ld " << spec.y_ld
       << (spec.weight_layout == WeightLayout::kInOut ? " in-out" : " out-in") << " tokens "
       << spec.tokens << " row_begin " << spec.row_begin << " heads " << spec.heads << "/"
       << spec.kv_heads << " of " << spec.head_dim << " vocabulary " << spec.vocab_begin << "+"
       << spec.vocab_rows << " ranks " << spec.tensor_ranks << " dropout " << spec.dropout_p
       << " fused_residual " << spec.fused_residual << " bias " << op_case.bias << " residual "
       << op_case.residual << " base " << static_cast<int>(op_case.base) << " restored "
       << op_case.restored << " accumulate " << op_case.accumulate << " first_sample "
       << op_case.first_sample;
  return text.str();
}

}  // namespace trireme::kernels
