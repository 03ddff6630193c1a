// Products of bf16 where the processor multiplies it: both operands are gathered into panels that
// its instructions read in one piece. One side of C, as a rule the shorter, is gathered once for
// all threads; of the other, each thread takes blocks whose panels stay in its second-level cache.
// Sums go over k in order, so that threads do not change the bits. oneDNN 2.6 is slower
// (docs/performance.md).
#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/kernels/cpu/bf16_tiles.h"
#include "runtime/kernels/cpu/product.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/workspace.h"

namespace trireme::kernels::cpu {
namespace {
using tensor::BFloat16;
using tensor::DType;

// Rows of A or columns of B, of which panels are made.
struct PanelSource {
  const BFloat16* from = nullptr;
  int64_t ld = 0;
  int64_t lines = 0, k = 0;
  bool left = false;       // of A
  bool k_by_rows = false;  // stored [k][lines], else [lines][k]
};

struct SumsTarget {
  void* c = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;
  int64_t rows = 0, cols = 0, ld = 0;
};

struct PanelLoops {
  void (*gather)(const PanelSource& source, int64_t line, std::byte* to);
  void (*scatter_f32)(const SumsTarget& target, const float* sums);
  void (*scatter_bf16)(const SumsTarget& target, const float* sums);
};

}  // namespace
}  // namespace trireme::kernels::cpu

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/tile_product.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/tile_product.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(Panels);

// Panels of a block, and its bytes: with k = 1,024 half a MiB, a quarter of the second-level cache.
// Of a longer k fewer panels leave room there for the line that they meet (measured, k = 3,072: six
// panels take 8 % less than eight, twelve 40 % more).
constexpr int64_t kBlockPanels = 8;
constexpr int64_t kBlockBytes = 1200 << 10;
// Units of k at a time: a panel's 16 KiB stay in the first-level cache while it meets the block.
constexpr int64_t kStepUnits = 8;
// Longer sums would not leave a block in the cache.
constexpr int64_t kLongest = 4096;
constexpr int64_t kSumsBytes = kTileUnit * kTileUnit * static_cast<int64_t>(sizeof(float));
constexpr int64_t kLine = 64;

// Asks for the lines of a matrix that is needed later, some at a time: their way from memory is
// then behind the products.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* matrix, int64_t ld_bytes, int64_t rows, int64_t row_bytes)
      : row_(static_cast<const char*>(matrix)),
        ld_bytes_(ld_bytes),
        rows_(rows),
        row_bytes_(row_bytes) {}

  int64_t lines() const { return rows_ * ((row_bytes_ + kLine - 1) / kLine); }
  template <bool kToWrite = false>
  void Ask(int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(row_ + place_, kToWrite, 2);
      place_ += kLine;
      if (place_ < row_bytes_) continue;
      place_ = 0;
      row_ += ld_bytes_;
      --rows_;
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t ld_bytes_ = 0, rows_ = 0, row_bytes_ = 0, place_ = 0;
};

class TileProduct : public Product {
 public:
  TileProduct(const ProductShape& shape, const Bf16Tiles& tiles)
      : shape_(shape),
        tiles_(tiles),
        units_(Padded(shape.k, kTileUnit) / kTileUnit),
        shared_panels_(PanelsOf(BlocksOfRows() ? shape.n : shape.m)),
        panels_(PanelsOf(BlocksOfRows() ? shape.m : shape.n)),
        block_panels_(std::clamp<int64_t>(kBlockBytes / PanelBytes(), 1, kBlockPanels)) {
    const int64_t threads = std::min<int64_t>(std::max(1, shape.threads), panels_);
    threads_ = static_cast<int>(threads);
    blocks_ = std::min(panels_, Padded((panels_ + block_panels_ - 1) / block_panels_, threads));
  }

  size_t ScratchBytes() const override {
    return static_cast<size_t>(shared_panels_ * PanelBytes() + threads_ * ThreadBytes() + kLine);
  }

  void Run(const ProductOperands& o, std::span<std::byte> scratch) override {
    TRIREME_CHECK(scratch.size() >= ScratchBytes());
    const auto address = reinterpret_cast<uintptr_t>(scratch.data());
    std::byte* shared = scratch.data() + (kLine - address % kLine) % kLine;
    std::byte* own = shared + shared_panels_ * PanelBytes();
    const int64_t gathered = o.same_a && !BlocksOfRows() ? shared_panels_ : 0;
    if (threads_ == 1) {
      for (int64_t panel = gathered; panel < shared_panels_; ++panel) {
        Gather(o, true, panel, shared);
      }
      for (int64_t block = 0; block < blocks_; ++block) RunBlock(o, block, shared, own);
      return;
    }
#pragma omp parallel num_threads(threads_)
    {
#pragma omp for schedule(static)
      for (int64_t panel = gathered; panel < shared_panels_; ++panel) {
        Gather(o, true, panel, shared);
      }
#pragma omp for schedule(static)
      for (int64_t block = 0; block < blocks_; ++block) {
        RunBlock(o, block, shared, own + omp_get_thread_num() * ThreadBytes());
      }
    }
  }

 private:
  static int64_t PanelsOf(int64_t lines) { return Padded(lines, kTileUnit) / kTileUnit; }
  int64_t PanelBytes() const { return units_ * kPanelUnitBytes; }
  int64_t ThreadBytes() const { return block_panels_ * (PanelBytes() + kSumsBytes); }
  // A block of columns writes longer pieces of C's rows.
  bool BlocksOfRows() const { return shape_.m > 2 * shape_.n; }

  PanelSource Source(const ProductOperands& o, bool shared) const {
    const bool left = BlocksOfRows() != shared;
    PanelSource source;
    source.left = left;
    source.from = static_cast<const BFloat16*>(left ? o.a : o.b);
    source.ld = left ? shape_.lda : shape_.ldb;
    source.lines = left ? shape_.m : shape_.n;
    source.k = shape_.k;
    source.k_by_rows = left ? shape_.transpose_a : !shape_.transpose_b;
    return source;
  }

  // Panel `panel` of the shared side or of the other, to its place from `to` on.
  void Gather(const ProductOperands& o, bool shared, int64_t panel, std::byte* to) const {
    const PanelSource source = Source(o, shared);
    HWY_DYNAMIC_DISPATCH(Panels)
    ().gather(source, panel * kTileUnit, to + (shared ? panel * PanelBytes() : 0));
  }

  Range BlockPanels(int64_t block) const {
    return {panels_ * block / blocks_, panels_ * (block + 1) / blocks_};
  }

  // What the next block of this thread will gather.
  Ahead SourceOf(const ProductOperands& o, int64_t block) const {
    if (block >= blocks_) return {};
    const PanelSource s = Source(o, false);
    const Range panels = BlockPanels(block);
    const int64_t first = panels.begin * kTileUnit;
    const int64_t lines = std::min(s.lines, panels.end * kTileUnit) - first;
    constexpr int64_t kSize = sizeof(BFloat16);
    if (s.k_by_rows) return {s.from + first, s.ld * kSize, s.k, lines * kSize};
    return {s.from + first * s.ld, s.ld * kSize, lines, s.k * kSize};
  }

  // Where the sums of a block and of panel `other` go.
  Ahead TargetOf(const ProductOperands& o, Range panels, int64_t other) const {
    const int64_t size = static_cast<int64_t>(tensor::SizeOf(shape_.c_dtype));
    const Range own{panels.begin * kTileUnit, panels.end * kTileUnit};
    const Range line{other * kTileUnit, (other + 1) * kTileUnit};
    const Range& rows = BlocksOfRows() ? own : line;
    const Range& cols = BlocksOfRows() ? line : own;
    return {static_cast<const std::byte*>(o.c) + (rows.begin * shape_.ldc + cols.begin) * size,
            shape_.ldc * size, std::min(shape_.m, rows.end) - rows.begin,
            (std::min(shape_.n, cols.end) - cols.begin) * size};
  }

  void RunBlock(const ProductOperands& o, int64_t block, const std::byte* shared,
                std::byte* own) const {
    const auto [begin, end] = BlockPanels(block);
    auto* sums = reinterpret_cast<float*>(own + block_panels_ * PanelBytes());
    for (int64_t panel = begin; panel < end; ++panel) {
      Gather(o, false, panel, own + (panel - begin) * PanelBytes());
    }
    Ahead next = SourceOf(o, block + 1);
    const int64_t calls = shared_panels_ * ((units_ + kStepUnits - 1) / kStepUnits) * (end - begin);
    const int64_t lines_a_call = (next.lines() + calls - 1) / calls;
    tiles_.enter();
    for (int64_t other = 0; other < shared_panels_; ++other) {
      const std::byte* line = shared + other * PanelBytes();
      // Sums of f32 that are not added to go past the caches.
      const bool streamed = shape_.c_dtype == DType::kF32 && o.addend == nullptr;
      Ahead target = streamed ? Ahead() : TargetOf(o, {begin, end}, other);
      const int64_t target_lines = 2 * target.lines() * shared_panels_ / calls + 1;
      for (int64_t unit = 0; unit < units_; unit += kStepUnits) {
        const int64_t units = std::min(kStepUnits, units_ - unit);
        for (int64_t panel = 0; panel < end - begin; ++panel) {
          const std::byte* mine = own + panel * PanelBytes() + unit * kPanelUnitBytes;
          const std::byte* theirs = line + unit * kPanelUnitBytes;
          tiles_.multiply_panels({.a = BlocksOfRows() ? mine : theirs,
                                  .b = BlocksOfRows() ? theirs : mine,
                                  .c = sums + panel * kTileUnit * kTileUnit,
                                  .units = units,
                                  .accumulate = unit > 0});
          next.Ask(lines_a_call);
          target.Ask<true>(target_lines);
        }
      }
      for (int64_t panel = begin; panel < end; ++panel) {
        Scatter(o, BlocksOfRows() ? panel : other, BlocksOfRows() ? other : panel,
                sums + (panel - begin) * kTileUnit * kTileUnit);
      }
    }
    tiles_.leave();
    hwy::FlushStream();
  }

  void Scatter(const ProductOperands& o, int64_t row_panel, int64_t column_panel,
               const float* sums) const {
    const int64_t row = row_panel * kTileUnit, column = column_panel * kTileUnit;
    const bool bf16 = shape_.c_dtype == DType::kBf16;
    const int64_t size = static_cast<int64_t>(tensor::SizeOf(shape_.c_dtype));
    const int64_t offset = (row * shape_.ldc + column) * size;
    SumsTarget target;
    target.c = static_cast<std::byte*>(o.c) + offset;
    if (o.bias != nullptr) target.bias = static_cast<const BFloat16*>(o.bias) + column;
    if (o.addend != nullptr) target.addend = static_cast<const std::byte*>(o.addend) + offset;
    target.rows = std::min(kTileUnit, shape_.m - row);
    target.cols = std::min(kTileUnit, shape_.n - column);
    target.ld = shape_.ldc;
    const PanelLoops& loops = HWY_DYNAMIC_DISPATCH(Panels)();
    (bf16 ? loops.scatter_bf16 : loops.scatter_f32)(target, sums);
  }

  ProductShape shape_;
  const Bf16Tiles& tiles_;
  int64_t units_;          // of k
  int64_t shared_panels_;  // of the side that is gathered once
  int64_t panels_;         // of the other
  int64_t block_panels_, blocks_;
  int threads_ = 1;
};

}  // namespace

std::unique_ptr<Product> MakeTileProduct(const ProductShape& shape, size_t scratch_limit_bytes,
                                         const Bf16Tiles* tiles) {
  const bool filled = std::min({shape.m, shape.n, shape.k}) >= kTileUnit;
  if (tiles == nullptr || shape.dtype != DType::kBf16 || !filled || shape.k > kLongest) {
    return nullptr;
  }
  auto product = std::make_unique<TileProduct>(shape, *tiles);
  if (product->ScratchBytes() > scratch_limit_bytes) return nullptr;
  return product;
}

}  // namespace trireme::kernels::cpu
