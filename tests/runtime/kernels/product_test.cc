// Products of bf16, by oneDNN where the processor has them and by way of f32, against sums in f64.
#include "runtime/kernels/cpu/product.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/tensor/bf16.h"

namespace trireme::kernels::cpu {
namespace {

using tensor::BFloat16;
using tensor::DType;

constexpr int64_t kPadding = 3;
constexpr size_t kLeastScratch = size_t{3} * 32 * 32 * sizeof(float);

float Wide(float value) { return value; }
float Wide(BFloat16 value) { return static_cast<float>(value); }

std::vector<BFloat16> RandomMatrix(int64_t elements, uint32_t seed) {
  std::minstd_rand generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<BFloat16> values(static_cast<size_t>(elements));
  for (BFloat16& value : values) value = BFloat16(uniform(generator));
  return values;
}

struct Summands {
  bool bias = false, addend = false, in_place = false;
};

template <typename C>
void CheckProduct(const ProductShape& s, Product& product, const Summands& summands) {
  const auto a = RandomMatrix((s.transpose_a ? s.k : s.m) * s.lda, 1);
  const auto b = RandomMatrix((s.transpose_b ? s.n : s.k) * s.ldb, 2);
  const auto bias = RandomMatrix(s.n, 3);
  std::vector<C> c, addend;
  for (const BFloat16 value : RandomMatrix(s.m * s.ldc, 4)) c.push_back(C(Wide(value)));
  for (const BFloat16 value : RandomMatrix(s.m * s.ldc, 5)) addend.push_back(C(Wide(value)));
  if (summands.in_place) addend = c;
  const std::vector<C> before = c;
  std::vector<std::byte> scratch(product.ScratchBytes() + 64);
  void* aligned = scratch.data();
  size_t space = scratch.size();
  std::align(64, product.ScratchBytes(), aligned, space);
  product.Run({.a = a.data(),
               .b = b.data(),
               .c = c.data(),
               .bias = summands.bias ? bias.data() : nullptr,
               .addend = summands.in_place ? c.data()
                         : summands.addend ? addend.data()
                                           : nullptr},
              {static_cast<std::byte*>(aligned), product.ScratchBytes()});
  // A sum of k products below 1 in f32, in any order, and one rounding to bf16.
  const double sum = 0x1p-24 * (24 + 4 * std::sqrt(static_cast<double>(s.k))) *
                     (2 + std::sqrt(static_cast<double>(s.k)));
  const double rounding = std::is_same_v<C, BFloat16> ? 0x1p-8 : 0;
  int64_t wrong = 0;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.ldc; ++j) {
      const auto at = static_cast<size_t>(i * s.ldc + j);
      if (j >= s.n) {
        wrong += std::memcmp(&c[at], &before[at], sizeof(C)) != 0;
        continue;
      }
      double exact = summands.bias ? Wide(bias[static_cast<size_t>(j)]) : 0;
      if (summands.addend || summands.in_place) exact += Wide(addend[at]);
      for (int64_t k = 0; k < s.k; ++k) {
        const auto from_a = static_cast<size_t>(s.transpose_a ? k * s.lda + i : i * s.lda + k);
        const auto from_b = static_cast<size_t>(s.transpose_b ? j * s.ldb + k : k * s.ldb + j);
        exact += static_cast<double>(Wide(a[from_a])) * Wide(b[from_b]);
      }
      const double error = std::abs(Wide(c[at]) - exact);
      wrong += !(error <= sum + rounding * std::abs(exact));
    }
  }
  CHECK(wrong == 0);
}

struct Extent {
  int64_t m, n, k;
};

template <typename Make>
void CheckProducts(const Make& make, const std::vector<Extent>& sizes) {
  for (const Extent& size : sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      ProductShape s;
      s.m = size.m, s.n = size.n, s.k = size.k;
      s.transpose_a = flags % 2 != 0;
      s.transpose_b = flags / 2 % 2 != 0;
      const int64_t padding = flags / 4 * kPadding;
      s.lda = (s.transpose_a ? s.m : s.k) + padding;
      s.ldb = (s.transpose_b ? s.k : s.n) + padding;
      s.ldc = s.n + padding;
      s.dtype = DType::kBf16;
      s.threads = 2;
      INFO(s.m << " x " << s.n << " x " << s.k << ", flags " << flags);
      s.c_dtype = DType::kBf16;
      auto product = make(s);
      REQUIRE(product != nullptr);
      CheckProduct<BFloat16>(s, *product, {});
      CheckProduct<BFloat16>(s, *product, {.bias = true});
      CheckProduct<BFloat16>(s, *product, {.addend = true});
      CheckProduct<BFloat16>(s, *product, {.bias = true, .addend = true});
      CheckProduct<BFloat16>(s, *product, {.bias = true, .in_place = true});
      s.c_dtype = DType::kF32;
      product = make(s);
      REQUIRE(product != nullptr);
      CheckProduct<float>(s, *product, {});
      CheckProduct<float>(s, *product, {.in_place = true});
    }
  }
}

TEST_CASE("products of bf16 sum in f32 and round once") {
  CheckProducts([](const ProductShape& s) { return MakeProduct(s, size_t{1} << 30); },
                {{1, 1, 1}, {3, 7, 5}, {65, 33, 47}, {64, 96, 128}, {5, 0, 4}, {4, 5, 0}});
}

TEST_CASE("products of bf16 by way of f32 give the same, in one block and in many") {
  CheckProducts([](const ProductShape& s) { return MakeWideningProduct(s, size_t{1} << 30); },
                {{1, 1, 1}, {3, 7, 5}, {65, 33, 47}, {2, 3, 1100}, {1030, 5, 2}});
  CheckProducts([](const ProductShape& s) { return MakeWideningProduct(s, kLeastScratch); },
                {{1, 1, 1}, {32, 32, 32}, {65, 33, 70}, {31, 64, 97}});
}

TEST_CASE("a product of bf16 takes the way its scratch has room for") {
  ProductShape s;
  s.m = 256, s.n = 3072, s.k = 768;
  s.lda = s.ldb = s.k;
  s.ldc = s.n;
  s.transpose_b = true;
  s.dtype = s.c_dtype = DType::kBf16;
  CHECK(MakeWideningProduct(s, kLeastScratch - 1) == nullptr);
  const auto least = MakeProduct(s, kLeastScratch);
  REQUIRE(least != nullptr);
  CHECK(least->ScratchBytes() <= kLeastScratch);
}

}  // namespace
}  // namespace trireme::kernels::cpu
