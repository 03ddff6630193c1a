#include "runtime/benchmark/operator_lines.h"

#include <utility>

#include "runtime/benchmark/roofline.h"
#include "runtime/graph/op_schema.h"

namespace trireme::benchmark {
namespace {
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

constexpr int64_t kWidth = 768, kHeadDim = 64, kLayers = 12, kVocabulary = 50257, kPositions = 1024;

const char* Letter(Phase phase) {
  return phase == Phase::kForward ? " F" : phase == Phase::kInputGrad ? " I" : " W";
}

class Lines {
 public:
  explicit Lines(const LineOptions& options)
      : options_(options), rows_(options.batch * options.tokens) {}

  std::vector<OperatorLine> Make() {
    AddProducts();
    AddAttention();
    AddRowLoops();
    AddOptimizer();
    return std::move(lines_);
  }

 private:
  OpSpec Spec(OpKind kind, Phase phase, int64_t inner, int64_t cols) const {
    OpSpec s;
    s.kind = kind;
    s.phase = phase;
    s.dtype = options_.dtype;
    s.rows = rows_;
    s.cols = cols;
    s.inner = inner;
    s.x_ld = inner;
    s.y_ld = cols;
    s.tokens = options_.tokens;
    s.weight_rows = kPositions;
    s.vocab_rows = kVocabulary;
    s.epsilon = 1e-5;
    return s;
  }

  void Add(const std::string& name, const OpSpec& spec, double per_step) {
    OperatorLine line;
    line.name = name + Letter(spec.phase);
    line.spec = spec;
    line.per_step = per_step;
    const auto flops = graph::SchemaOf(spec.kind).flops;
    if (flops != nullptr) line.flops = flops(spec);
    line.has_base = spec.kind == OpKind::kLayerNorm && spec.phase == Phase::kInputGrad;
    line.bytes = LeastBytes(spec, line.has_base);
    lines_.push_back(std::move(line));
  }

  void AddProducts() {
    struct Product {
      const char* name;
      int64_t inner, cols;
    };
    for (const auto layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      const bool in_out = layout == WeightLayout::kInOut;
      for (const Product& each : {Product{"qkv", kWidth, 3 * kWidth},
                                  {"proj", kWidth, kWidth},
                                  {"fc", kWidth, 4 * kWidth},
                                  {"fc_proj", 4 * kWidth, kWidth}}) {
        for (const Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
          OpSpec s = Spec(OpKind::kLinear, phase, each.inner, each.cols);
          s.weight_layout = layout;
          Add(std::string(each.name) + (in_out ? " in,out" : " out,in"), s, in_out ? kLayers : 0.0);
        }
      }
    }
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      Add("head out,in", Spec(OpKind::kLmHeadLoss, phase, kWidth, kVocabulary), 1);
    }
  }

  void AddAttention() {
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      const int64_t width = options_.heads * kHeadDim;
      OpSpec s = Spec(OpKind::kAttention, phase, 3 * width, width);
      s.heads = s.kv_heads = s.global_heads = options_.heads;
      s.head_dim = kHeadDim;
      Add("attention", s, kLayers);
      s.dropout_p = 0.1;
      Add("attention dropout", s, 0);
    }
  }

  void AddRows(const char* name, OpKind kind, Phase phase, int64_t cols, double per_step,
               double dropout = 0) {
    OpSpec s = Spec(kind, phase, cols, cols);
    if (kind == OpKind::kSwiGlu) s.x_ld = 2 * cols;
    s.dropout_p = dropout;
    Add(name, s, per_step);
  }

  void AddRowLoops() {
    constexpr double kNorms = 2 * kLayers + 1;
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      AddRows("layer norm", OpKind::kLayerNorm, phase, kWidth, kNorms);
    }
    AddRows("rms norm", OpKind::kRmsNorm, Phase::kForward, kWidth, 0);
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      AddRows("gelu", OpKind::kGelu, phase, 4 * kWidth, kLayers);
    }
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      AddRows("swiglu", OpKind::kSwiGlu, phase, 4 * kWidth, 0);
    }
    AddRows("residual add", OpKind::kResidualAdd, Phase::kForward, kWidth, 2 * kLayers);
    AddRows("residual add", OpKind::kResidualAdd, Phase::kWeightGrad, kWidth, 2 * kLayers);
    AddRows("residual add, dropout", OpKind::kResidualAdd, Phase::kForward, kWidth, 0, 0.1);
    AddRows("embedding", OpKind::kEmbedding, Phase::kForward, kWidth, 1);
    AddRows("embedding", OpKind::kEmbedding, Phase::kWeightGrad, kWidth, 1);
    AddRows("position", OpKind::kPositionEmbedding, Phase::kForward, kWidth, 1);
    AddRows("position", OpKind::kPositionEmbedding, Phase::kWeightGrad, kWidth, 1);
  }

  void AddOptimizer() {
    OperatorLine line;
    line.spec.dtype = options_.dtype;
    line.per_step = kGpt2Parameters / kOptimizerParameters;
    line.name = "AdamW";
    line.kind = LineKind::kAdamW;
    line.bytes = AdamWBytes(options_.dtype) * kOptimizerParameters;
    lines_.push_back(line);
    line.name = "AdamW, slot to slot";
    line.kind = LineKind::kAdamWSlots;
    line.per_step = 0;
    line.bytes = AdamWSlotBytes(options_.dtype) * kOptimizerParameters;
    lines_.push_back(line);
    line.per_step = kGpt2Parameters / kOptimizerParameters;
    line.name = "sum of squares";
    line.kind = LineKind::kSumOfSquares;
    line.bytes = sizeof(float) * kOptimizerParameters;
    lines_.push_back(line);
  }

  LineOptions options_;
  int64_t rows_;
  std::vector<OperatorLine> lines_;
};

}  // namespace

std::vector<OperatorLine> LinesOfGpt2(const LineOptions& options) { return Lines(options).Make(); }

}  // namespace trireme::benchmark
