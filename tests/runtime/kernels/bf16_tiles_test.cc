// The tile products of bf16, of every way that this processor has, against sums in f64: each
// element errs by the roundings of its k products and of what it is added to, in f32.
#include "runtime/kernels/cpu/bf16_tiles.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "tests/skip.h"

namespace trireme::kernels::cpu {
namespace {

using tensor::BFloat16;

class Operands {
 public:
  explicit Operands(const Bf16Product& shape) : shape_(shape) {
    std::minstd_rand generator(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto fill = [&](std::vector<BFloat16>& values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) values.push_back(BFloat16(uniform(generator)));
    };
    fill(a_, shape.m * shape.a_ld);
    fill(b_, shape.k * shape.b_ld);
    for (int64_t i = 0; i < shape.m * shape.c_ld; ++i) before_.push_back(uniform(generator));
    for (int64_t pair = 0; pair < shape.k / 2; ++pair) {
      for (int64_t j = 0; j < shape.b_ld; ++j) {
        pairs_.push_back(uint32_t{B(2 * pair, j).bits} | uint32_t{B(2 * pair + 1, j).bits} << 16);
      }
    }
  }

  // Greatest share that an element of C errs by of the bound; infinite if other memory changed.
  double Run(const Bf16Tiles& tiles) const {
    std::vector<float> c = before_;
    Bf16Product product = shape_;
    product.a = a_.data();
    product.b = pairs_.data();
    product.c = c.data();
    tiles.enter();
    tiles.multiply(product);
    tiles.leave();
    double worst = 0;
    for (int64_t i = 0; i < shape_.m; ++i) {
      for (int64_t j = 0; j < shape_.c_ld; ++j) {
        const auto at = static_cast<size_t>(i * shape_.c_ld + j);
        if (j >= shape_.n) {
          if (c[at] != before_[at]) return INFINITY;
          continue;
        }
        double sum = shape_.accumulate ? before_[at] : 0, terms = std::abs(sum);
        for (int64_t k = 0; k < shape_.k; ++k) {
          const double term = static_cast<double>(static_cast<float>(
                                  a_[static_cast<size_t>(i * shape_.a_ld + k)])) *
                              static_cast<float>(B(k, j));
          sum += term;
          terms += std::abs(term);
        }
        const double bound = static_cast<double>(shape_.k + 1) * 0x1p-24 * terms;
        worst = std::max(worst, std::abs(c[at] - sum) / bound);
      }
    }
    return worst;
  }

 private:
  BFloat16 B(int64_t k, int64_t j) const { return b_[static_cast<size_t>(k * shape_.b_ld + j)]; }

  Bf16Product shape_;
  std::vector<BFloat16> a_, b_;
  std::vector<uint32_t> pairs_;
  std::vector<float> before_;
};

TEST_CASE("tiles of bf16 multiply as f64 does, within the roundings of f32") {
  int ways = 0;
  for (const Bf16Tiles* tiles : {AmxTiles(), Avx512Tiles()}) {
    if (tiles == nullptr) continue;
    ++ways;
    for (const bool accumulate : {false, true}) {
      for (const auto& [m, n, k] : {std::tuple(32, 32, 32), {64, 96, 32}, {96, 64, 160}}) {
        Bf16Product shape;
        shape.m = m;
        shape.n = n;
        shape.k = k;
        shape.a_ld = k + 8;
        shape.b_ld = n + 16;
        shape.c_ld = n + 4;
        shape.accumulate = accumulate;
        INFO("way " << ways << ": " << m << " x " << n << " x " << k << (accumulate ? " +=" : ""));
        CHECK(Operands(shape).Run(*tiles) <= 1);
      }
    }
  }
  if (ways == 0) TRIREME_SKIP("not here: a processor with products of bf16");
}

}  // namespace
}  // namespace trireme::kernels::cpu
