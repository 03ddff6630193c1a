// The language-model head in tiles of the vocabulary: a tile of logits meets its softmax
// statistics, and becomes its gradient and is multiplied on, while it is in the cache.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loop_kernel.h"
#include "runtime/kernels/cpu/product.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"

namespace trireme::kernels::cpu {
namespace {
using graph::OpCall;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

// Columns of a tile. In f32, with 1,024 rows, a tile of logits is 16 MiB: half of a 32 MiB
// last-level cache. In bf16 it is 2 MiB, the second-level cache of a core, or twice that for the
// input gradient; oneDNN multiplies dense logits faster for the weight gradient, hence all of them.
template <typename T>
int64_t TileColumns(const OpSpec& spec) {
  int64_t columns = 4096;
  if (std::is_same_v<T, tensor::BFloat16>) {
    columns = spec.phase == Phase::kForward     ? 1024
              : spec.phase == Phase::kInputGrad ? 2048
                                                : spec.cols;
  }
  return std::min(columns, spec.cols);
}
constexpr float kNothing = -INFINITY;  // the maximum over no logits

template <typename T>
class LmHeadLoss : public Kernel {
 public:
  // Null where the scratch is too short for any product.
  static std::unique_ptr<Kernel> Make(const OpSpec& spec, const PrepareOptions& options) {
    std::unique_ptr<LmHeadLoss> kernel(new LmHeadLoss(spec, options));
    return kernel->full_ == nullptr || kernel->last_ == nullptr ? nullptr : std::move(kernel);
  }

  size_t ScratchBytes() const override {
    return apart_bytes_ + std::max(full_->ScratchBytes(), last_->ScratchBytes());
  }

  void Run(const OpCall& call) override {
    TRIREME_CHECK(call.scratch.size() >= ScratchBytes());
    float* stats = call.Out<float>(graph::kStats);
    if (spec_.phase == Phase::kForward) {
      for (int64_t r = 0; r < spec_.rows; ++r) {
        stats[3 * r] = kNothing;
        stats[3 * r + 1] = stats[3 * r + 2] = 0;
      }
    }
    for (int64_t c = 0; c < spec_.cols; c += tile_columns_) {
      const int64_t count = std::min(tile_columns_, spec_.cols - c);
      Product& product = count < tile_columns_ ? *last_ : *full_;
      switch (spec_.phase) {
        case Phase::kForward:
          ForwardTile(call, {c, c + count}, product);
          break;
        case Phase::kInputGrad:
          InputGradTile(call, {c, c + count}, product);
          break;
        case Phase::kWeightGrad:
          WeightGradTile(call, {c, c + count}, product);
          break;
      }
    }
    if (spec_.phase == Phase::kInputGrad && apart_bytes_ > 0) StoreInputGrad(call);
  }

 private:
  LmHeadLoss(const OpSpec& spec, const PrepareOptions& options)
      : spec_(spec), threads_(options.threads), tile_columns_(TileColumns<T>(spec)) {
    apart_bytes_ = ApartBytes();
    MakeProducts(options);
    if (full_ != nullptr && last_ != nullptr && ScratchBytes() <= options.scratch_limit_bytes) {
      return;
    }
    // Without room for it, in one tile.
    apart_bytes_ = 0;
    tile_columns_ = spec.cols;
    MakeProducts(options);
  }

  // In bf16 what a tile gives does not go where it belongs at once: logits are multiplied in a
  // dense tile, for which oneDNN has its fastest product, and dx is summed over the tiles in f32.
  size_t ApartBytes() const {
    if (std::is_same_v<T, float> || spec_.phase == Phase::kWeightGrad) return 0;
    const bool forward = spec_.phase == Phase::kForward;
    const int64_t bytes = forward ? spec_.rows * tile_columns_ * static_cast<int64_t>(sizeof(T))
                                  : spec_.rows * spec_.inner * static_cast<int64_t>(sizeof(float));
    return static_cast<size_t>((bytes + 63) / 64 * 64);
  }

  void MakeProducts(const PrepareOptions& options) {
    const size_t limit =
        options.scratch_limit_bytes - std::min(options.scratch_limit_bytes, apart_bytes_);
    const int64_t rest = tile_columns_ == 0 ? 0 : spec_.cols % tile_columns_;
    full_ = MakeProduct(TileShape(tile_columns_), limit);
    last_ = MakeProduct(TileShape(rest), limit);
  }

  std::span<std::byte> ProductScratch(const OpCall& call) const {
    return call.scratch.subspan(apart_bytes_);
  }

  bool InOut() const { return spec_.weight_layout == WeightLayout::kInOut; }
  // Offset of the tile's first element in W or dW.
  int64_t WeightOffset(int64_t column) const { return InOut() ? column : column * spec_.inner; }

  ProductShape TileShape(int64_t count) const {
    const int64_t w_ld = InOut() ? spec_.cols : spec_.inner;
    ProductShape p;
    p.threads = threads_;
    p.dtype = spec_.dtype;
    p.c_dtype =
        spec_.phase == Phase::kWeightGrad ? tensor::AccumulatorOf(spec_.dtype) : spec_.dtype;
    switch (spec_.phase) {
      case Phase::kForward:  // y tile [rows, count] = x * W tile
        p.m = spec_.rows, p.n = count, p.k = spec_.inner;
        p.lda = spec_.x_ld, p.ldb = w_ld, p.ldc = apart_bytes_ > 0 ? count : spec_.y_ld;
        p.transpose_b = !InOut();
        break;
      case Phase::kInputGrad:  // dx [rows, inner] += y tile * W tile^T
        p.m = spec_.rows, p.n = spec_.inner, p.k = count;
        p.lda = spec_.y_ld, p.ldb = w_ld, p.ldc = apart_bytes_ > 0 ? spec_.inner : spec_.x_ld;
        if (apart_bytes_ > 0) p.c_dtype = tensor::DType::kF32;
        p.transpose_b = InOut();
        break;
      case Phase::kWeightGrad:  // dw tile = x^T y tile or its transpose
        p.m = InOut() ? spec_.inner : count;
        p.n = InOut() ? count : spec_.inner;
        p.k = spec_.rows;
        p.lda = InOut() ? spec_.x_ld : spec_.y_ld;
        p.ldb = InOut() ? spec_.y_ld : spec_.x_ld;
        p.ldc = w_ld;
        p.transpose_a = true;
        break;
    }
    return p;
  }

  void ForwardTile(const OpCall& call, Range cols, Product& product) {
    const int64_t count = cols.end - cols.begin;
    T* y = call.Out<T>(graph::kY) + cols.begin;
    T* tile = apart_bytes_ > 0 ? reinterpret_cast<T*>(call.scratch.data()) : y;
    const int64_t tile_ld = apart_bytes_ > 0 ? count : spec_.y_ld;
    product.Run({.a = call.In<T>(graph::kX),
                 .b = call.In<T>(graph::kW) + WeightOffset(cols.begin),
                 .c = tile,
                 .bias = nullptr,
                 .addend = nullptr,
                 .same_a = &product == full_.get() && cols.begin > 0},
                ProductScratch(call));
    const auto* targets = call.In<int32_t>(graph::kTokens);
    float* stats = call.Out<float>(graph::kStats);
    ForRows(spec_.rows, count, threads_, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const T* row = tile + r * tile_ld;
        RowLoopsOf<T>().fold_softmax(row, count, &stats[3 * r], &stats[3 * r + 1]);
        const int64_t target = targets[r] - spec_.vocab_begin - cols.begin;
        if (targets[r] >= 0 && target >= 0 && target < count) {
          stats[3 * r + 2] = static_cast<float>(row[target]);
        }
        if (tile != y) RowLoopsOf<T>().stream(row, y + r * spec_.y_ld, count);
      }
      hwy::FlushStream();
    });
  }

  void InputGradTile(const OpCall& call, Range cols, Product& product) {
    T* y = call.Out<T>(graph::kY) + cols.begin;
    const auto* targets = call.In<int32_t>(graph::kTokens);
    const float* lse = call.In<float>(graph::kBase);
    const int64_t count = cols.end - cols.begin;
    ForRows(spec_.rows, count, threads_, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        T* row = y + r * spec_.y_ld;
        if (targets[r] < 0) {
          std::fill(row, row + count, T{});
          continue;
        }
        RowLoopsOf<T>().softmax_in_place(row, count,
                                         {.lse = lse[r],
                                          .scale = static_cast<float>(call.loss_scale),
                                          .target = targets[r] - spec_.vocab_begin - cols.begin,
                                          .next = spec_.y_ld});
      }
    });
    void* dx = apart_bytes_ > 0 ? call.scratch.data() : call.operand[graph::kDX];
    product.Run({.a = y,
                 .b = call.In<T>(graph::kW) + WeightOffset(cols.begin),
                 .c = dx,
                 .bias = nullptr,
                 .addend = cols.begin > 0 ? dx : nullptr},
                ProductScratch(call));
  }

  // dx, from the sums over all tiles.
  void StoreInputGrad(const OpCall& call) const {
    const auto* sums = reinterpret_cast<const float*>(call.scratch.data());
    T* dx = call.Out<T>(graph::kDX);
    ForRows(spec_.rows, spec_.inner, threads_, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        RowLoopsOf<T>().narrow(sums + r * spec_.inner, dx + r * spec_.x_ld, spec_.inner);
      }
    });
  }

  void WeightGradTile(const OpCall& call, Range cols, Product& product) {
    const T* x = call.In<T>(graph::kX);
    const T* y = call.In<T>(graph::kY) + cols.begin;
    float* dw = call.Out<float>(graph::kDW) + WeightOffset(cols.begin);
    product.Run({.a = InOut() ? x : y,
                 .b = InOut() ? y : x,
                 .c = dw,
                 .bias = nullptr,
                 .addend = call.accumulate ? dw : nullptr},
                ProductScratch(call));
  }

  OpSpec spec_;
  int threads_;
  int64_t tile_columns_;
  size_t apart_bytes_ = 0;                // at the beginning of the scratch
  std::unique_ptr<Product> full_, last_;  // of a whole tile, and of what the last one has less
};

// log-sum-exp of each row over the tensor ranks' (max, sum, target) triples.
void CombineLoss(const OpSpec& spec, const OpCall& call) {
  const float* triples = call.In<float>(graph::kX);
  const auto* targets = call.In<int32_t>(graph::kTokens);
  float* lse = call.Out<float>(graph::kY);
  double loss = 0;
  for (int64_t r = 0; r < spec.rows; ++r) {
    double max = kNothing, sum = 0, target = 0;
    for (int64_t k = 0; k < spec.tensor_ranks; ++k) {
      const double part = triples[(k * spec.rows + r) * 3];
      if (!(part <= max)) max = part;  // a NaN stays and reaches the loss
    }
    for (int64_t k = 0; k < spec.tensor_ranks; ++k) {
      const float* triple = triples + (k * spec.rows + r) * 3;
      if (triple[1] != 0.0f) sum += triple[1] * std::exp(triple[0] - max);
      target += triple[2];
    }
    const double row_lse = max + std::log(sum);
    lse[r] = static_cast<float>(row_lse);
    if (targets[r] >= 0) loss += row_lse - target;
  }
  *call.Out<double>(graph::kDB) += loss;
}

}  // namespace

template <typename T>
std::unique_ptr<Kernel> MakeLmHeadLoss(const OpSpec& spec, const PrepareOptions& options) {
  return LmHeadLoss<T>::Make(spec, options);
}

// All of its operands are f32 in both.
template <typename T>
std::unique_ptr<Kernel> MakeLossCombine(const OpSpec& spec, const PrepareOptions&) {
  if (spec.phase != Phase::kForward) return nullptr;
  return MakeLoop([spec](const OpCall& call) { CombineLoss(spec, call); });
}

template std::unique_ptr<Kernel> MakeLmHeadLoss<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeLmHeadLoss<tensor::BFloat16>(const OpSpec&,
                                                                  const PrepareOptions&);
template std::unique_ptr<Kernel> MakeLossCombine<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeLossCombine<tensor::BFloat16>(const OpSpec&,
                                                                   const PrepareOptions&);

}  // namespace trireme::kernels::cpu
