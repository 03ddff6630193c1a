// Pieces of a kernel's workspace.
#pragma once

#include <cstdint>

namespace trireme::kernels::cpu {

inline constexpr int64_t Padded(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Hands out pieces of a workspace, each at a whole cache line; with a null workspace it only
// counts.
class Carver {
 public:
  explicit Carver(float* workspace) : workspace_(workspace) {}
  // As many elements of 4 bytes, or of fewer, as fill `floats`.
  template <typename T = float>
  T* Take(int64_t floats) {
    float* piece = workspace_ == nullptr ? nullptr : workspace_ + used_;
    used_ += Padded(floats, 16);
    return reinterpret_cast<T*>(piece);
  }
  int64_t used() const { return used_; }

 private:
  float* workspace_;
  int64_t used_ = 0;
};

// What attention's `Space` takes of a workspace.
template <typename Space>
int64_t FloatsOf(int64_t tokens, int64_t head_dim) {
  Carver carver(nullptr);
  const Space space(carver, tokens, head_dim);
  return carver.used();
}

}  // namespace trireme::kernels::cpu
