// The parameters that a bug spoils which is planted in some buckets alone (PlantMutation).
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>

#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

// Those with a place that `picks`, of any pipeline coordinate. Not all, nor none: what spoils
// everything would look the same.
inline std::set<std::string> NamesWhere(
    const v1::Plan& plan,
    const std::function<bool(uint32_t pipeline, const plan::StatePlace&)>& picks) {
  const auto graph = model::BuildModel(plan.job().model().config());
  REQUIRE(graph.ok());
  std::set<std::string> names;
  for (uint32_t pipeline = 0; pipeline < plan.mesh().pipeline(); ++pipeline) {
    for (const plan::StatePlace& place : plan::LowerStage(plan, *graph, pipeline).state.places) {
      if (picks(pipeline, place)) names.insert(graph->parameters[place.parameter].name);
    }
  }
  REQUIRE(!names.empty());
  REQUIRE(names.size() < graph->parameters.size());
  return names;
}

// Those whose gradient is in the first bucket of some pipeline coordinate.
inline std::set<std::string> OfFirstBuckets(const v1::Plan& plan) {
  return NamesWhere(plan,
                    [](uint32_t, const plan::StatePlace& place) { return place.bucket == 0; });
}

}  // namespace trireme::engine
