// Norms, activations, residual additions and rotations: vectorised loops over threads' shares of
// rows or columns.
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "runtime/kernels/cpu/dropout.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loop_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"

namespace trireme::kernels::cpu {
namespace {
using graph::OpCall;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;

NormArgs ArgsOfNorm(const OpSpec& spec, const OpCall& call) {
  NormArgs a;
  a.x = call.In<float>(graph::kX);
  a.w = call.In<float>(graph::kW);
  a.b = call.In<float>(graph::kB);
  a.dy = call.In<float>(graph::kDY);
  a.base = call.In<float>(graph::kBase);
  a.y = call.Out<float>(graph::kY);
  a.dx = call.Out<float>(graph::kDX);
  a.stats = call.Out<float>(graph::kStats);
  a.dw = call.Out<float>(graph::kDW);
  a.db = call.Out<float>(graph::kDB);
  a.rows = spec.rows;
  a.cols = spec.cols;
  a.x_ld = spec.x_ld;
  a.y_ld = spec.y_ld;
  a.epsilon = static_cast<float>(spec.epsilon);
  a.accumulate = call.accumulate;
  return a;
}

ActivationArgs ArgsOfActivation(const OpSpec& spec, const OpCall& call) {
  ActivationArgs a;
  a.x = call.In<float>(graph::kX);
  a.dy = call.In<float>(graph::kDY);
  a.base = call.In<float>(graph::kBase);
  a.y = call.Out<float>(graph::kY);
  a.dx = call.Out<float>(graph::kDX);
  a.cols = spec.cols;
  a.x_ld = spec.x_ld;
  a.y_ld = spec.y_ld;
  return a;
}

// Cosines and sines of one (tokens, head_dim, theta), [tokens][head_dim / 2]: shared by all layers
// of a model.
struct RopeTable {
  std::vector<float> cosine, sine;
};

std::shared_ptr<const RopeTable> SharedRopeTable(const OpSpec& spec) {
  static std::mutex mutex;
  static std::map<std::tuple<int64_t, int64_t, double>, std::weak_ptr<const RopeTable>> tables;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& known = tables[{spec.tokens, spec.head_dim, spec.rope_theta}];
  if (auto table = known.lock()) return table;
  auto table = std::make_shared<RopeTable>();
  const int64_t half = spec.head_dim / 2;
  for (int64_t t = 0; t < spec.tokens; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) /
                           std::pow(spec.rope_theta, 2.0 * static_cast<double>(i) /
                                                         static_cast<double>(spec.head_dim));
      table->cosine.push_back(static_cast<float>(std::cos(angle)));
      table->sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  known = table;
  return table;
}

// Forward and input gradient: y or dx from x or dy, element by element.
void RunResidualRows(const OpSpec& spec, int threads, const OpCall& call) {
  const bool forward = spec.phase == Phase::kForward;
  ResidualArgs a;
  a.x = call.In<float>(forward ? graph::kX : graph::kDY);
  a.y = call.Out<float>(forward ? graph::kY : graph::kDX);
  if (forward) {
    a.b = call.In<float>(graph::kB);
    a.residual = call.In<float>(graph::kResidual);
  }
  a.cols = spec.cols;
  a.x_ld = forward ? spec.x_ld : spec.y_ld;
  a.y_ld = forward ? spec.y_ld : spec.x_ld;
  const DropoutStream stream = MakeDropoutStream(spec, call);
  if (HasDropout(spec, call)) a.dropout = &stream;
  a.first_element =
      static_cast<uint64_t>((call.first_sample * spec.tokens + spec.row_begin) * spec.cols);
  ForRows(spec.rows, spec.cols, threads, [&](Range rows) { AddRows(a, rows); });
}

void RunResidualBiasGrad(const OpSpec& spec, int threads, const OpCall& call) {
  ResidualArgs a;
  a.x = call.In<float>(graph::kDY);
  a.y = call.Out<float>(graph::kDB);
  if (a.y == nullptr) return;
  a.rows = spec.rows;
  a.cols = spec.cols;
  a.x_ld = spec.y_ld;
  a.accumulate = call.accumulate;
  const DropoutStream stream = MakeDropoutStream(spec, call);
  if (HasDropout(spec, call)) a.dropout = &stream;
  a.first_element =
      static_cast<uint64_t>((call.first_sample * spec.tokens + spec.row_begin) * spec.cols);
  ForColumns(spec.rows, spec.cols, threads, [&](Range cols) { SumColumns(a, cols); });
}

}  // namespace

std::unique_ptr<Kernel> MakeNorm(const OpSpec& spec, const PrepareOptions& options) {
  const bool layer = spec.kind == OpKind::kLayerNorm;
  const bool columns = spec.phase == Phase::kWeightGrad;
  auto* loop = columns                         ? (layer ? LayerNormWeightGrad : RmsNormWeightGrad)
               : spec.phase == Phase::kForward ? (layer ? LayerNormForward : RmsNormForward)
                                               : (layer ? LayerNormInputGrad : RmsNormInputGrad);
  const int threads = options.threads;
  return MakeLoop([spec, threads, columns, loop](const OpCall& call) {
    const NormArgs args = ArgsOfNorm(spec, call);
    const auto body = [&](Range range) { loop(args, range); };
    if (columns) {
      ForColumns(spec.rows, spec.cols, threads, body);
    } else {
      ForRows(spec.rows, spec.cols, threads, body);
    }
  });
}

std::unique_ptr<Kernel> MakeActivation(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kWeightGrad) return nullptr;
  const bool forward = spec.phase == Phase::kForward;
  auto* loop = spec.kind == OpKind::kGelu ? (forward ? GeluForward : GeluInputGrad)
                                          : (forward ? SwiGluForward : SwiGluInputGrad);
  const int threads = options.threads;
  return MakeLoop([spec, threads, loop](const OpCall& call) {
    const ActivationArgs args = ArgsOfActivation(spec, call);
    ForRows(spec.rows, spec.cols, threads, [&](Range rows) { loop(args, rows); });
  });
}

std::unique_ptr<Kernel> MakeResidualAdd(const OpSpec& spec, const PrepareOptions& options) {
  const int threads = options.threads;
  return MakeLoop([spec, threads](const OpCall& call) {
    if (spec.phase == Phase::kWeightGrad) {
      RunResidualBiasGrad(spec, threads, call);
    } else {
      RunResidualRows(spec, threads, call);
    }
  });
}

std::unique_ptr<Kernel> MakeRope(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kWeightGrad || spec.head_dim % 2 != 0) return nullptr;
  const int threads = options.threads;
  return MakeLoop([spec, threads, table = SharedRopeTable(spec)](const OpCall& call) {
    const bool forward = spec.phase == Phase::kForward;
    float* rows_begin = call.Out<float>(forward ? graph::kY : graph::kDY);
    RotateArgs a;
    a.heads = spec.heads + spec.kv_heads;
    a.head_dim = spec.head_dim;
    a.direction = forward ? 1.0f : -1.0f;
    ForRows(spec.rows, a.heads * a.head_dim, threads, [&, a](Range rows) {
      RotateArgs row = a;
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const int64_t t = (spec.row_begin + r) % spec.tokens;
        row.row = rows_begin + r * spec.y_ld;
        row.cosine = table->cosine.data() + t * (spec.head_dim / 2);
        row.sine = table->sine.data() + t * (spec.head_dim / 2);
        RotateHeads(row);
      }
    });
  });
}

}  // namespace trireme::kernels::cpu
