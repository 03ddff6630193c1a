// GELU (the tanh form: Hendrycks and Gimpel 2016, arXiv:1606.08415) and SwiGLU (Shazeer 2020,
// arXiv:2002.05202).
#include <cmath>

#include "runtime/kernels/ref/reference_kernels.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;

constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

double GeluTanh(double x) { return std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x)); }
double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <typename T>
void GeluForward(const OpSpec& spec, const OpCall& call) {
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    T* y = call.Out<T>(graph::kY) + r * spec.y_ld;
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double value = x[c];
      y[c] = static_cast<T>(0.5 * value * (1.0 + GeluTanh(value)));
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
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double value = x[c];
      const double t = GeluTanh(value);
      const double inner = kSqrtTwoOverPi * (1.0 + 3.0 * kCubic * value * value);
      const double gradient = dy[c] * (0.5 * (1.0 + t) + 0.5 * value * (1.0 - t * t) * inner);
      dx[c] = static_cast<T>(base == nullptr ? gradient : base[r * spec.x_ld + c] + gradient);
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
      const double g = gate[c];
      y[c] = static_cast<T>(g * Sigmoid(g) * up[c]);
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
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double g = gate[c];
      const double up = gate[spec.cols + c];
      const double s = Sigmoid(g);
      const double d_gate = dy[c] * up * s * (1.0 + g * (1.0 - s));
      const double d_up = dy[c] * g * s;
      const T* summand = base == nullptr ? nullptr : base + r * spec.x_ld + c;
      dx[c] = static_cast<T>(summand == nullptr ? d_gate : summand[0] + d_gate);
      dx[spec.cols + c] = static_cast<T>(summand == nullptr ? d_up : summand[spec.cols] + d_up);
    }
  }
}

}  // namespace

void RegisterActivations(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(registry, OpKind::kGelu, Phase::kForward, GeluForward<double>,
                    GeluForward<float>);
  RegisterFunctions(registry, OpKind::kGelu, Phase::kInputGrad, GeluInputGrad<double>,
                    GeluInputGrad<float>);
  RegisterFunctions(registry, OpKind::kSwiGlu, Phase::kForward, SwiGluForward<double>,
                    SwiGluForward<float>);
  RegisterFunctions(registry, OpKind::kSwiGlu, Phase::kInputGrad, SwiGluInputGrad<double>,
                    SwiGluInputGrad<float>);
}

}  // namespace trireme::kernels::ref
