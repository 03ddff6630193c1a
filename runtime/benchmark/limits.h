// What this machine does at best, measured in the same minute as what is compared with it: a square
// product of row-major matrices, by oneDNN or by ourselves, whichever is faster, and a triad
// a = b + s c, with stores past the cache where those are faster.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/benchmark/stopwatch.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/memory.h"

namespace trireme::benchmark {

// One thread calls it; the measured loops take `threads`.
class Limits {
 public:
  static absl::StatusOr<std::unique_ptr<Limits>> Create(int threads, Stopwatch stopwatch);

  // Flops a second. f32 or bf16. Takes 20 to 100 ms.
  double ProductRate(tensor::DType dtype);
  // Bytes a second that a triad reads and writes: three arrays, each once. Takes 20 to 50 ms.
  double MemoryRate();
  // What one of the two was when it was measured last, if that is at most `age` ago; else measured
  // now.
  double RecentProductRate(tensor::DType dtype, std::chrono::nanoseconds age);
  double RecentMemoryRate(std::chrono::nanoseconds age);
  // Flops a second where oneDNN may choose the layouts of both factors beforehand: no training step
  // can, for what it multiplies has just been written row by row. 0 where oneDNN has no such
  // product.
  double PackedProductRate(tensor::DType dtype);

  int threads() const { return threads_; }
  const Stopwatch& stopwatch() const { return stopwatch_; }

 private:
  using Way = std::function<void()>;

  Limits(int threads, Stopwatch stopwatch) : threads_(threads), stopwatch_(stopwatch) {}
  std::vector<Way> WaysToMultiply(tensor::DType dtype);
  // Empty where oneDNN refuses. kept: what the way needs.
  Way OneDnnProduct(tensor::DType dtype, bool packed);
  Way OwnProduct(tensor::DType dtype);
  struct Seen {
    double rate = 0;
    std::chrono::steady_clock::time_point at;
  };
  template <class Look>
  static double Recent(std::optional<Seen>& seen, std::chrono::nanoseconds age, const Look& look);
  // The seconds of the fastest; slower ones are dropped after the first time.
  double Fastest(std::vector<Way>& ways) const;

  int threads_;
  Stopwatch stopwatch_;
  tensor::HugeMemory factors_, triad_, scratch_;
  std::map<tensor::DType, std::vector<Way>> products_;
  std::vector<Way> triads_;
  std::map<tensor::DType, std::optional<Seen>> seen_products_;
  std::optional<Seen> seen_memory_;
};

}  // namespace trireme::benchmark
