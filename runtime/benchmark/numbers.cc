#include "runtime/benchmark/numbers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "runtime/base/status_macros.h"

namespace trireme::benchmark {

absl::StatusOr<tensor::HugeMemory> MapNumbers(size_t bytes, tensor::DType dtype, int threads) {
  ASSIGN_OR_RETURN(tensor::HugeMemory memory,
                   tensor::HugeMemory::Map(bytes, {.prefault_threads = threads}));
  std::minstd_rand generator(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float block[4096];
  for (float& value : block) value = uniform(generator);
  if (dtype == tensor::DType::kBf16) {
    // Twice the upper half of each, which is the number cut to bf16.
    uint16_t halves[2 * std::size(block)];
    std::memcpy(halves, block, sizeof(block));
    for (size_t i = 0; i < std::size(halves); i += 2) halves[i] = halves[i + 1];
    std::memcpy(block, halves, sizeof(block));
  }
  for (size_t i = 0; i < bytes; i += sizeof(block)) {
    std::memcpy(memory.data() + i, block, std::min(sizeof(block), bytes - i));
  }
  return memory;
}

}  // namespace trireme::benchmark
