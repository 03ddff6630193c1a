// Sums over rows, in row order, each column in f64: bias and norm gradients. Columns go in blocks
// so that rows are read in order and the sums need no memory beyond the stack.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace trireme::kernels::ref {

// out[c] (+)= sum over r < rows of element(r, c). `element` gives a double.
template <typename T, typename Element>
void SumColumns(int64_t rows, int64_t cols, bool accumulate, T* out, Element element) {
  constexpr int64_t kBlock = 64;
  for (int64_t first = 0; first < cols; first += kBlock) {
    const int64_t count = std::min(kBlock, cols - first);
    std::array<double, kBlock> sum{};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < count; ++c) sum[static_cast<size_t>(c)] += element(row, first + c);
    }
    for (int64_t c = 0; c < count; ++c) {
      const double old = accumulate ? static_cast<double>(out[first + c]) : 0.0;
      out[first + c] = static_cast<T>(old + sum[static_cast<size_t>(c)]);
    }
  }
}

}  // namespace trireme::kernels::ref
