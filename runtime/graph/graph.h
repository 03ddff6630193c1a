// A model as a graph of few operators on [rows, columns] values, before any mesh is known. Family
// builders (runtime/model) make it; lowering.h turns a stage of it into the operators of one tensor
// rank, collectives inserted and backward derived. Trick: a width that the tensor axis cuts is
// written as units times unit width, so uneven cuts need no special case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_spec.h"
#include "runtime/layout/layout.h"

namespace trireme::graph {

using ValueId = int32_t;
using ParameterId = int32_t;
constexpr int32_t kNone = -1;

// Number of columns of a value: `fixed`, or `units` of `unit_width` each cut over the tensor axis.
struct Columns {
  int64_t fixed = 0;
  int64_t units = 0;
  int64_t unit_width = 0;
  // Columns of tensor coordinate `index` of `size`.
  int64_t Local(int64_t size, int64_t index) const {
    return fixed + layout::SplitEvenly(units, size, index).size() * unit_width;
  }
};

enum class Initial : uint8_t { kNormal, kOnes, kZeros };

// A learned tensor. `shape` is the logical shape that state layouts speak of: the Hugging Face
// tensor with its columns factored where the tensor axis cuts them (c_attn.weight is [C, 3, H, D],
// cut on dimension 2).
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int shard_dim = kNone;  // dimension cut over the tensor axis; kNone: replicated
  bool decay = false;
  Initial initial = Initial::kZeros;
  double standard_deviation = 0;
  int block = 0;

  layout::Box LocalBox(int64_t tensor_size, int64_t tensor_index) const;
};

// One weight of a Linear node; several parts give neighbouring column ranges of one output (q | k |
// v, gate | up).
struct LinearPart {
  ParameterId weight = kNone;
  ParameterId bias = kNone;
  Columns columns;
};

enum class LinearKind : uint8_t { kColumnParallel, kRowParallel };

struct Node {
  OpKind op = OpKind::kLinear;
  std::string name;  // the site: names dropout streams and messages
  int block = 0;     // 0: embedding, 1..L: layers, L+1: final norm, head and loss
  ValueId input = kNone;
  ValueId residual = kNone;  // ResidualAdd
  ValueId output = kNone;
  ParameterId weight = kNone;  // norms, embeddings, head
  ParameterId bias = kNone;    // norms, ResidualAdd
  std::vector<LinearPart> parts = {};
  LinearKind linear_kind = LinearKind::kColumnParallel;
  WeightLayout weight_layout = WeightLayout::kOutIn;
  double dropout_p = 0;
};

struct Value {
  std::string name;
  Columns columns;
};

struct ModelGraph {
  std::vector<Parameter> parameters;
  std::vector<Value> values;
  std::vector<Node> nodes;  // in order of execution; blocks ascend
  int blocks = 0;           // L + 2
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double epsilon = 0;
  double rope_theta = 0;
  ParameterId tied = kNone;  // parameter used in the first and the last block

  int64_t ParameterCount() const;
};

}  // namespace trireme::graph
