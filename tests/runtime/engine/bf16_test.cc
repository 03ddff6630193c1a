// The optimizer's side of training.dtype bf16: masters and moments are those of AdamW in f64 on the
// same gradients, and the weights are the masters rounded. Gates of f32, so that a state kept or
// begun again in bf16 shows in the first step that it spoils.
#include "runtime/tensor/bf16.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "runtime/comm/local/local_fabric.h"
#include "runtime/model/model.h"
#include "runtime/optim/adamw.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/element.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

// Sixteen roundings of an element on its way through a step, 2^-24 each, against the norm of its
// tensor.
constexpr double kLimit = 16 * 0x1p-24;

struct State {
  Tensors masters, moment1, moment2;
};

State Gathered(Engine& engine, std::mutex& mutex) {
  State state;
  GatherTensors(engine, "parameter", state.masters, mutex);
  GatherTensors(engine, "moment1", state.moment1, mutex);
  GatherTensors(engine, "moment2", state.moment2, mutex);
  return state;
}

// AdamW's step `step` (from 1) in f64, as the job has it.
void UpdateInF64(const v1::JobSpec& job, const graph::ModelGraph& graph, int64_t step,
                 const StepReport& report, const Tensors& gradients, State& state) {
  const v1::OptimizerSpec& spec = job.optimizer();
  for (const graph::Parameter& parameter : graph.parameters) {
    optim::AdamWOptions options{.learning_rate = report.learning_rate,
                                .beta1 = spec.beta1(),
                                .beta2 = spec.beta2(),
                                .epsilon = spec.epsilon(),
                                .weight_decay = parameter.decay ? spec.weight_decay() : 0,
                                .step = step};
    options.gradient_scale =
        std::min(1.0, spec.gradient_clip_norm() / (report.gradient_norm + 1e-6));
    const std::string& name = parameter.name;
    optim::AdamW<double>(state.masters.at(name), gradients.at(name), state.moment1.at(name),
                         state.moment2.at(name), options);
  }
}

// Elements of weights that are not their masters rounded.
int64_t NotRounded(Engine& engine, const Tensors& masters) {
  int64_t count = 0;
  engine.OnDevice([&] {
    for (const StateView& view : engine.state().Held("parameter")) {
      if (view.dtype != tensor::DType::kBf16) continue;
      const layout::Box whole = layout::Box::Whole(view.shape);
      for (const layout::StridedCopy& copy :
           layout::Copies(layout::Shard::Whole(whole), view.shard)) {
        for (int64_t at = 0; at < copy.count * copy.length; ++at) {
          const int64_t run = at / copy.length, index = at % copy.length;
          const double master = masters.at(view.name)[static_cast<size_t>(
              copy.source_offset + run * copy.source_stride + index)];
          const auto rounded = tensor::BFloat16(static_cast<float>(master));
          count += tensor::ElementAt(view.dtype, view.data.get(),
                                     copy.target_offset + run * copy.target_stride + index) !=
                   static_cast<double>(static_cast<float>(rounded));
        }
      }
    }
  });
  return count;
}

// What differs after each of three steps on one rank; empty: nothing.
std::string FaultsOfOptimizer(Mutation mutation) {
  const v1::JobSpec job = JobFor({}, {.family = "gpt2", .dtype = "bf16", .layers = 2});
  const auto dataset = MakeRandomDataset(29, 5);
  const auto plan = plan::MakePlan(job, 1);
  REQUIRE(plan.ok());
  const auto graph = model::BuildModel(plan->job().model().config());
  std::string text;
  PlantMutation(mutation);
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
    auto engine = Engine::Create(*plan, fabric, *dataset, OptionsOf(job));
    if (!engine.ok()) return engine.status();
    (*engine)->InitializeState();
    std::mutex mutex;
    State expected = Gathered(**engine, mutex);
    for (int64_t step = 1; step <= 3; ++step) {
      const auto report = (*engine)->RunStep(static_cast<uint64_t>(step) - 1);
      if (!report.ok()) return report.status();
      Tensors gradients;
      GatherTensors(**engine, "gradient", gradients, mutex);
      UpdateInF64(plan->job(), *graph, step, *report, gradients, expected);
      const State found = Gathered(**engine, mutex);
      const auto compare = [&](const char* what, const Tensors& a, const Tensors& b) {
        for (const auto& [name, values] : b) {
          const Tensors own{{name, values}};
          if (!Differences({{name, a.at(name)}}, own, NormOf(own), kLimit).empty()) {
            text += std::string(" ") + what + " of " + name;
          }
        }
      };
      compare("master", found.masters, expected.masters);
      compare("moment1", found.moment1, expected.moment1);
      compare("moment2", found.moment2, expected.moment2);
      if (NotRounded(**engine, found.masters) > 0) text += " weights";
    }
    return absl::OkStatus();
  });
  PlantMutation(Mutation::kCount);
  REQUIRE(statuses[0].ok());
  return text;
}

}  // namespace

TEST_CASE("bf16: masters and moments are those of AdamW in f64, weights the masters rounded") {
  CHECK(FaultsOfOptimizer(Mutation::kCount) == "");
}

TEST_CASE("mutation: bf16 states that begin again, are rounded or are not written") {
  const std::string master = FaultsOfOptimizer(Mutation::kMasterNotUpdated);
  CHECK_THAT(master, Catch::Contains("master of wte.weight"));
  CHECK_THAT(master, !Catch::Contains("moment"));
  const std::string moment = FaultsOfOptimizer(Mutation::kBf16Moment);
  CHECK_THAT(moment, Catch::Contains("moment1 of wte.weight"));
  CHECK_THAT(moment, !Catch::Contains("moment2"));
  CHECK(FaultsOfOptimizer(Mutation::kWeightNotWritten) == " weights weights weights");
}

}  // namespace trireme::engine
