// Parity with the work on asynchronous streams (a thread each): only right if every operator,
// transfer and update waits for what it needs. Runs under ThreadSanitizer too.
#include <catch2/catch.hpp>
#include <vector>

#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

std::vector<Layout> SomeLayouts() {
  return {
      {},
      {.micro_batch = 3},
      {.data = 2},
      {.data = 2, .zero = 1},
      {.data = 2, .zero = 2, .recompute = "full"},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 3, .recompute = "selective"},
      {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 3},
      {.data = 3, .zero = 1, .micro_batch = 1},
      {.tensor = 2},
      {.tensor = 2, .sequence_parallel = true},
      {.tensor = 3, .sequence_parallel = true, .micro_batch = 3},
      {.pipeline = 2, .schedule = "gpipe"},
      {.pipeline = 2, .schedule = "1f1b", .micro_batch = 1},
      {.pipeline = 2, .schedule = "interleaved"},
      {.pipeline = 2, .schedule = "zb-h1"},
      {.pipeline = 4, .schedule = "zb-h1", .micro_batch = 1},
      {.data = 2, .tensor = 2, .zero = 1},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 1},
      {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1},
      {.data = 2, .pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "1f1b"},
      {.tensor = 2, .pipeline = 2, .schedule = "interleaved"},
      {.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .zero = 1},
  };
}

void CheckStreams(const TinyJobOptions& options) {
  const auto dataset = MakeRandomDataset(29, 5);
  const auto reference =
      RunLayout(JobFor({.micro_batch = 8}, options), 1, *dataset, {.evaluate = true});
  REQUIRE(reference.ok());
  for (const Layout& layout : SomeLayouts()) {
    v1::JobSpec job = JobFor(layout, options);
    job.mutable_runtime()->set_asynchronous_streams(true);
    const auto result = RunLayout(job, layout.ranks(), *dataset, {.evaluate = true});
    INFO(options.family << " " << layout.Name() << " " << result.status().ToString());
    REQUIRE(result.ok());
    CHECK(FaultsOf(*result, *reference, 1e-12) == "");
  }
}

}  // namespace

TEST_CASE("streams: gpt2 agrees with one rank on asynchronous streams") {
  CheckStreams({.family = "gpt2", .dropout = 0.1});
}

TEST_CASE("streams: llama agrees with one rank on asynchronous streams") {
  CheckStreams({.family = "llama"});
}

}  // namespace trireme::engine
