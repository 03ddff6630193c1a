// The optimizer's side of training.dtype bf16: masters and moments are those of AdamW in f64 on the
// same gradients, and the weights are the masters rounded. Gates of f32, so that a state kept or
// begun again in bf16 shows in the first step that it spoils.
#include "runtime/tensor/bf16.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/model/model.h"
#include "runtime/optim/adamw.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/element.h"
#include "tests/runtime/engine/bucket_names.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"

namespace trireme::engine {

namespace {

// Sixteen roundings of an element on its way through a step, 2^-24 each, against the norm of its
// tensor.
constexpr double kLimit = 16 * 0x1p-24;

struct State {
  Tensors masters, moment1, moment2;
};

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

// Parameters of which some weight that the rank holds is not its master rounded.
std::set<std::string> NotRounded(Engine& engine, const Tensors& masters) {
  std::set<std::string> names;
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
          if (tensor::ElementAt(view.dtype, view.data.get(),
                                copy.target_offset + run * copy.target_stride + index) !=
              static_cast<double>(static_cast<float>(rounded))) {
            names.insert(view.name);
          }
        }
      }
    }
  });
  return names;
}

std::set<std::string> NamesApart(const Tensors& found, const Tensors& expected) {
  std::set<std::string> names;
  for (const auto& [name, values] : expected) {
    const Tensors own{{name, values}};
    if (!Differences({{name, found.at(name)}}, own, NormOf(own), kLimit).empty()) {
      names.insert(name);
    }
  }
  return names;
}

// Parameters of which something differs, over three steps.
struct FaultsOfState {
  std::set<std::string> masters, moment1, moment2, weights;
};

class ThreeSteps {
 public:
  ThreeSteps(const v1::Plan& plan, const graph::ModelGraph& graph) : plan_(plan), graph_(graph) {}

  // What each rank does.
  absl::Status Run(comm::Fabric& fabric, const data::Dataset& dataset) {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(plan_, fabric, dataset, OptionsOf(plan_.job())));
    engine->InitializeState();
    RETURN_IF_ERROR(Gather(*engine, expected_));
    for (int64_t step = 1; step <= 3; ++step) {
      ASSIGN_OR_RETURN(const StepReport report, engine->RunStep(static_cast<uint64_t>(step) - 1));
      GatherTensors(*engine, "gradient", gradients_, mutex_);
      RETURN_IF_ERROR(Gather(*engine, found_));
      const auto unrounded = NotRounded(*engine, found_.masters);
      {
        const std::lock_guard lock(mutex_);
        faults_.weights.insert(unrounded.begin(), unrounded.end());
        if (engine->rank() == 0) Compare(step, report);
      }
      // What is compared is not gathered anew.
      RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    }
    return absl::OkStatus();
  }
  const FaultsOfState& faults() const { return faults_; }

 private:
  // Until all have brought what they own.
  absl::Status Gather(Engine& engine, State& state) {
    GatherTensors(engine, "parameter", state.masters, mutex_);
    GatherTensors(engine, "moment1", state.moment1, mutex_);
    GatherTensors(engine, "moment2", state.moment2, mutex_);
    return engine.agreement().AllAgree(true).status();
  }

  void Compare(int64_t step, const StepReport& report) {
    UpdateInF64(plan_.job(), graph_, step, report, gradients_, expected_);
    faults_.masters.merge(NamesApart(found_.masters, expected_.masters));
    faults_.moment1.merge(NamesApart(found_.moment1, expected_.moment1));
    faults_.moment2.merge(NamesApart(found_.moment2, expected_.moment2));
  }

  const v1::Plan& plan_;
  const graph::ModelGraph& graph_;
  std::mutex mutex_;
  State expected_, found_;
  Tensors gradients_;
  FaultsOfState faults_;
};

// The whole state on one rank, in shares and in shares alone; then each beside what else a layout
// can have.
const std::vector<Layout>& ShardedLayouts() {
  static const std::vector<Layout> layouts = {
      {},
      {.data = 2, .zero = 1},
      {.data = 2, .zero = 3},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .recompute = "selective"},
      {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1, .offload_state = "file"},
      {.data = 4, .zero = 2, .recompute = "full", .micro_batch = 1, .loss_tile = 4},
      {.tensor = 2,
       .pipeline = 2,
       .sequence_parallel = true,
       .schedule = "gpipe",
       .offload_activations = "host",
       .micro_batch = 1},
      {.data = 2, .tensor = 2, .zero = 2, .offload_state = "host", .micro_batch = 3},
      {.data = 2, .pipeline = 2, .zero = 3, .recompute = "full", .offload_state = "file"}};
  return layouts;
}

v1::Plan PlanOf(const Layout& layout, const std::string& family) {
  v1::JobSpec job = JobFor(layout, {.family = family, .dtype = "bf16", .layers = 2});
  // A tied parameter that one stage alone spoils is to be seen in the numbers.
  job.mutable_runtime()->set_replica_check_steps(0);
  const auto plan = plan::MakePlan(job, layout.ranks());
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

// `mutation` in the first bucket of each stage alone.
FaultsOfState FaultsOfOptimizer(const v1::Plan& plan, Mutation mutation) {
  const auto ranks =
      static_cast<int>(plan.mesh().data() * plan.mesh().tensor() * plan.mesh().pipeline());
  const auto dataset = MakeRandomDataset(29, 5);
  const auto graph = model::BuildModel(plan.job().model().config());
  REQUIRE(graph.ok());
  ThreeSteps steps(plan, *graph);
  PlantMutation(mutation, 0);
  const auto statuses =
      comm::RunRanks(ranks, [&](comm::Fabric& fabric) { return steps.Run(fabric, *dataset); });
  PlantMutation(Mutation::kCount);
  for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
  return steps.faults();
}

}  // namespace

TEST_CASE("bf16: masters and moments are those of AdamW in f64, weights the masters rounded") {
  using Names = std::set<std::string>;
  const OnOneProcessor one;
  for (const char* family : {"gpt2", "llama"}) {
    for (const Layout& layout : ShardedLayouts()) {
      const FaultsOfState faults = FaultsOfOptimizer(PlanOf(layout, family), Mutation::kCount);
      INFO(family << " " << layout.Name());
      CHECK(faults.masters == Names{});
      CHECK(faults.moment1 == Names{});
      CHECK(faults.moment2 == Names{});
      CHECK(faults.weights == Names{});
    }
  }
}

TEST_CASE("mutation: bf16 states that begin again, are rounded or are not written") {
  using Names = std::set<std::string>;
  const OnOneProcessor one;
  for (const char* family : {"gpt2", "llama"}) {
    for (const Layout& layout : ShardedLayouts()) {
      INFO(family << " " << layout.Name());
      const v1::Plan plan = PlanOf(layout, family);
      const Names first = OfFirstBuckets(plan);
      // Of a tied parameter the first stage's copy is looked at; weights that follow another are
      // not its masters rounded.
      const Names looked_at = NamesWhere(plan, [](uint32_t, const plan::StatePlace& place) {
        return place.bucket == 0 && !place.tied_copy;
      });
      Names copies;
      std::set_difference(first.begin(), first.end(), looked_at.begin(), looked_at.end(),
                          std::inserter(copies, copies.end()));
      const FaultsOfState master = FaultsOfOptimizer(plan, Mutation::kMasterNotUpdated);
      CHECK(master.masters == looked_at);
      CHECK(master.moment1 == Names{});
      CHECK(master.moment2 == Names{});
      CHECK(master.weights == copies);
      // The next step's masters follow the moment.
      const FaultsOfState moment = FaultsOfOptimizer(plan, Mutation::kBf16Moment);
      CHECK(moment.masters == looked_at);
      CHECK(moment.moment1 == looked_at);
      CHECK(moment.moment2 == Names{});
      CHECK(moment.weights == copies);
      const FaultsOfState weight = FaultsOfOptimizer(plan, Mutation::kWeightNotWritten);
      CHECK(weight.masters == Names{});
      CHECK(weight.moment1 == Names{});
      CHECK(weight.moment2 == Names{});
      CHECK(weight.weights == first);
    }
  }
}

}  // namespace trireme::engine
