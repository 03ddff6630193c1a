#include "tests/silent_bugs/run.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/layout/layout.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/element.h"

namespace trireme::silent_bugs {

using engine::Engine;
using engine::StateView;

namespace {

constexpr const char* kKinds[] = {"parameter", "moment1", "moment2"};

class Folder {
 public:
  Folder() { TRIREME_CHECK(mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/trireme_silent_bugs_XXXXXX";
};

// What the ranks of one part share.
struct Part {
  const Job& job;
  const Plant& plant;
  const RunOptions& options;
  const v1::Plan& plan;
  const kernels::KernelRegistry& kernels;
  std::string root;     // of checkpoints
  std::string restore;  // a checkpoint; empty: initial weights
  uint64_t begin = 0, end = 0;
  bool saves = false;
  bool last = true;
  Ledger& ledger;
  std::mutex& mutex;
  Outcome& outcome;

  // Called before peers hear of it: what they say then is an echo, which counts only alone.
  void Ends(Stage stage, uint64_t step, const absl::Status& why) const {
    const std::lock_guard lock(mutex);
    if (why.ok() || (!outcome.status.ok() && absl::IsUnavailable(why))) return;
    if (!outcome.status.ok() && !absl::IsUnavailable(outcome.status)) return;
    outcome.ended_in = stage;
    outcome.ended_at = step;
    outcome.status = why;
  }
};

Shards ShardsOf(const std::vector<StateView>& views) {
  Shards shards;
  for (const StateView& view : views) {
    shards.push_back({.name = view.name,
                      .kind = view.kind,
                      .dtype = view.dtype,
                      .shape = view.shape,
                      .shard = view.shard,
                      .data = {view.data.get(), view.size_bytes()}});
  }
  return shards;
}

Shards ShardsOf(Engine& engine, bool held) {
  Shards all;
  for (const char* kind : kKinds) {
    Shards shards = ShardsOf(held ? engine.state().Held(kind) : engine.state().Owned(kind));
    std::move(shards.begin(), shards.end(), std::back_inserter(all));
  }
  return all;
}

// The weights that products read, where the optimizer has masters beside them.
void GatherRounded(Engine& engine, Tensors& into, std::mutex& mutex) {
  engine.OnDevice([&] {
    const std::lock_guard lock(mutex);
    for (const StateView& view : engine.state().Held("parameter")) {
      if (view.dtype != tensor::DType::kBf16) continue;
      const layout::Shard whole = layout::Shard::Whole(layout::Box::Whole(view.shape));
      std::vector<double>& target = into["rounded " + view.name];
      target.resize(static_cast<size_t>(whole.box.elements()));
      for (const layout::StridedCopy& copy : layout::Copies(view.shard, whole)) {
        for (int64_t index = 0; index < copy.count * copy.length; ++index) {
          const int64_t run = index / copy.length, at = index % copy.length;
          target[static_cast<size_t>(copy.target_offset + run * copy.target_stride + at)] =
              tensor::ElementAt(view.dtype, view.data.get(),
                                copy.source_offset + run * copy.source_stride + at);
        }
      }
    }
  });
}

void GatherState(Engine& engine, const Part& part) {
  for (const char* kind : kKinds) {
    Tensors own;
    std::mutex alone;
    engine::GatherTensors(engine, kind, own, alone);
    const std::lock_guard lock(part.mutex);
    for (const auto& [name, values] : own) {
      std::vector<double>& target = part.outcome.state[absl::StrCat(kind, " ", name)];
      target.resize(values.size(), std::nan(""));
      for (size_t index = 0; index < values.size(); ++index) {
        if (!std::isnan(values[index])) target[index] = values[index];
      }
    }
  }
  GatherRounded(engine, part.outcome.state, part.mutex);
}

absl::Status Save(Engine& engine, const Part& part) {
  const Place place{engine.rank(), plan::CoordinatesOf(part.plan.mesh(), engine.rank())};
  const bool leader = engine.rank() == 0;
  const int ranks = part.job.layout.ranks();
  absl::Status status;
  const auto agree = [&]() -> absl::Status {
    part.Ends(Stage::kSave, 0, status);
    ASSIGN_OR_RETURN(const bool all, engine.agreement().AllAgree(status.ok()));
    return all ? absl::OkStatus() : status.ok() ? absl::UnavailableError("a peer failed") : status;
  };
  if (leader) status = checkpoint::CheckpointWriter::Prepare(part.root, part.end).status();
  RETURN_IF_ERROR(agree());
  const auto write = [&] {
    Shards shards = ShardsOf(engine, /*held=*/false);
    Memory memory;
    if (part.plant.save && !part.plant.save(place, shards, memory)) return;
    status = checkpoint::CheckpointWriter::WriteRank(checkpoint::PartialFolder(part.root, part.end),
                                                     engine.rank(), shards);
  };
  if (leader || !part.plant.torn) engine.OnDevice(write);
  if (part.plant.torn) {
    RETURN_IF_ERROR(engine.RunStep(part.end).status());
    if (!leader) engine.OnDevice(write);
  }
  RETURN_IF_ERROR(agree());
  if (leader) {
    const auto folder = checkpoint::CheckpointWriter::Commit(part.root, part.end,
                                                             {.step = part.end, .ranks = ranks});
    status = folder.status();
    if (folder.ok() && part.plant.disk) part.plant.disk(*folder);
  }
  return agree();
}

absl::Status Begin(Engine& engine, const Part& part) {
  // Else what a plant leaves out would be whatever lay there.
  engine.InitializeState();
  if (part.restore.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Open(part.restore));
  absl::Status restored;
  engine.OnDevice([&] {
    Shards shards = ShardsOf(engine, /*held=*/true);
    const Place place{engine.rank(), plan::CoordinatesOf(part.plan.mesh(), engine.rank())};
    if (part.plant.restore) part.plant.restore(place, shards);
    restored = checkpoint.Restore(shards);
  });
  return restored;
}

absl::Status RunSteps(Engine& engine, const Part& part) {
  for (uint64_t step = part.begin; step < part.end; ++step) {
    if (part.options.keeps_tensors && step == part.options.saved_at) GatherState(engine, part);
    if (part.last && part.plant.before_step) part.plant.before_step(engine, step);
    const auto report = engine.RunStep(step);
    part.Ends(Stage::kStep, step + 1, report.status());
    RETURN_IF_ERROR(report.status());
    if (engine.rank() == 0) part.outcome.losses.push_back(report->loss);
    if (!part.last || !part.options.keeps_tensors) continue;
    const size_t index = step - part.begin;
    {
      const std::lock_guard lock(part.mutex);
      part.outcome.gradients.resize(std::max(part.outcome.gradients.size(), index + 1));
      part.outcome.weights.resize(part.outcome.gradients.size());
      part.outcome.norms.resize(part.outcome.gradients.size());
      part.outcome.norms[index] = report->gradient_norm;
    }
    // All are through with this step's places before the next one adds places.
    engine::GatherTensors(engine, "gradient", part.outcome.gradients[index], part.mutex);
    engine::GatherTensors(engine, "parameter", part.outcome.weights[index], part.mutex);
    RETURN_IF_ERROR(engine.agreement().AllAgree(true).status());
  }
  return absl::OkStatus();
}

absl::Status RunRank(comm::Fabric& fabric, const Part& part) {
  const Plant sound;
  const plan::Coordinates at = plan::CoordinatesOf(part.plan.mesh(), fabric.rank());
  const bool logs = at.tensor == 0 && at.pipeline == 0;
  const int64_t batch = part.plan.job().training().global_batch_size();
  const Text text(part.last ? part.plant : sound,
                  {.replica = at.data,
                   .first = static_cast<int64_t>(part.begin) * batch,
                   .ledger = logs ? &part.ledger : nullptr});
  engine::EngineOptions options = engine::OptionsOf(part.plan.job());
  options.kernels = &part.kernels;
  auto engine = Engine::Create(part.plan, fabric, text, options);
  part.Ends(Stage::kPlan, 0, engine.status());
  RETURN_IF_ERROR(engine.status());
  const absl::Status begun = Begin(**engine, part);
  part.Ends(Stage::kRestore, 0, begun);
  RETURN_IF_ERROR(begun);
  RETURN_IF_ERROR(RunSteps(**engine, part));
  if (part.saves) {
    const absl::Status saved = Save(**engine, part);
    part.Ends(Stage::kSave, 0, saved);
    RETURN_IF_ERROR(saved);
  }
  return (*engine)->agreement().AllAgree(true).status();
}

bool RunPart(const Part& part) {
  engine::PlantMutation(part.last ? part.plant.mutation : engine::Mutation::kCount);
  const auto statuses = comm::RunRanks(part.job.layout.ranks(),
                                       [&](comm::Fabric& fabric) { return RunRank(fabric, part); });
  engine::PlantMutation(engine::Mutation::kCount);
  for (const absl::Status& status : statuses) part.Ends(Stage::kStep, 0, status);
  return part.outcome.status.ok();
}

// As a run chooses what to go on from: the newest that is not damaged, every byte compared.
absl::StatusOr<std::string> Choose(const std::string& root) {
  std::vector<checkpoint::Skipped> skipped;
  ASSIGN_OR_RETURN(std::string folder, checkpoint::FindNewestUndamaged(root, &skipped));
  RETURN_IF_ERROR(checkpoint::Verify(folder));
  return folder;
}

}  // namespace

v1::JobSpec SpecOf(const Job& job, const RunOptions& options) {
  v1::JobSpec spec = engine::JobFor(job.layout, job.model);
  spec.set_seed(options.seed);
  spec.mutable_training()->set_steps(200);
  spec.mutable_runtime()->set_replica_check_steps(options.compares ? 1 : 0);
  if (job.tweak) job.tweak(spec);
  return spec;
}

v1::Plan PlanOf(const Job& job, const RunOptions& options) {
  const auto plan = plan::MakePlan(SpecOf(job, options), job.layout.ranks());
  TRIREME_CHECK(plan.ok());
  return *plan;
}

Outcome Run(const Job& job, const Plant& plant, const RunOptions& options) {
  Outcome outcome;
  v1::JobSpec spec = SpecOf(job, options);
  if (plant.job) plant.job(spec);
  auto plan = plan::MakePlan(spec, job.layout.ranks());
  if (!plan.ok()) {
    outcome.ended_in = Stage::kPlan;
    outcome.status = plan.status();
    return outcome;
  }
  if (plant.plan && plant.runs_plan) plant.plan(*plan);
  kernels::KernelRegistry kernels;
  if (plant.kernels) plant.kernels(kernels, spec);
  const bool planted_kernels = static_cast<bool>(plant.kernels);
  if (planted_kernels) kernels::RegisterReferenceKernels(kernels);
  const Folder folder;
  Ledger ledger;
  std::mutex mutex;
  Part part{.job = job,
            .plant = plant,
            .options = options,
            .plan = *plan,
            .kernels = planted_kernels ? kernels : engine::KernelsOf(spec),
            .root = folder / "checkpoints",
            .end = options.steps,
            .ledger = ledger,
            .mutex = mutex,
            .outcome = outcome};
  if (job.resumes && !options.unbroken) {
    part.end = options.saved_at;
    part.saves = true;
    part.last = false;
    if (!RunPart(part)) return outcome;
    const auto chosen = Choose(part.root);
    if (!chosen.ok()) {
      outcome.ended_in = Stage::kOpen;
      outcome.status = chosen.status();
      return outcome;
    }
    part.restore = *chosen;
    part.begin = options.saved_at;
    part.end = options.steps;
    part.saves = false;
    part.last = true;
  }
  outcome.begin = part.begin;
  (void)RunPart(part);
  outcome.repeated = ledger.FirstRepeated(Text::Windows());
  return outcome;
}

}  // namespace trireme::silent_bugs
