// AdamW, the sum of squares and the learning rate against the written-out formulas in f64.
#include "runtime/optim/adamw.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace trireme::optim {
namespace {

using tensor::BFloat16;

template <typename T>
std::vector<T> RandomVector(size_t count, uint32_t seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(uniform(generator));
  return values;
}

template <typename T>
struct State {
  explicit State(size_t count)
      : p(RandomVector<T>(count, 1, -1, 1)),
        g(RandomVector<T>(count, 2, -1e-2, 1e-2)),
        m(RandomVector<T>(count, 3, -1e-3, 1e-3)),
        v(RandomVector<T>(count, 4, 0, 1e-4)) {}

  void Step(const AdamWOptions& options, size_t begin, size_t count) {
    AdamW<T>(std::span<T>(p).subspan(begin, count), std::span<const T>(g).subspan(begin, count),
             std::span<T>(m).subspan(begin, count), std::span<T>(v).subspan(begin, count), options);
  }
  void Step(const AdamWOptions& options) { Step(options, 0, p.size()); }

  std::vector<T> p, g, m, v;
};

// torch.optim.AdamW's documented loop, scalar, in f64.
void ExpectFormula(double p, double g, double m, double v, const AdamWOptions& o, double got_p,
                   double got_m, double got_v, double eps) {
  const double gradient = o.gradient_scale * g;
  p *= 1 - o.learning_rate * o.weight_decay;
  m = o.beta1 * m + (1 - o.beta1) * gradient;
  v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
  const double m_hat = m / (1 - std::pow(o.beta1, static_cast<double>(o.step)));
  const double v_hat = v / (1 - std::pow(o.beta2, static_cast<double>(o.step)));
  const double update = o.learning_rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
  p -= update;
  // At most a dozen roundings on the way to each number.
  REQUIRE(std::abs(got_m - m) <= 4 * eps * (std::abs(m) + std::abs(gradient)));
  REQUIRE(std::abs(got_v - v) <= 8 * eps * v);
  REQUIRE(std::abs(got_p - p) <=
          4 * eps * std::abs(p) + 12 * eps * (std::abs(update) + o.learning_rate));
}

template <typename T>
void CheckSteps(size_t count, const AdamWOptions& options) {
  const State<T> before(count);
  State<T> after = before;
  after.Step(options);
  for (size_t i = 0; i < count; ++i) {
    ExpectFormula(before.p[i], before.g[i], before.m[i], before.v[i], options, after.p[i],
                  after.m[i], after.v[i], std::numeric_limits<T>::epsilon());
  }
}

AdamWOptions Options(int64_t step, int threads) {
  AdamWOptions options;
  options.learning_rate = 3e-2;
  options.weight_decay = 0.25;
  options.gradient_scale = 0.375;
  options.epsilon = 1e-5;
  options.step = step;
  options.threads = threads;
  return options;
}

TEST_CASE("AdamW follows the scalar formula") {
  for (size_t count : {0, 1, 7, 16, 33, 1000, 5000}) {
    for (int64_t step : {1, 2, 1000}) {
      CheckSteps<float>(count, Options(step, 1));
      CheckSteps<double>(count, Options(step, 2));
    }
  }
}

TEST_CASE("AdamW gives the same bits however a span is cut and whoever computes it") {
  const size_t count = 10007;
  State<float> whole(count);
  whole.Step(Options(3, 1));
  for (int threads : {2, 3, 5}) {
    State<float> threaded(count);
    threaded.Step(Options(3, threads));
    CHECK(threaded.p == whole.p);
    CHECK(threaded.m == whole.m);
    CHECK(threaded.v == whole.v);
  }
  State<float> cut(count);
  size_t begin = 0;
  for (size_t length : {1, 15, 16, 17, 4000, 5958}) {
    cut.Step(Options(3, 1), begin, length);
    begin += length;
  }
  REQUIRE(begin == count);
  CHECK(cut.p == whole.p);
  CHECK(cut.m == whole.m);
  CHECK(cut.v == whole.v);
}

std::vector<uint16_t> BitsOf(const std::vector<BFloat16>& values) {
  std::vector<uint16_t> bits;
  for (const BFloat16 value : values) bits.push_back(value.bits);
  return bits;
}

// The masters do not know of their copy.
TEST_CASE("AdamW writes bf16 weights that are its masters rounded, however the span is cut") {
  for (const size_t count : {0, 1, 7, 16, 33, 5000, 10007}) {
    State<float> plain(count);
    plain.Step(Options(3, 1));
    std::vector<uint16_t> rounded;
    for (const float p : plain.p) rounded.push_back(BFloat16(p).bits);
    for (const int threads : {1, 2, 3}) {
      State<float> master(count);
      std::vector<BFloat16> weight(count, BFloat16(7.0F));
      AdamW(std::span(master.p), std::span<const float>(master.g), std::span(master.m),
            std::span(master.v), std::span(weight), Options(3, threads));
      CHECK(master.p == plain.p);
      CHECK(master.m == plain.m);
      CHECK(master.v == plain.v);
      CHECK(BitsOf(weight) == rounded);
    }
    State<float> cut(count);
    std::vector<BFloat16> weight(count);
    for (size_t begin = 0; begin < count; begin += 17) {
      const size_t length = std::min<size_t>(17, count - begin);
      AdamW(std::span(cut.p).subspan(begin, length),
            std::span<const float>(cut.g).subspan(begin, length),
            std::span(cut.m).subspan(begin, length), std::span(cut.v).subspan(begin, length),
            std::span(weight).subspan(begin, length), Options(3, 1));
    }
    CHECK(cut.p == plain.p);
    CHECK(BitsOf(weight) == rounded);
  }
}

TEST_CASE("a master that is not a number has a weight that is none") {
  std::vector<float> p(40, 1.0F), g(40, 0.5F), m(40), v(40);
  p[3] = g[17] = p[39] = std::numeric_limits<float>::quiet_NaN();
  std::vector<BFloat16> weight(40);
  AdamW(std::span(p), std::span<const float>(g), std::span(m), std::span(v), std::span(weight),
        Options(1, 1));
  for (size_t i = 0; i < 40; ++i) {
    const bool nan = i == 3 || i == 17 || i == 39;
    CHECK(std::isnan(static_cast<float>(weight[i])) == nan);
  }
}

TEST_CASE("weight decay does not pass through the moments") {
  AdamWOptions options = Options(1, 1);
  State<double> plain(50), decayed(50);
  options.weight_decay = 0;
  plain.Step(options);
  options.weight_decay = 0.5;
  decayed.Step(options);
  CHECK(plain.m == decayed.m);
  CHECK(plain.v == decayed.v);
  CHECK(plain.p != decayed.p);
}

TEST_CASE("SumOfSquares is exact to f64 rounding and independent of threads") {
  for (size_t count : {0, 1, 15, 16, 17, 1023, 1024, 1025, 100003}) {
    const auto f32 = RandomVector<float>(count, 9, -3, 3);
    const auto f64 = RandomVector<double>(count, 10, -3, 3);
    long double expected32 = 0, expected64 = 0;
    for (float x : f32) expected32 += static_cast<long double>(x) * x;
    for (double x : f64) expected64 += static_cast<long double>(x) * x;
    const double sum32 = SumOfSquares<float>(f32, 1);
    const double sum64 = SumOfSquares<double>(f64, 1);
    CHECK(sum32 == Approx(static_cast<double>(expected32)).epsilon(1e-13));
    CHECK(sum64 == Approx(static_cast<double>(expected64)).epsilon(1e-13));
    for (int threads : {2, 3, 4}) {
      CHECK(SumOfSquares<float>(f32, threads) == sum32);
      CHECK(SumOfSquares<double>(f64, threads) == sum64);
    }
  }
}

TEST_CASE("SumOfSquares does not hide a NaN or an infinity") {
  std::vector<float> values(5000, 1.0f);
  values[4999] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(SumOfSquares<float>(values, 2)));
  values[4999] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(SumOfSquares<float>(values, 2)));
}

TEST_CASE("the learning rate warms up, decays and stays at the minimum") {
  LearningRateOptions options;
  options.peak = 1e-3;
  options.minimum = 1e-4;
  options.warmup_steps = 100;
  options.decay_steps = 2000;
  CHECK(LearningRate(options, 0) == Approx(1e-3 / 101));
  CHECK(LearningRate(options, 99) == Approx(1e-3 * 100 / 101));
  CHECK(LearningRate(options, 100) == Approx(1e-3));
  CHECK(LearningRate(options, 1050) == Approx(0.5 * (1e-3 + 1e-4)));
  CHECK(LearningRate(options, 575) ==
        Approx(1e-4 + 9e-4 * 0.5 * (1 + std::cos(3.14159265358979 / 4))));
  CHECK(LearningRate(options, 2000) == 1e-4);
  CHECK(LearningRate(options, 1000000) == 1e-4);
  options.schedule = LearningRateSchedule::kLinear;
  CHECK(LearningRate(options, 575) == Approx(1e-4 + 9e-4 * 0.75));
  options.schedule = LearningRateSchedule::kConstant;
  CHECK(LearningRate(options, 50) == Approx(1e-3 * 51 / 101));
  CHECK(LearningRate(options, 5000) == 1e-3);
  options.schedule = LearningRateSchedule::kCosine;
  options.warmup_steps = 10;
  options.decay_steps = 10;
  CHECK(LearningRate(options, 10) == 1e-4);
}

}  // namespace
}  // namespace trireme::optim
