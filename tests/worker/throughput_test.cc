// The two rates of a run, by a clock that the test sets.
#include "worker/throughput.h"

#include <catch2/catch.hpp>

namespace trireme::worker {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST_CASE("throughput: what lies between steps counts in the overall rate alone") {
  int64_t now_ns = 77 * kSecond;
  Throughput throughput([&] { return now_ns; });
  now_ns += 5 * kSecond;  // planning, reading a checkpoint: nobody trains yet
  throughput.Start();
  CHECK((throughput.in_steps() == 0 && throughput.overall() == 0));
  const auto step = [&](int64_t seconds) {
    now_ns += seconds * kSecond;
    throughput.AddStep(600, static_cast<double>(seconds));
  };
  step(2);
  CHECK(throughput.in_steps() == Approx(300).epsilon(1e-12));
  CHECK(throughput.overall() == Approx(300).epsilon(1e-12));
  now_ns += 6 * kSecond;  // an evaluation
  step(4);
  now_ns += 8 * kSecond;  // a checkpoint
  CHECK(throughput.tokens() == 1200);
  CHECK(throughput.step_seconds() == Approx(6).epsilon(1e-12));
  CHECK(throughput.wall_seconds() == Approx(20).epsilon(1e-12));
  CHECK(throughput.in_steps() == Approx(200).epsilon(1e-12));
  CHECK(throughput.overall() == Approx(60).epsilon(1e-12));
}

}  // namespace
}  // namespace trireme::worker
