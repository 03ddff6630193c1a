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

template <typename T>
NormArgs<T> ArgsOfNorm(const OpSpec& spec, const OpCall& call) {
  NormArgs<T> a;
  a.x = call.In<T>(graph::kX);
  a.w = call.In<T>(graph::kW);
  a.b = call.In<T>(graph::kB);
  a.dy = call.In<T>(graph::kDY);
  a.base = call.In<T>(graph::kBase);
  a.y = call.Out<T>(graph::kY);
  a.dx = call.Out<T>(graph::kDX);
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

template <typename T>
ActivationArgs<T> ArgsOfActivation(const OpSpec& spec, const OpCall& call) {
  ActivationArgs<T> a;
  a.x = call.In<T>(graph::kX);
  a.dy = call.In<T>(graph::kDY);
  a.base = call.In<T>(graph::kBase);
  a.y = call.Out<T>(graph::kY);
  a.dx = call.Out<T>(graph::kDX);
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

template <typename T>
std::unique_ptr<Kernel> RopeLoop(const OpSpec& spec, int threads) {
  return MakeLoop([spec, threads, table = SharedRopeTable(spec)](const OpCall& call) {
    const bool forward = spec.phase == Phase::kForward;
    T* rows_begin = call.Out<T>(forward ? graph::kY : graph::kDY);
    RotateArgs<T> a;
    a.heads = spec.heads + spec.kv_heads;
    a.head_dim = spec.head_dim;
    a.direction = forward ? 1.0f : -1.0f;
    ForRows(spec.rows, a.heads * a.head_dim, threads, [&, a](Range rows) {
      RotateArgs<T> row = a;
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const int64_t t = (spec.row_begin + r) % spec.tokens;
        row.row = rows_begin + r * spec.y_ld;
        row.cosine = table->cosine.data() + t * (spec.head_dim / 2);
        row.sine = table->sine.data() + t * (spec.head_dim / 2);
        RowLoopsOf<T>().rotate_heads(row);
      }
    });
  });
}

// Forward and input gradient: y or dx from x or dy, element by element.
template <typename T>
void RunResidualRows(const OpSpec& spec, int threads, const OpCall& call) {
  const bool forward = spec.phase == Phase::kForward;
  ResidualArgs<T> a;
  a.x = call.In<T>(forward ? graph::kX : graph::kDY);
  a.y = call.Out<T>(forward ? graph::kY : graph::kDX);
  if (forward) {
    a.b = call.In<T>(graph::kB);
    a.residual = call.In<T>(graph::kResidual);
  }
  a.cols = spec.cols;
  a.x_ld = forward ? spec.x_ld : spec.y_ld;
  a.y_ld = forward ? spec.y_ld : spec.x_ld;
  const DropoutStream stream = MakeDropoutStream(spec, call);
  if (HasDropout(spec, call)) a.dropout = &stream;
  a.first_element =
      static_cast<uint64_t>((call.first_sample * spec.tokens + spec.row_begin) * spec.cols);
  ForRows(spec.rows, spec.cols, threads, [&](Range rows) { RowLoopsOf<T>().add_rows(a, rows); });
}

template <typename T>
void RunResidualBiasGrad(const OpSpec& spec, int threads, const OpCall& call) {
  ColumnSumArgs<T> a;
  a.x = call.In<T>(graph::kDY);
  a.sum = call.Out<float>(graph::kDB);
  if (a.sum == nullptr) return;
  a.rows = spec.rows;
  a.cols = spec.cols;
  a.x_ld = spec.y_ld;
  a.accumulate = call.accumulate;
  const DropoutStream stream = MakeDropoutStream(spec, call);
  if (HasDropout(spec, call)) a.dropout = &stream;
  a.first_element =
      static_cast<uint64_t>((call.first_sample * spec.tokens + spec.row_begin) * spec.cols);
  ForColumns(spec.rows, spec.cols, threads,
             [&](Range cols) { RowLoopsOf<T>().sum_columns(a, cols); });
}

}  // namespace

template <typename T>
std::unique_ptr<Kernel> MakeNorm(const OpSpec& spec, const PrepareOptions& options) {
  using Loops = NormLoops<T>;
  const bool layer = spec.kind == OpKind::kLayerNorm;
  const bool columns = spec.phase == Phase::kWeightGrad;
  const auto loop = columns ? (layer ? &Loops::layer_weight_grad : &Loops::rms_weight_grad)
                    : spec.phase == Phase::kForward
                        ? (layer ? &Loops::layer_forward : &Loops::rms_forward)
                        : (layer ? &Loops::layer_input_grad : &Loops::rms_input_grad);
  const int threads = options.threads;
  return MakeLoop([spec, threads, columns, loop](const OpCall& call) {
    const NormArgs<T> args = ArgsOfNorm<T>(spec, call);
    const auto body = [&](Range range) { (NormLoopsOf<T>().*loop)(args, range); };
    if (columns) {
      ForColumns(spec.rows, spec.cols, threads, body);
    } else {
      ForRows(spec.rows, spec.cols, threads, body);
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> MakeActivation(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kWeightGrad) return nullptr;
  using Loops = RowLoops<T>;
  const bool forward = spec.phase == Phase::kForward;
  const auto loop = spec.kind == OpKind::kGelu
                        ? (forward ? &Loops::gelu_forward : &Loops::gelu_input_grad)
                        : (forward ? &Loops::swiglu_forward : &Loops::swiglu_input_grad);
  const int threads = options.threads;
  return MakeLoop([spec, threads, loop](const OpCall& call) {
    const ActivationArgs<T> args = ArgsOfActivation<T>(spec, call);
    ForRows(spec.rows, spec.cols, threads,
            [&](Range rows) { (RowLoopsOf<T>().*loop)(args, rows); });
  });
}

template <typename T>
std::unique_ptr<Kernel> MakeResidualAdd(const OpSpec& spec, const PrepareOptions& options) {
  const int threads = options.threads;
  return MakeLoop([spec, threads](const OpCall& call) {
    if (spec.phase == Phase::kWeightGrad) {
      RunResidualBiasGrad<T>(spec, threads, call);
    } else {
      RunResidualRows<T>(spec, threads, call);
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> MakeRope(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kWeightGrad || spec.head_dim % 2 != 0) return nullptr;
  return RopeLoop<T>(spec, options.threads);
}

template std::unique_ptr<Kernel> MakeNorm<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeNorm<tensor::BFloat16>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeActivation<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeActivation<tensor::BFloat16>(const OpSpec&,
                                                                  const PrepareOptions&);
template std::unique_ptr<Kernel> MakeResidualAdd<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeResidualAdd<tensor::BFloat16>(const OpSpec&,
                                                                   const PrepareOptions&);
template std::unique_ptr<Kernel> MakeRope<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeRope<tensor::BFloat16>(const OpSpec&, const PrepareOptions&);

}  // namespace trireme::kernels::cpu
