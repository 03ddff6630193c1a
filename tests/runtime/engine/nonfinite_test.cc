// A NaN in the weights: the policy `stop` names tensor, rank and samples and updates nothing;
// `skip` leaves no trace in weights and moments, counts, and the next good step trains on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

constexpr const char* kPlanted = "h.2.mlp.c_fc.weight";
constexpr uint64_t kBadStep = 1;

// Every byte of weights and moments this rank holds.
std::string Bytes(Engine& engine) {
  std::string bytes;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    for (const StateView& view : engine.state().Held(kind)) {
      bytes.append(reinterpret_cast<const char*>(view.data), view.bytes().size());
    }
  }
  return bytes;
}

// Puts `value` at the first element of the planted tensor on every rank that holds a part of it;
// the element that was there.
double Plant(Engine& engine, double value) {
  double before = 0;
  for (const StateView& view : engine.state().Held("parameter")) {
    if (view.name != kPlanted || view.shard.elements() == 0) continue;
    double* element = reinterpret_cast<double*>(view.data);
    before = *element;
    *element = value;
  }
  return before;
}

struct Outcome {
  absl::Status bad_step;
  bool skipped = false;
  bool unchanged = false;
  bool own_gradient_is_bad = false;  // of the tensor that the message names
  std::string end;                   // all bytes after the steps that followed
};

// One good step, one with `value` planted, two good ones; per rank what came of it.
std::vector<Outcome> RunWith(const Layout& layout, const std::string& policy, double value) {
  v1::JobSpec job = JobFor(layout, {});
  job.mutable_training()->set_nonfinite_policy(policy);
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<Outcome> outcomes(static_cast<size_t>(layout.ranks()));
  const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    Outcome& outcome = outcomes[static_cast<size_t>(fabric.rank())];
    ASSIGN_OR_RETURN(auto engine,
                     Engine::Create(*plan, fabric, *dataset, {.kernels = &KernelsOf(job)}));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    if (value != 0) {
      const double good = Plant(*engine, value);
      const std::string before = Bytes(*engine);
      const auto report = engine->RunStep(kBadStep);
      outcome.bad_step = report.status();
      outcome.skipped = report.ok() && report->skipped;
      outcome.unchanged = Bytes(*engine) == before;
      for (const StateView& view : engine->state().Owned("gradient")) {
        const auto* gradient = reinterpret_cast<const double*>(view.data);
        const bool bad = std::any_of(gradient, gradient + view.shard.elements(),
                                     [](double each) { return !std::isfinite(each); });
        if (bad && absl::StrContains(outcome.bad_step.message(),
                                     absl::StrCat("the gradient of ", view.name, " on rank ",
                                                  fabric.rank(), " "))) {
          outcome.own_gradient_is_bad = true;
        }
      }
      if (!report.ok()) return engine->AllAgree(true).status();
      Plant(*engine, good);
    }
    for (uint64_t step : {kBadStep + 1, kBadStep + 2}) {
      ASSIGN_OR_RETURN(const StepReport next, engine->RunStep(step));
      if (next.skipped) return absl::InternalError("a good step was left out");
    }
    outcome.end = Bytes(*engine);
    return engine->AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return outcomes;
}

std::vector<Layout> SomeLayouts() {
  return {{},
          {.data = 2, .zero = 1},
          {.tensor = 2, .sequence_parallel = true},
          {.pipeline = 2, .schedule = "zb-h1"},
          {.data = 2, .tensor = 2, .pipeline = 2, .zero = 1}};
}

}  // namespace

TEST_CASE("non-finite: stop names tensor and rank and samples and updates nothing") {
  for (const Layout& layout : SomeLayouts()) {
    for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      INFO(layout.Name() << ", " << value);
      int confirmed = 0;
      std::string message;
      for (const Outcome& outcome : RunWith(layout, "stop", value)) {
        CHECK(outcome.bad_step.code() == absl::StatusCode::kAborted);
        const std::string text(outcome.bad_step.message());
        if (message.empty()) message = text;
        CHECK(text == message);  // all ranks say the same
        CHECK(outcome.unchanged);
        confirmed += outcome.own_gradient_is_bad ? 1 : 0;
      }
      INFO(message);
      // The rank that is named holds that tensor, and its gradient is bad.
      CHECK(confirmed == 1);
      CHECK(absl::StrContains(message, "at step 1, samples 8 to 15"));
      CHECK(absl::StrContains(message, "nonfinite_policy: skip"));
    }
  }
}

TEST_CASE("non-finite: skip leaves no trace and trains on") {
  for (const Layout& layout : SomeLayouts()) {
    INFO(layout.Name());
    const std::vector<Outcome> skipped = RunWith(layout, "skip", std::nan(""));
    const std::vector<Outcome> clean = RunWith(layout, "skip", 0);
    for (size_t rank = 0; rank < skipped.size(); ++rank) {
      CHECK(skipped[rank].bad_step.ok());
      CHECK(skipped[rank].skipped);
      CHECK(skipped[rank].unchanged);
      // As if the step had never been; only its number has passed.
      CHECK(skipped[rank].end == clean[rank].end);
    }
  }
}

}  // namespace trireme::engine
