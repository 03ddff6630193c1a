// HugeMemory: one large anonymous mapping, zero-filled, in huge pages where the system gives them.
// The arena of a rank is one of these: without huge pages triad reaches 25 instead of 32 GB/s a
// core (docs/performance.md), and pages that are faulted in before the first step cost nothing in
// it.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"

namespace trireme::tensor {

struct HugeMemoryOptions {
  // Threads that touch every page before Map returns; 0 leaves each page to its first use.
  int prefault_threads = 0;
};

// Owns a mapping; movable. Not for sharing between processes.
class HugeMemory {
 public:
  // Maps `bytes` (0 gives an empty memory), aligned to 2 MiB, in whole pages and no more; reading
  // or writing behind them is a fault. ResourceExhausted with the sizes when the system refuses.
  static absl::StatusOr<HugeMemory> Map(size_t bytes, HugeMemoryOptions options = {});

  HugeMemory() = default;
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;
  ~HugeMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_bytes_; }
  std::span<std::byte> span() const { return {data_, size_bytes_}; }
  // All of its pages, without the one behind.
  std::span<std::byte> pages() const { return {data_, pages_bytes_}; }

 private:
  void Unmap();

  void* mapping_ = nullptr;  // data_, with the guard page behind
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  size_t pages_bytes_ = 0;
};

}  // namespace trireme::tensor
