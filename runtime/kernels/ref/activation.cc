// GELU (the tanh form: Hendrycks and Gimpel 2016, arXiv:1606.08415) and SwiGLU (Shazeer 2020,
// arXiv:2002.05202).
#include <cmath>

#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;
using tensor::BFloat16;

constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

double GeluTanh(double x) { return std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x)); }
double Gelu(double x) { return 0.5 * x * (1.0 + GeluTanh(x)); }
double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double SwiGlu(double gate, double up) { return gate * Sigmoid(gate) * up; }

// The row of an output that an input-grad restores, or null.
template <typename T>
T* RestoredRow(const OpSpec& spec, const OpCall& call, int64_t row) {
  T* y = call.Out<T>(graph::kY);
  return y == nullptr ? nullptr : y + row * spec.y_ld;
}

template <typename T>
void GeluForward(const OpSpec& spec, const OpCall& call) {
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    T* y = call.Out<T>(graph::kY) + r * spec.y_ld;
    for (int64_t c = 0; c < spec.cols; ++c) {
      y[c] = Narrow<T>(Gelu(Wide(x[c])));
    }
  }
}

template <typename T>
void GeluInputGrad(const OpSpec& spec, const OpCall& call) {
  const T* base = call.In<T>(graph::kBase);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    const T* dy = call.In<T>(graph::kDY) + r * spec.y_ld;
    T* dx = call.Out<T>(graph::kDX) + r * spec.x_ld;
    T* y = RestoredRow<T>(spec, call, r);
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double value = Wide(x[c]);
      if (y != nullptr) y[c] = Narrow<T>(Gelu(value));
      const double t = GeluTanh(value);
      const double inner = kSqrtTwoOverPi * (1.0 + 3.0 * kCubic * value * value);
      const double gradient = Wide(dy[c]) * (0.5 * (1.0 + t) + 0.5 * value * (1.0 - t * t) * inner);
      dx[c] = Narrow<T>(base == nullptr ? gradient : Wide(base[r * spec.x_ld + c]) + gradient);
    }
  }
}

template <typename T>
void SwiGluForward(const OpSpec& spec, const OpCall& call) {
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* gate = call.In<T>(graph::kX) + r * spec.x_ld;
    const T* up = gate + spec.cols;
    T* y = call.Out<T>(graph::kY) + r * spec.y_ld;
    for (int64_t c = 0; c < spec.cols; ++c) {
      y[c] = Narrow<T>(SwiGlu(Wide(gate[c]), Wide(up[c])));
    }
  }
}

template <typename T>
void SwiGluInputGrad(const OpSpec& spec, const OpCall& call) {
  const T* base = call.In<T>(graph::kBase);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* gate = call.In<T>(graph::kX) + r * spec.x_ld;
    const T* dy = call.In<T>(graph::kDY) + r * spec.y_ld;
    T* dx = call.Out<T>(graph::kDX) + r * spec.x_ld;
    T* y = RestoredRow<T>(spec, call, r);
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double g = Wide(gate[c]);
      const double up = Wide(gate[spec.cols + c]);
      if (y != nullptr) y[c] = Narrow<T>(SwiGlu(g, up));
      const double s = Sigmoid(g);
      const double d_gate = Wide(dy[c]) * up * s * (1.0 + g * (1.0 - s));
      const double d_up = Wide(dy[c]) * g * s;
      const T* summand = base == nullptr ? nullptr : base + r * spec.x_ld + c;
      dx[c] = Narrow<T>(summand == nullptr ? d_gate : Wide(summand[0]) + d_gate);
      dx[spec.cols + c] = Narrow<T>(summand == nullptr ? d_up : Wide(summand[spec.cols]) + d_up);
    }
  }
}

}  // namespace

void RegisterActivations(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(registry, OpKind::kGelu, Phase::kForward,
                    {GeluForward<double>, GeluForward<float>, GeluForward<BFloat16>});
  RegisterFunctions(registry, OpKind::kGelu, Phase::kInputGrad,
                    {GeluInputGrad<double>, GeluInputGrad<float>, GeluInputGrad<BFloat16>});
  RegisterFunctions(registry, OpKind::kSwiGlu, Phase::kForward,
                    {SwiGluForward<double>, SwiGluForward<float>, SwiGluForward<BFloat16>});
  RegisterFunctions(registry, OpKind::kSwiGlu, Phase::kInputGrad,
                    {SwiGluInputGrad<double>, SwiGluInputGrad<float>, SwiGluInputGrad<BFloat16>});
}

}  // namespace trireme::kernels::ref
