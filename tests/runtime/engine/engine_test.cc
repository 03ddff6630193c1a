// First light of the engine: one rank learns, and its memory is what the plan says.
#include <catch2/catch.hpp>

#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

TEST_CASE("engine: a single rank lowers its loss and uses exactly the planned arena") {
  for (const char* family : {"gpt2", "llama"}) {
    const v1::JobSpec job = TinyJob({.family = family});
    const auto dataset = MakeRandomDataset(29, 5);
    const auto result = RunLayout(job, 1, *dataset, {.steps = 10, .evaluate = true});
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    CHECK(result->losses.back() < result->losses.front());
    CHECK(result->arena_bytes == result->planned_bytes);
    CHECK(result->validation_loss > 0);
  }
}

}  // namespace trireme::engine
