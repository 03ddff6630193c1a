// Cutting rows or columns over OpenMP threads. With one thread no OpenMP region is opened, so that
// several ranks can be threads of one process.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/cpu/row_loops.h"

namespace trireme::kernels::cpu {

// What libraries that ask omp_get_max_threads (oneDNN) use while this lives; the calling thread's
// setting only.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
  }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

// Below this much work a second thread costs more than it brings.
inline constexpr int64_t kElementsPerThread = 8192;

// body(Range) over [0, count) in contiguous cuts at multiples of `grain`; each index costs about
// `elements` elements.
template <class Body>
void ForRanges(int64_t count, int64_t grain, int64_t elements, int threads, const Body& body) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t useful = std::max<int64_t>(1, count * elements / kElementsPerThread);
  const int64_t pieces = std::min<int64_t>({threads, grains, useful});
  if (pieces <= 1) {
    body(Range{0, count});
    return;
  }
  const int64_t piece = (grains + pieces - 1) / pieces * grain;
#pragma omp parallel for num_threads(static_cast <int>(pieces)) schedule(static)
  for (int64_t k = 0; k < pieces; ++k) {
    const int64_t begin = std::min(count, k * piece);
    const int64_t end = std::min(count, begin + piece);
    if (begin < end) body(Range{begin, end});
  }
}

template <class Body>
void ForRows(int64_t rows, int64_t cols, int threads, const Body& body) {
  ForRanges(rows, 1, cols, threads, body);
}
// Columns of a matrix of `rows` rows, cut at whole cache lines.
template <class Body>
void ForColumns(int64_t rows, int64_t cols, int threads, const Body& body) {
  ForRanges(cols, 16, rows, threads, body);
}

}  // namespace trireme::kernels::cpu
