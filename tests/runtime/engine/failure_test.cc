// A rank that dies or falls silent in the middle of a step, with the work of all ranks on
// asynchronous streams: the others end with a status that says so, and their engines go while work
// was still queued. Worth most under the address and thread sanitizers.
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/faulty.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

absl::Status TrainTwoSteps(const v1::Plan& plan, const data::Dataset& dataset, comm::Fabric& fabric,
                           std::chrono::milliseconds deadline) {
  EngineOptions options = OptionsOf(plan.job());
  options.deadline = deadline;
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, options));
  engine->InitializeState();
  RETURN_IF_ERROR(engine->RunStep(0).status());
  return engine->RunStep(1).status();
}

// The statuses by rank, when `fault` strikes the last rank.
std::vector<absl::Status> RunWithFault(const Layout& layout, comm::Fault fault,
                                       std::chrono::milliseconds deadline) {
  v1::JobSpec job = JobFor(layout, {});
  job.mutable_runtime()->set_asynchronous_streams(true);
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  comm::LocalHub hub(layout.ranks());
  const size_t ranks = static_cast<size_t>(layout.ranks());
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<comm::Fabric> fabric = hub.Rank(static_cast<int>(rank));
      auto* own = static_cast<comm::MessageFabric*>(fabric.get());
      if (rank + 1 == ranks) {
        comm::Fault mine = fault;
        mine.kill = [own] { own->Abort(absl::UnavailableError("killed by the test")); };
        fabric = comm::MakeFaulty(std::move(fabric), {mine});
      }
      statuses[rank] = TrainTwoSteps(*plan, *dataset, *fabric, deadline);
      if (!statuses[rank].ok()) own->Abort(statuses[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// With many micro-batches, so that much is queued when the fault is seen.
std::vector<Layout> FailingLayouts() {
  return {{.pipeline = 4, .schedule = "zb-h1", .micro_batch = 1},
          {.tensor = 2, .pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
          {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 1, .micro_batch = 1}};
}

}  // namespace

TEST_CASE("failure: on asynchronous streams a killed rank ends the others with a clean status") {
  for (const Layout& layout : FailingLayouts()) {
    for (const uint64_t operation : {1u, 6u, 11u, 16u, 30u}) {
      const auto statuses =
          RunWithFault(layout, {.kind = comm::Fault::Kind::kKill, .operation = operation},
                       std::chrono::seconds(30));
      for (const absl::Status& status : statuses) {
        INFO(layout.Name() << ", operation " << operation << ": " << status.ToString());
        CHECK(status.code() == absl::StatusCode::kUnavailable);
        CHECK(absl::StrContains(status.message(), "killed by the test"));
      }
    }
  }
}

TEST_CASE("failure: on asynchronous streams a silent rank ends all with a clean status") {
  for (const Layout& layout : FailingLayouts()) {
    const auto statuses = RunWithFault(layout,
                                       {.kind = comm::Fault::Kind::kDelay,
                                        .operation = 11,
                                        .delay = std::chrono::milliseconds(2000)},
                                       std::chrono::milliseconds(60));
    for (const absl::Status& status : statuses) {
      INFO(layout.Name() << ": " << status.ToString());
      // Whoever gives up first says what it waited for; that reaches the others. Nothing was
      // measured yet: each of few links may take 60 ms.
      CHECK(absl::StrContains(status.message(), "no progress for"));
    }
  }
}

}  // namespace trireme::engine
