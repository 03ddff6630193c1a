// Products of small matrices of bf16 that lie in the first two cache levels, by the instructions
// that a processor has for them: AMX (16 x 16 x 32 at a time) or AVX512_BF16 (16 x 2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tensor/bf16.h"

namespace trireme::kernels::cpu {

// C [m, n] f32 = A [m, k] B [k, n], or += . B is stored in pairs of rows: B[2 i][j] and, in the
// upper half, B[2 i + 1][j] at b[i * b_ld + j]. Sizes are multiples of kTileUnit.
inline constexpr int64_t kTileUnit = 32;
struct Bf16Product {
  const tensor::BFloat16* a = nullptr;
  int64_t a_ld = 0;
  const uint32_t* b = nullptr;
  int64_t b_ld = 0;
  float* c = nullptr;
  int64_t c_ld = 0;
  int64_t m = 0, n = 0, k = 0;
  bool accumulate = false;
};

// C [32, 32] = or += a panel of 32 rows of A times one of 32 columns of B. Panels are `units` of 2
// KiB for 32 k each: A's rows 0 .. 15, then 16 .. 31, 64 bytes a row; B's 16 pairs of rows, columns
// 0 .. 15, then 16 .. 31.
struct Bf16Panels {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  float* c = nullptr;  // rows kTileUnit apart
  int64_t units = 0;
  bool accumulate = false;
};
inline constexpr int64_t kPanelUnitBytes = 2048;

// Between enter and leave, of the same thread, nothing else may use the processor's tiles.
struct Bf16Tiles {
  void (*enter)();
  void (*multiply)(const Bf16Product& product);
  void (*leave)();
  void (*multiply_panels)(const Bf16Panels& panels);
};

// Null where the processor, or what ONEDNN_MAX_CPU_ISA leaves of it, has no such instructions.
const Bf16Tiles* AmxTiles();
const Bf16Tiles* Avx512Tiles();
// The first of these.
const Bf16Tiles* FastestTiles();

}  // namespace trireme::kernels::cpu
