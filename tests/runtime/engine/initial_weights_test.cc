// Initial weights as they come out of the engine, against what the papers say of them: layouts
// agree with each other whatever they are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments moments;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) moments.mean += value / count;
  for (const double value : values) {
    moments.deviation += (value - moments.mean) * (value - moments.mean) / count;
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

Tensors InitialWeights(const TinyJobOptions& options, double initializer_range) {
  v1::JobSpec job = JobFor({}, options);
  job.mutable_model()->mutable_config()->set_initializer_range(initializer_range);
  const auto dataset = MakeRandomDataset(29, 5);
  const auto result = RunLayout(job, 1, *dataset, {.steps = 0});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return result->weights;
}

}  // namespace

// A deviation of n normal numbers errs by 1/sqrt(2n) of it, a mean by 1/sqrt(n): five of them.
TEST_CASE("initial weights: normal ones have the deviation of their place, others are 1 or 0") {
  constexpr double kRange = 0.05;
  constexpr int64_t kLayers = 8;
  for (const char* family : {"gpt2", "llama"}) {
    const bool gpt2 = family == std::string("gpt2");
    int projections = 0;
    for (const auto& [name, values] :
         InitialWeights({.family = family, .layers = kLayers}, kRange)) {
      INFO(name);
      const bool bias = EndsWith(name, ".bias");
      const bool norm =
          name.find("ln_") != std::string::npos || name.find("norm") != std::string::npos;
      if (bias || norm) {
        const double expected = bias ? 0 : 1;
        CHECK(std::all_of(values.begin(), values.end(),
                          [expected](double value) { return value == expected; }));
        continue;
      }
      const Moments moments = MomentsOf(values);
      // The GPT-2 paper, section 2.3: 1/sqrt(N) with N residual layers, two of each block.
      const bool projection = gpt2 && EndsWith(name, ".c_proj.weight");
      projections += projection ? 1 : 0;
      const double expected = kRange / (projection ? std::sqrt(2.0 * kLayers) : 1.0);
      const auto count = static_cast<double>(values.size());
      CHECK(std::abs(moments.deviation / expected - 1) < 5 / std::sqrt(2 * count));
      CHECK(std::abs(moments.mean) < 5 * expected / std::sqrt(count));
    }
    CHECK(projections == (gpt2 ? 2 * kLayers : 0));
  }
}

}  // namespace trireme::engine
