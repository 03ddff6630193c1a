// GELU (tanh form, Hendrycks and Gimpel 1606.08415), SwiGLU (Shazeer 2002.05202) and the residual add with dropout.
#include <algorithm>
#include <cmath>

#include "runtime/kernels/ref/reference.h"

namespace trireme::kernels {

namespace {

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

template <typename T>
class Gelu : public ReferenceKernel<T> {
 public:
  using ReferenceKernel<T>::ReferenceKernel;
  void Run(const graph::OpCall& call) override {
    const graph::OpSpec& s = this->spec_;
    const T* base = call.In<T>(graph::kBase);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.cols; ++c) {
        const double x = call.In<T>(graph::kX)[r * s.x_ld + c];
        const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
        if (this->forward()) {
          call.Out<T>(graph::kY)[r * s.y_ld + c] = static_cast<T>(0.5 * x * (1 + t));
          continue;
        }
        const double inner = kGeluScale * (1 + 3 * kGeluCubic * x * x);
        const double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
        const double start = base != nullptr ? base[r * s.x_ld + c] : 0;
        call.Out<T>(graph::kDX)[r * s.x_ld + c] =
            static_cast<T>(start + call.In<T>(graph::kDY)[r * s.y_ld + c] * slope);
      }
    }
  }
};

template <typename T>
class SwiGlu : public ReferenceKernel<T> {
 public:
  using ReferenceKernel<T>::ReferenceKernel;
  void Run(const graph::OpCall& call) override {
    const graph::OpSpec& s = this->spec_;
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* x = call.In<T>(graph::kX) + r * s.x_ld;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double gate = x[c], up = x[s.cols + c];
        const double sigmoid = 1 / (1 + std::exp(-gate));
        if (this->forward()) {
          call.Out<T>(graph::kY)[r * s.y_ld + c] = static_cast<T>(gate * sigmoid * up);
          continue;
        }
        const double dy = call.In<T>(graph::kDY)[r * s.y_ld + c];
        T* dx = call.Out<T>(graph::kDX) + r * s.x_ld;
        dx[c] = static_cast<T>(dy * up * sigmoid * (1 + gate * (1 - sigmoid)));
        dx[s.cols + c] = static_cast<T>(dy * gate * sigmoid);
      }
    }
  }
};

template <typename T>
class ResidualAdd : public ReferenceKernel<T> {
 public:
  using ReferenceKernel<T>::ReferenceKernel;
  void Run(const graph::OpCall& call) override {
    const graph::OpSpec& s = this->spec_;
    const T* b = call.In<T>(graph::kB);
    const T* residual = call.In<T>(graph::kResidual);
    T* db = call.Out<T>(graph::kDB);
    if (s.phase == graph::Phase::kWeightGrad && !call.accumulate) std::fill(db, db + s.cols, T{0});
    for (int64_t r = 0; r < s.rows; ++r) {
      // Rows are those of the micro-batch, so the element's index in the global batch follows from the row alone.
      const int64_t row = call.first_sample * s.tokens + s.row_begin + r;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double factor = this->DropoutFactor(call, row * s.cols + c);
        if (this->forward()) {
          const double x = call.In<T>(graph::kX)[r * s.x_ld + c];
          const double added = factor == 0 ? 0 : factor * (x + (b != nullptr ? b[c] : 0));
          call.Out<T>(graph::kY)[r * s.y_ld + c] =
              static_cast<T>(added + (residual != nullptr ? residual[r * s.x_ld + c] : 0));
          continue;
        }
        const double dy = factor == 0 ? 0 : factor * call.In<T>(graph::kDY)[r * s.y_ld + c];
        if (this->input_grad()) {
          call.Out<T>(graph::kDX)[r * s.x_ld + c] = static_cast<T>(dy);
        } else {
          db[c] += static_cast<T>(dy);
        }
      }
    }
  }
};

}  // namespace

void RegisterReferenceElementwise(KernelRegistry& registry) {
  RegisterReference<Gelu>(registry, graph::OpKind::kGelu, {kForwardPhase, kInputGradPhase});
  RegisterReference<SwiGlu>(registry, graph::OpKind::kSwiGlu, {kForwardPhase, kInputGradPhase});
  RegisterReference<ResidualAdd>(registry, graph::OpKind::kResidualAdd,
                                 {kForwardPhase, kInputGradPhase, kWeightGradPhase});
}

}  // namespace trireme::kernels
