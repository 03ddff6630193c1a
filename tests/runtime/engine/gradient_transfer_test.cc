// training.gradient_transfer bf16: gradients of every layout within the roundings that it makes,
// the same bits on all replicas and in every run, half the bytes, and the arena that was planned.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/bucket_names.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/runtime/engine/trained.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

namespace {

// Each way that a gradient takes: whole or in shares, once a step or in each micro-batch, summed on
// over tensor ranks or tied stages, out of an arena that offloads.
std::vector<Layout> WaysOfGradients() {
  return {{.data = 2},
          {.data = 5, .micro_batch = 1},
          {.data = 8, .zero = 1},
          {.data = 4, .zero = 2, .micro_batch = 1},
          {.data = 3, .zero = 3, .recompute = "full", .micro_batch = 1},
          {.data = 2, .schedule = "zb-h1", .zero = 2},
          {.data = 2, .pipeline = 2, .schedule = "zb-h1"},
          {.data = 2, .pipeline = 2, .zero = 1, .offload_state = "file"},
          {.data = 2, .tensor = 2, .sequence_parallel = true},
          {.data = 2,
           .tensor = 2,
           .pipeline = 2,
           .sequence_parallel = true,
           .schedule = "interleaved",
           .zero = 1}};
}

v1::JobSpec TransferJob(const Layout& layout, const std::string& dtype, const std::string& as,
                        const std::string& family = "gpt2") {
  v1::JobSpec job =
      JobFor(layout, {.family = family, .dtype = dtype, .dropout = 0.1, .gradient_transfer = as});
  job.mutable_parallelism()->set_bucket_bytes(16384);
  return job;
}

struct TransferReference {
  Tensors initial;
  LayoutResult result;
};

TransferReference OneRank(const data::Dataset& dataset, const std::string& family = "gpt2",
                          int steps = 3) {
  const v1::JobSpec job = TransferJob({.micro_batch = 8}, "f64", "f32", family);
  const auto start = RunLayout(job, 1, dataset, {.steps = 0});
  const auto result = RunLayout(job, 1, dataset, {.steps = steps});
  REQUIRE(start.ok());
  REQUIRE(result.ok());
  return {.initial = start->weights, .result = *result};
}

std::set<std::string> NamesUnlike(const Tensors& a, const Tensors& b) {
  std::set<std::string> names;
  for (const auto& [name, values] : b) {
    if (a.at(name) != values) names.insert(name);
  }
  return names;
}

}  // namespace

TEST_CASE("gradient transfer: as bf16 every layout's gradients are one rank's but for roundings") {
  const auto dataset = MakeRandomDataset(29, 5);
  const TransferReference one = OneRank(*dataset);
  for (const Layout& layout : WaysOfGradients()) {
    INFO(layout.Name());
    const auto result = RunLayout(TransferJob(layout, "f32", "bf16"), layout.ranks(), *dataset);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    CHECK(FaultsOfTransfer(*result, one.result, one.initial) == "");
    // And there are some: not f32 under another name.
    CHECK_FALSE(
        Differences(result->gradients, one.result.gradients, NormOf(one.result.gradients), 1e-5)
            .empty());
  }
}

// Cut values are too short, all of them: an error with a direction, which no gate of single
// elements sees. Of one bucket they are those of its parameters.
TEST_CASE("mutation: gradients cut to bf16 instead of rounded") {
  const OnOneProcessor one_processor;
  const auto dataset = MakeRandomDataset(29, 5);
  for (const char* family : {"gpt2", "llama"}) {
    const TransferReference one = OneRank(*dataset, family, 1);
    for (const Layout& layout : WaysOfGradients()) {
      INFO(family << " " << layout.Name());
      const v1::JobSpec job = TransferJob(layout, "f32", "bf16", family);
      const auto plan = plan::MakePlan(job, layout.ranks());
      REQUIRE(plan.ok());
      const auto run = [&](Mutation mutation, uint32_t bucket) {
        const auto result = RunLayout(job, layout.ranks(), *dataset,
                                      {.steps = 1, .mutation = mutation, .mutated_bucket = bucket});
        REQUIRE(result.ok());
        return *result;
      };
      const LayoutResult sound = run(Mutation::kCount, kEachBucket);
      // Under ZeRO-2 the first is the last norm's, too small to travel as bf16.
      const uint32_t bucket = layout.zero < 2 ? 0 : 1;
      const LayoutResult of_one = run(Mutation::kGradientsCut, bucket);
      CHECK(NamesUnlike(of_one.gradients, sound.gradients) ==
            NamesWhere(*plan, [&](uint32_t, const plan::StatePlace& place) {
              return place.bucket == bucket;
            }));
      const LayoutResult of_all = run(Mutation::kGradientsCut, kEachBucket);
      CHECK(absl::StartsWith(FaultsOfTransfer(of_all, one.result, one.initial),
                             " gradients longer by -"));
    }
  }
}

TEST_CASE("mutation: nothing is cut to bf16 that travels as it is") {
  const auto dataset = MakeRandomDataset(29, 5);
  const TransferReference one = OneRank(*dataset);
  const auto sound = RunLayout(TransferJob({.data = 2}, "f32", "f32"), 2, *dataset,
                               {.mutation = Mutation::kGradientsCut});
  REQUIRE(sound.ok());
  CHECK(FaultsOf(*sound, one.result, 1e-5) == "");
}

TEST_CASE("gradient transfer: replicas and runs hold the same bits, in f32 and in bf16") {
  size_t index = 0;
  for (const Layout& layout : WaysOfGradients()) {
    if (tests::kThreadSanitizer && index++ % 3 != 0) continue;
    for (const char* dtype : {"f32", "bf16"}) {
      if (tests::kSanitizer && dtype == std::string_view("f32")) continue;
      INFO(layout.Name() << " " << dtype);
      v1::JobSpec job = TransferJob(layout, dtype, "bf16");
      const Trained trained = Train(job, layout.ranks(), 3);
      // What a replica holds of others' shares is no part of the state: masters under ZeRO, weights
      // under ZeRO-3. The comparison in NORM (replica_check_steps) sees the rest.
      const bool whole = layout.zero == 0 || (layout.zero < 3 && job.training().dtype() == "f32");
      CHECK((!whole || ReplicasHoldTheSame(trained, job)));
      job.mutable_runtime()->set_asynchronous_streams(true);
      CHECK(trained.weights == Train(job, layout.ranks(), 3).weights);
      for (const RankCoding& rank : trained.coding) {
        CHECK(rank.data.sum.ratio() > 1.5);
        CHECK(rank.data.sum.ratio() <= 2);
        // By a half of the unit of each part at most, which even errors do not reach.
        CHECK(rank.data.sum.relative_error() < 0x1p-8);
        CHECK(rank.data.sum.relative_error() > 0x1p-11);
      }
    }
  }
}

// From the first step on, and where nothing is summed not at all.
TEST_CASE("gradient transfer: one replica's gradients do not travel") {
  const auto dataset = MakeRandomDataset(29, 5);
  const Layout layout{.tensor = 2, .pipeline = 2};
  const auto as_bf16 = RunLayout(TransferJob(layout, "f32", "bf16"), 4, *dataset);
  const auto as_they_are = RunLayout(TransferJob(layout, "f32", "f32"), 4, *dataset);
  REQUIRE(as_bf16.ok());
  REQUIRE(as_they_are.ok());
  CHECK(as_bf16->weights == as_they_are->weights);
  CHECK(as_bf16->gradients == as_they_are->gradients);
}

}  // namespace trireme::engine
