// 32 x 32 of C at a time: four tiles of C and two each of A and B are all that AMX has; as vectors,
// 8 x 2 of C and two of B.
#include "runtime/kernels/cpu/bf16_tiles.h"

#include <immintrin.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme::kernels::cpu {
namespace {

bool HasIsa(dnnl_cpu_isa_t isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

// Linux gives a process the tiles' registers when it asks (Documentation/x86/xstate.rst).
bool AskForTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Palette 1: eight tiles of 16 rows of 64 bytes.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

__attribute__((target("amx-tile"))) void EnterAmx() {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
}
__attribute__((target("amx-tile"))) void LeaveAmx() { _tile_release(); }

__attribute__((target("amx-tile,amx-bf16"))) void MultiplyAmx(const Bf16Product& p) {
  const auto a_bytes = static_cast<size_t>(p.a_ld) * 2, b_bytes = static_cast<size_t>(p.b_ld) * 4;
  const auto c_bytes = static_cast<size_t>(p.c_ld) * 4;
  for (int64_t i = 0; i < p.m; i += kTileUnit) {
    for (int64_t j = 0; j < p.n; j += kTileUnit) {
      float* c = p.c + i * p.c_ld + j;
      float* c_low = c + 16 * p.c_ld;
      if (p.accumulate) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, c_low, c_bytes);
        _tile_loadd(3, c_low + 16, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t k = 0; k < p.k; k += kTileUnit) {
        const tensor::BFloat16* a = p.a + i * p.a_ld + k;
        const uint32_t* b = p.b + k / 2 * p.b_ld + j;
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * p.a_ld, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, c, c_bytes);
      _tile_stored(1, c + 16, c_bytes);
      _tile_stored(2, c_low, c_bytes);
      _tile_stored(3, c_low + 16, c_bytes);
    }
  }
}

__attribute__((target("amx-tile,amx-bf16"))) void MultiplyPanelsAmx(const Bf16Panels& p) {
  constexpr size_t kRow = 64, kTile = 1024, kC = kTileUnit * sizeof(float);
  float* c_low = p.c + 16 * kTileUnit;
  if (p.accumulate) {
    _tile_loadd(0, p.c, kC);
    _tile_loadd(1, p.c + 16, kC);
    _tile_loadd(2, c_low, kC);
    _tile_loadd(3, c_low + 16, kC);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const std::byte *a = p.a, *b = p.b;
  for (int64_t unit = 0; unit < p.units; ++unit, a += kPanelUnitBytes, b += kPanelUnitBytes) {
    _tile_loadd(4, a, kRow);
    _tile_loadd(6, b, kRow);
    _tile_loadd(7, b + kTile, kRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile, kRow);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, p.c, kC);
  _tile_stored(1, p.c + 16, kC);
  _tile_stored(2, c_low, kC);
  _tile_stored(3, c_low + 16, kC);
}

void EnterVectors() {}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void MultiplyVectors(
    const Bf16Product& p) {
  constexpr int64_t kRows = 8;
  for (int64_t i = 0; i < p.m; i += kRows) {
    for (int64_t j = 0; j < p.n; j += kTileUnit) {
      float* c = p.c + i * p.c_ld + j;
      __m512 sum[kRows][2];
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t v = 0; v < 2; ++v) {
          sum[r][v] = p.accumulate ? _mm512_loadu_ps(c + r * p.c_ld + 16 * v) : _mm512_setzero_ps();
        }
      }
      const auto* a = reinterpret_cast<const char*>(p.a + i * p.a_ld);
      for (int64_t k = 0; k < p.k; k += 2) {
        const uint32_t* b = p.b + k / 2 * p.b_ld + j;
        const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
        const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16));
        for (int64_t r = 0; r < kRows; ++r) {
          int pair;
          __builtin_memcpy(&pair, a + 2 * (r * p.a_ld + k), sizeof(pair));
          const auto element = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], element, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], element, b1);
        }
      }
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * p.c_ld + 16 * v, sum[r][v]);
      }
    }
  }
}

// Pairs of a row of A are 4 bytes of its unit, each given to a whole vector.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void MultiplyPanelsVectors(
    const Bf16Panels& p) {
  constexpr int64_t kRows = 8, kHalf = 1024, kVector = 64;
  for (int64_t i = 0; i < kTileUnit; i += kRows) {
    float* c = p.c + i * kTileUnit;
    __m512 sum[kRows][2];
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t v = 0; v < 2; ++v) {
        sum[r][v] =
            p.accumulate ? _mm512_loadu_ps(c + r * kTileUnit + 16 * v) : _mm512_setzero_ps();
      }
    }
    const std::byte *a = p.a + i * kVector, *b = p.b;
    for (int64_t unit = 0; unit < p.units; ++unit, a += kPanelUnitBytes, b += kPanelUnitBytes) {
      for (int64_t pair = 0; pair < kTileUnit / 2; ++pair) {
        const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + pair * kVector));
        const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + kHalf + pair * kVector));
        for (int64_t r = 0; r < kRows; ++r) {
          int word;
          __builtin_memcpy(&word, a + r * kVector + pair * 4, sizeof(word));
          const auto element = reinterpret_cast<__m512bh>(_mm512_set1_epi32(word));
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], element, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], element, b1);
        }
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * kTileUnit + 16 * v, sum[r][v]);
    }
  }
}

constexpr Bf16Tiles kAmx = {EnterAmx, MultiplyAmx, LeaveAmx, MultiplyPanelsAmx};
constexpr Bf16Tiles kVectors = {EnterVectors, MultiplyVectors, EnterVectors, MultiplyPanelsVectors};

}  // namespace

const Bf16Tiles* AmxTiles() {
  static const bool usable = HasIsa(dnnl_cpu_isa_avx512_core_amx) && AskForTiles();
  return usable ? &kAmx : nullptr;
}

const Bf16Tiles* Avx512Tiles() {
  static const bool usable = HasIsa(dnnl_cpu_isa_avx512_core_bf16);
  return usable ? &kVectors : nullptr;
}

const Bf16Tiles* FastestTiles() {
  const Bf16Tiles* amx = AmxTiles();
  return amx != nullptr ? amx : Avx512Tiles();
}

}  // namespace trireme::kernels::cpu
