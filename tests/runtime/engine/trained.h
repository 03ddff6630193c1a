// Trains a job rank by rank and keeps what its transfers must agree on: gradients by step, the
// bytes of the weights by rank, and what coding did. For the suites of coded transfers.
#pragma once

#include <catch2/catch.hpp>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

struct Trained {
  std::vector<Tensors> gradients;               // by step, before clipping
  std::vector<StepReport> reports;              // by step, of rank 0
  std::vector<std::vector<std::byte>> weights;  // by rank: all that it holds
  Tensors final_weights;
  double validation_loss = 0;
  std::vector<RankCoding> coding;
};

inline Trained Train(const v1::JobSpec& job, int ranks, int steps) {
  const auto dataset = MakeRandomDataset(29, 5);
  const auto plan = plan::MakePlan(job, ranks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  Trained trained;
  trained.gradients.resize(static_cast<size_t>(steps));
  trained.weights.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  const auto statuses = comm::RunRanks(ranks, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    for (int step = 0; step < steps; ++step) {
      ASSIGN_OR_RETURN(const StepReport report, engine->RunStep(static_cast<uint64_t>(step)));
      GatherTensors(*engine, "gradient", trained.gradients[static_cast<size_t>(step)], mutex);
      if (engine->rank() == 0) trained.reports.push_back(report);
    }
    auto& own = trained.weights[static_cast<size_t>(engine->rank())];
    for (const StateView& view : engine->state().Held("parameter")) {
      own.resize(own.size() + view.size_bytes());
      engine->Read(view.data, std::span(own).last(view.size_bytes()));
    }
    GatherTensors(*engine, "parameter", trained.final_weights, mutex);
    ASSIGN_OR_RETURN(const double loss, engine->Evaluate(0));
    ASSIGN_OR_RETURN(const std::vector<RankCoding> coding, engine->GatherCoding());
    if (engine->rank() == 0) {
      trained.validation_loss = loss;
      trained.coding = coding;
    }
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return trained;
}

// Whether ranks that differ in their replica alone hold the same weights, to the bit.
inline bool ReplicasHoldTheSame(const Trained& trained, const v1::JobSpec& job) {
  const auto plan = plan::MakePlan(job, static_cast<int>(trained.weights.size()));
  if (!plan.ok()) return false;
  for (size_t rank = 0; rank < trained.weights.size(); ++rank) {
    plan::Coordinates first = plan::CoordinatesOf(plan->mesh(), static_cast<int>(rank));
    first.data = 0;
    const auto same = static_cast<size_t>(plan::RankOf(plan->mesh(), first));
    if (trained.weights[rank] != trained.weights[same]) return false;
  }
  return true;
}

}  // namespace trireme::engine
