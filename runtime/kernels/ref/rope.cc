// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), pairs (i, i + D/2) as in Llama's
// rotate_half; in place.
#include <cmath>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

template <typename T>
class Rope : public Kernel {
 public:
  explicit Rope(const graph::OpSpec& spec) : spec_(spec) {
    TRIREME_CHECK(spec.head_dim % 2 == 0);
    for (int64_t i = 0; i < spec.head_dim / 2; ++i) {
      const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(spec.head_dim);
      period_.push_back(std::pow(spec.rope_theta, exponent));
    }
  }

  void Run(const graph::OpCall& call) override {
    const bool forward = spec_.phase == graph::Phase::kForward;
    T* rows = call.Out<T>(forward ? graph::kY : graph::kDY);
    const int64_t half = spec_.head_dim / 2;
    const int64_t heads = spec_.heads + spec_.kv_heads;
    if (heads == 0) return;
    for (int64_t r = 0; r < spec_.rows; ++r) {
      const double position = static_cast<double>((spec_.row_begin + r) % spec_.tokens);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = position / period_[static_cast<size_t>(i)];
        const double cosine = std::cos(angle);
        const double sine = forward ? std::sin(angle) : -std::sin(angle);
        for (int64_t h = 0; h < heads; ++h) {
          T* pair = rows + r * spec_.y_ld + h * spec_.head_dim + i;
          const double first = Wide(pair[0]);
          const double second = Wide(pair[half]);
          pair[0] = Narrow<T>(first * cosine - second * sine);
          pair[half] = Narrow<T>(second * cosine + first * sine);
        }
      }
    }
  }

 private:
  graph::OpSpec spec_;
  std::vector<double> period_;  // theta^(2i/D)
};

}  // namespace

void RegisterRope(KernelRegistry& registry) {
  RegisterTypes<Rope>(registry, graph::OpKind::kRope, graph::Phase::kForward);
  RegisterTypes<Rope>(registry, graph::OpKind::kRope, graph::Phase::kInputGrad);
}

}  // namespace trireme::kernels::ref
