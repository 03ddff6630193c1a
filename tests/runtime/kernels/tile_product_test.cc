// Products by tiles against sums in f64: k products, bias and addend are added in f32, and what is
// stored in bf16 is rounded once more. Threads do not change the bits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "runtime/kernels/cpu/bf16_tiles.h"
#include "runtime/kernels/cpu/product.h"
#include "tests/skip.h"

namespace trireme::kernels::cpu {
namespace {

using tensor::BFloat16;
using tensor::DType;

class Case {
 public:
  Case(const ProductShape& shape, const Bf16Tiles* tiles) : shape_(shape), tiles_(tiles) {
    std::minstd_rand generator(9);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto fill = [&](auto& values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) values.emplace_back(uniform(generator));
    };
    fill(a_, (shape.transpose_a ? shape.k : shape.m) * shape.lda);
    fill(b_, (shape.transpose_b ? shape.n : shape.k) * shape.ldb);
    fill(bias_, shape.n);
    fill(before_f32_, shape.m * shape.ldc);
    fill(before_bf16_, shape.m * shape.ldc);
  }

  // C after `threads` threads added to it, the elements between its rows too.
  std::vector<double> Run(int threads) const {
    return shape_.c_dtype == DType::kF32 ? RunOn(before_f32_, threads)
                                         : RunOn(before_bf16_, threads);
  }

  // Greatest share of the bound that an element errs by; infinite if other memory changed.
  double Worst(const std::vector<double>& c) const {
    double worst = 0;
    for (int64_t i = 0; i < shape_.m; ++i) {
      for (int64_t j = 0; j < shape_.ldc; ++j) {
        const auto at = static_cast<size_t>(i * shape_.ldc + j);
        const double before = Before(at);
        if (j >= shape_.n) {
          if (c[at] != before) return INFINITY;
          continue;
        }
        const double bias = static_cast<float>(bias_[static_cast<size_t>(j)]);
        double sum = before + bias, terms = std::abs(before) + std::abs(bias);
        for (int64_t k = 0; k < shape_.k; ++k) {
          const double term = A(i, k) * B(k, j);
          sum += term;
          terms += std::abs(term);
        }
        const double stored = shape_.c_dtype == DType::kF32 ? 0 : 0x1p-8 * std::abs(sum);
        const double bound = static_cast<double>(shape_.k + 2) * 0x1p-24 * terms + stored;
        worst = std::max(worst, std::abs(c[at] - sum) / bound);
      }
    }
    return worst;
  }

 private:
  double A(int64_t i, int64_t k) const {
    const int64_t at = shape_.transpose_a ? k * shape_.lda + i : i * shape_.lda + k;
    return static_cast<float>(a_[static_cast<size_t>(at)]);
  }
  double B(int64_t k, int64_t j) const {
    const int64_t at = shape_.transpose_b ? j * shape_.ldb + k : k * shape_.ldb + j;
    return static_cast<float>(b_[static_cast<size_t>(at)]);
  }
  double Before(size_t at) const {
    return shape_.c_dtype == DType::kF32 ? before_f32_[at] : static_cast<float>(before_bf16_[at]);
  }

  template <typename C>
  std::vector<double> RunOn(std::vector<C> c, int threads) const {
    ProductShape shape = shape_;
    shape.threads = threads;
    const auto product = MakeTileProduct(shape, size_t{1} << 30, tiles_);
    REQUIRE(product != nullptr);
    std::vector<std::byte> scratch(product->ScratchBytes(), std::byte{0xFF});
    product->Run(
        {.a = a_.data(), .b = b_.data(), .c = c.data(), .bias = bias_.data(), .addend = c.data()},
        scratch);
    std::vector<double> result;
    for (const C& value : c) result.push_back(static_cast<float>(value));
    return result;
  }

  ProductShape shape_;
  const Bf16Tiles* tiles_;
  std::vector<BFloat16> a_, b_, bias_, before_bf16_;
  std::vector<float> before_f32_;
};

void CheckSize(int64_t m, int64_t n, int64_t k, const Bf16Tiles* tiles) {
  for (int variant = 0; variant < 8; ++variant) {
    ProductShape shape;
    shape.m = m;
    shape.n = n;
    shape.k = k;
    shape.transpose_a = (variant & 1) != 0;
    shape.transpose_b = (variant & 2) != 0;
    shape.lda = (shape.transpose_a ? m : k) + 3;
    shape.ldb = (shape.transpose_b ? k : n) + 5;
    shape.ldc = n + 1;
    shape.dtype = DType::kBf16;
    shape.c_dtype = (variant & 4) != 0 ? DType::kBf16 : DType::kF32;
    INFO(m << " x " << n << " x " << k << ", variant " << variant);
    const Case operands(shape, tiles);
    const std::vector<double> alone = operands.Run(1);
    CHECK(operands.Worst(alone) <= 1);
    for (const int threads : {2, 3}) CHECK(operands.Run(threads) == alone);
  }
}

// Blocks of columns and of rows, edges of both sides and of k, several blocks and steps of k, and a
// k so long that a block has fewer panels.
void CheckSizes(const Bf16Tiles* tiles) {
  if (tiles == nullptr) TRIREME_SKIP("this processor has no such instructions");
  CheckSize(32, 32, 32, tiles);
  CheckSize(33, 65, 47, tiles);
  CheckSize(70, 600, 300, tiles);
  CheckSize(610, 40, 520, tiles);
  CheckSize(33, 200, 4000, tiles);
}

TEST_CASE("tile products by AMX are f64's within their roundings, from any number of threads") {
  CheckSizes(AmxTiles());
}

TEST_CASE("tile products by vectors are f64's within their roundings, from any number of threads") {
  CheckSizes(Avx512Tiles());
}

// A product without bias or addend into C that begins `offset` floats behind a line of the cache:
// at 0 whole lines of C go past the caches. B is that of `seed`.
class Plain {
 public:
  explicit Plain(const ProductShape& shape)
      : shape_(shape),
        product_(MakeTileProduct(shape, size_t{1} << 30, FastestTiles())),
        scratch_(product_->ScratchBytes(), std::byte{0xFF}) {
    std::minstd_rand generator(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < shape.m * shape.lda; ++i) a_.emplace_back(uniform(generator));
  }

  // All of C's memory, a line before and behind it too, which are 3 where nothing belongs.
  std::vector<float> Run(int64_t offset, unsigned seed, bool same_a = false) {
    std::minstd_rand generator(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<BFloat16> b;
    for (int64_t i = 0; i < shape_.k * shape_.ldb; ++i) b.emplace_back(uniform(generator));
    std::vector<float> memory(static_cast<size_t>(shape_.m * shape_.ldc + 64), 3.0f);
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data()) / 4 % 16);
    float* c = memory.data() + 32 - past + offset;
    product_->Run({.a = a_.data(),
                   .b = b.data(),
                   .c = c,
                   .bias = nullptr,
                   .addend = nullptr,
                   .same_a = same_a},
                  scratch_);
    return {c - 16, c + shape_.m * shape_.ldc + 15};
  }

 private:
  ProductShape shape_;
  std::unique_ptr<Product> product_;
  std::vector<std::byte> scratch_;
  std::vector<BFloat16> a_;
};

TEST_CASE("tile products past the caches, and of a left side that stays, have the same bits") {
  if (FastestTiles() == nullptr) TRIREME_SKIP("this processor has no such instructions");
  // Blocks of columns, and of rows.
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{70, 136}, {610, 72}}) {
    for (const int threads : {1, 3}) {
      ProductShape shape;
      shape.m = m;
      shape.n = n;
      shape.k = shape.lda = 300;
      shape.ldb = n;
      shape.ldc = (n + 31) / 16 * 16;
      shape.threads = threads;
      shape.dtype = DType::kBf16;
      INFO(m << " x " << n << ", " << threads << " threads");
      Plain product(shape);
      const std::vector<float> streamed = product.Run(0, 1);
      CHECK(streamed == product.Run(1, 1));
      CHECK(streamed[0] == 3.0f);
      CHECK(streamed[static_cast<size_t>(16 + n)] == 3.0f);
      CHECK(product.Run(0, 2, true) == Plain(shape).Run(0, 2));
    }
  }
}

TEST_CASE("tile products leave to others what they do not take") {
  ProductShape shape;
  shape.m = shape.n = shape.lda = shape.ldb = shape.ldc = 64;
  shape.k = 64;
  constexpr size_t kRoom = size_t{1} << 30;
  const Bf16Tiles* tiles = FastestTiles();
  CHECK(MakeTileProduct(shape, kRoom, tiles) == nullptr);  // f32
  shape.dtype = DType::kBf16;
  CHECK(MakeTileProduct(shape, kRoom, nullptr) == nullptr);
  if (tiles != nullptr) CHECK(MakeTileProduct(shape, kRoom, tiles) != nullptr);
  CHECK(MakeTileProduct(shape, 100, tiles) == nullptr);
  shape.m = 31;
  CHECK(MakeTileProduct(shape, kRoom, tiles) == nullptr);
}

}  // namespace
}  // namespace trireme::kernels::cpu
