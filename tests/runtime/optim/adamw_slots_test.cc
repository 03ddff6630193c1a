// AdamW from slot to slot: the bits of AdamW in place, and the sums of the snapshot's format,
// whatever the cuts, the threads and the instruction set.
#include "runtime/optim/adamw_slots.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "hwy/targets.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/tensor/bf16.h"

namespace trireme::optim {
namespace {

using checksum::LaneSums;
using tensor::BFloat16;

// An array of a slot: it begins on a line, its last piece is filled with zeros. A guard on each
// side.
template <typename T>
class SlotArray {
 public:
  explicit SlotArray(size_t count)
      : count_(count),
        whole_((count * sizeof(T) + checksum::kSummedBytes - 1) / checksum::kSummedBytes *
               checksum::kSummedBytes / sizeof(T)),
        sums_(whole_ * sizeof(T) / checksum::kSummedBytes),
        memory_(whole_ + 3 * kGuard, static_cast<T>(kGuardValue)) {
    void* at = memory_.data() + kGuard;
    size_t room = (whole_ + kGuard) * sizeof(T);
    data_ = static_cast<T*>(std::align(64, whole_ * sizeof(T), at, room));
    std::fill_n(data_, whole_, T{0});
  }
  std::span<T> all() { return {data_, count_}; }
  std::span<LaneSums> sums() { return sums_; }
  void Clear() {
    std::fill_n(data_, whole_, T{0});
    std::fill(sums_.begin(), sums_.end(), LaneSums{});
  }
  // Of each piece, from what is in memory now.
  bool SumsAreThoseOfMemory() const {
    const auto bytes = std::as_bytes(std::span(data_, whole_));
    for (size_t piece = 0; piece < sums_.size(); ++piece) {
      const auto part = bytes.subspan(piece * checksum::kSummedBytes, checksum::kSummedBytes);
      if (checksum::Folded(sums_[piece]) != checksum::SumOfPiece(part)) return false;
    }
    return true;
  }
  bool GuardsStand() const {
    return std::all_of(memory_.data(), static_cast<const T*>(data_), IsGuard) &&
           std::all_of(static_cast<const T*>(data_ + whole_), memory_.data() + memory_.size(),
                       IsGuard);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr double kGuardValue = 7;
  static bool IsGuard(T value) { return value == static_cast<T>(kGuardValue); }

  size_t count_, whole_;
  std::vector<LaneSums> sums_;
  std::vector<T> memory_;
  T* data_;
};

template <typename T>
std::vector<T> Values(size_t count, uint32_t seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(uniform(generator));
  return values;
}

AdamWOptions SlotOptions(int threads) {
  AdamWOptions options;
  options.learning_rate = 3e-2;
  options.weight_decay = 0.25;
  options.gradient_scale = 0.375;
  options.epsilon = 1e-5;
  options.step = 3;
  options.threads = threads;
  return options;
}

// A state, what AdamW in place makes of it, and a slot that it is written to.
template <typename T, typename Weight>
struct Subject {
  explicit Subject(size_t elements)
      : count(elements),
        p(Values<T>(count, 1, -1, 1)),
        g(Values<T>(count, 2, -1e-2, 1e-2)),
        m(Values<T>(count, 3, -1e-3, 1e-3)),
        v(Values<T>(count, 4, 0, 1e-4)),
        parameter(count),
        moment1(count),
        moment2(count),
        weight(count) {
    // Of what is not finite the bits count too.
    for (const auto& [at, value] : {std::pair<size_t, T>{3, std::numeric_limits<T>::quiet_NaN()},
                                    {17, std::numeric_limits<T>::infinity()},
                                    {count / 2, -std::numeric_limits<T>::infinity()},
                                    {count - 1, std::numeric_limits<T>::denorm_min()}}) {
      if (at < count) g[at] = value;
    }
    after_p = p, after_m = m, after_v = v;
    after_weight.resize(count);
    if constexpr (std::is_same_v<Weight, BFloat16>) {
      AdamW(std::span(after_p), std::span<const T>(g), std::span(after_m), std::span(after_v),
            std::span(after_weight), SlotOptions(1));
    } else {
      AdamW<T>(after_p, g, after_m, after_v, SlotOptions(1));
      after_weight = after_p;
    }
  }

  void Step(size_t begin, size_t length, int threads) {
    const auto part = [&](const std::vector<T>& values) {
      return std::span<const T>(values).subspan(begin, length);
    };
    const auto slot = [&](SlotArray<T>& array) { return array.all().subspan(begin, length); };
    AdamW(SlotStep<T, Weight>{.from = {part(p), part(m), part(v)},
                              .gradient = part(g),
                              .to = {slot(parameter), slot(moment1), slot(moment2)},
                              .weight = weight.all().subspan(begin, length),
                              .first = begin,
                              .sums = {parameter.sums(), moment1.sums(), moment2.sums()}},
          SlotOptions(threads));
  }

  template <typename E>
  static bool SameBits(std::span<E> got, const std::vector<E>& expected) {
    return std::memcmp(got.data(), expected.data(), expected.size() * sizeof(E)) == 0;
  }
  void Check() {
    CHECK(SameBits(parameter.all(), after_p));
    CHECK(SameBits(moment1.all(), after_m));
    CHECK(SameBits(moment2.all(), after_v));
    CHECK(SameBits(weight.all(), after_weight));
    for (const auto* array : {&parameter, &moment1, &moment2}) {
      CHECK(array->SumsAreThoseOfMemory());
      CHECK(array->GuardsStand());
    }
    CHECK(weight.GuardsStand());
  }
  void Clear() {
    for (auto* array : {&parameter, &moment1, &moment2}) array->Clear();
    weight.Clear();
  }

  size_t count;
  std::vector<T> p, g, m, v, after_p, after_m, after_v;
  std::vector<Weight> after_weight;
  SlotArray<T> parameter, moment1, moment2;
  SlotArray<Weight> weight;
};

template <typename T, typename Weight>
void CheckCounts() {
  for (const size_t count : {1, 7, 8, 15, 16, 17, 33, 1000, 8192, 16384, 16385, 50'007}) {
    Subject<T, Weight> subject(count);
    for (const int threads : {1, 2, 3, 5}) {
      INFO(count << " elements, " << threads << " threads");
      subject.Clear();
      subject.Step(0, count, threads);
      subject.Check();
    }
  }
}

// A span that begins anywhere, on no line of the weights either.
template <typename T, typename Weight>
void CheckCuts() {
  std::mt19937_64 random(11);
  for (const size_t count : {70, 5000, 40'000}) {
    Subject<T, Weight> subject(count);
    for (int round = 0; round < 12; ++round) {
      std::vector<size_t> cuts{0, count};
      for (size_t cut = random() % 9; cut > 0; --cut) cuts.push_back(random() % (count + 1));
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> order;
      for (size_t at = 0; at + 1 < cuts.size(); ++at) order.push_back(at);
      std::shuffle(order.begin(), order.end(), random);
      subject.Clear();
      for (const size_t at : order) {
        subject.Step(cuts[at], cuts[at + 1] - cuts[at], static_cast<int>(random() % 4));
      }
      subject.Check();
    }
  }
}

}  // namespace

TEST_CASE(
    "slots: AdamW from slot to slot has the bits of AdamW in place, and sums of what it wrote") {
  CheckCounts<float, float>();
  CheckCounts<float, BFloat16>();
  CheckCounts<double, double>();
}

TEST_CASE("slots: wherever a step from slot to slot is cut, bits and sums are the same") {
  CheckCuts<float, float>();
  CheckCuts<float, BFloat16>();
  CheckCuts<double, double>();
}

TEST_CASE("slots: every instruction set writes and sums the same") {
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    INFO(hwy::TargetName(rest & -rest));
    Subject<float, BFloat16> bf16(20'011);
    bf16.Step(0, 20'011, 2);
    bf16.Check();
    Subject<double, double> f64(9'005);
    f64.Step(0, 9'005, 2);
    f64.Check();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// With every other slot taken.
TEST_CASE("slots: a step may write where it reads") {
  Subject<float, float> subject(40'000);
  std::copy(subject.p.begin(), subject.p.end(), subject.parameter.all().begin());
  std::copy(subject.m.begin(), subject.m.end(), subject.moment1.all().begin());
  std::copy(subject.v.begin(), subject.v.end(), subject.moment2.all().begin());
  const StateSpans<float> state{subject.parameter.all(), subject.moment1.all(),
                                subject.moment2.all()};
  AdamW(SlotStep<float, float>{.from = {state.parameter, state.moment1, state.moment2},
                               .gradient = subject.g,
                               .to = state,
                               .weight = subject.weight.all(),
                               .sums = {subject.parameter.sums(), subject.moment1.sums(),
                                        subject.moment2.sums()}},
        SlotOptions(2));
  subject.Check();
}

// By the page's formula, term by term, of one array.
TEST_CASE("slots: the sums are those of the page") {
  Subject<float, float> subject(16384 + 100);
  subject.Step(0, 5, 1);
  subject.Step(5, subject.count - 5, 3);
  for (size_t piece = 0; piece < 2; ++piece) {
    std::array<uint64_t, 16> a{}, b{};
    for (size_t word = 0; word < 16384; ++word) {
      const size_t element = piece * 16384 + word;
      uint32_t bits = 0;
      if (element < subject.count) std::memcpy(&bits, &subject.after_v[element], 4);
      a[word % 16] += bits;
      b[word % 16] += (1024 - word / 16) * uint64_t{bits};
    }
    CHECK(subject.moment2.sums()[piece].words == a);
    CHECK(subject.moment2.sums()[piece].sums == b);
  }
}

}  // namespace trireme::optim
