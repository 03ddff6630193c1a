#include "runtime/plan/planner.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/model/model.h"
#include "runtime/plan/coded_transfers.h"
#include "runtime/plan/job_checks.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/program_builder.h"
#include "runtime/plan/schedule.h"
#include "runtime/plan/stage_facts.h"
#include "runtime/plan/verifier.h"

namespace trireme::plan {

namespace {

absl::StatusOr<v1::Mesh> MakeMesh(const v1::ParallelismSpec& parallelism, int ranks) {
  const int64_t tensor = parallelism.tensor_parallel_size();
  const int64_t pipeline = parallelism.pipeline_parallel_size();
  const int64_t inner = tensor * pipeline;
  if (ranks < 1 || ranks % inner != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks: ", base::Counted(ranks, "rank"), " cannot be cut into tensor_parallel_size ",
        tensor, " x pipeline_parallel_size ", pipeline, "; use a multiple of ", inner));
  }
  const int64_t data = ranks / inner;
  if (parallelism.data_parallel_size() != 0 && parallelism.data_parallel_size() != data) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parallelism.data_parallel_size: ", parallelism.data_parallel_size(), " x tensor ", tensor,
        " x pipeline ", pipeline, " is ",
        base::Counted(parallelism.data_parallel_size() * inner, "rank"), ", but there are ", ranks,
        "; use ", data, ", or 0 to take what the ranks give"));
  }
  v1::Mesh mesh;
  mesh.set_pipeline(static_cast<uint32_t>(pipeline));
  mesh.set_tensor(static_cast<uint32_t>(tensor));
  mesh.set_data(static_cast<uint32_t>(data));
  return mesh;
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// First layer-block of every global virtual stage, and one past the last; the embedding goes with
// the first, the head with the last.
std::vector<int> SplitLayers(const v1::JobSpec& job) {
  const int64_t layers = job.model().config().num_hidden_layers();
  const int64_t stages =
      job.parallelism().pipeline_parallel_size() * job.parallelism().virtual_stages();
  const auto& given = job.parallelism().layers_per_stage();
  std::vector<int> first{0};
  int64_t done = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    done += given.empty() ? layout::SplitEvenly(layers, stages, stage).size()
                          : given[static_cast<int>(stage)];
    first.push_back(static_cast<int>(done) + 1);
  }
  first.back() = static_cast<int>(layers) + 2;
  return first;
}

struct StageBuild {
  StateLayout state;
  std::vector<graph::StageOps> ops;  // tensor coordinate 0
  std::vector<SlotBytes> bytes;      // per virtual stage, the largest over the tensor coordinates
  std::vector<bool> coded_buckets;
};

void BuildPrograms(v1::Plan& plan, uint32_t pipeline, const StageBuild& build,
                   const std::vector<ComputeStep>& order, uint32_t send_lag) {
  v1::StagePlan& stage = *plan.mutable_stages(static_cast<int>(pipeline));
  std::vector<const graph::StageOps*> ops;
  for (const graph::StageOps& each : build.ops) ops.push_back(&each);
  ProgramBuilder builder({.ranks = plan.mesh().pipeline(),
                          .rank = pipeline,
                          .virtual_stages = static_cast<uint32_t>(ops.size()),
                          .zero_stage = ZeroStage(plan),
                          .send_lag = send_lag,
                          .coded_buckets = build.coded_buckets,
                          .code_messages = CodesMessages(plan, build.ops[0]),
                          .pieces = PiecesOf(plan, build.state.buckets),
                          .swaps_activations = OffloadsActivations(plan.job())},
                         ops, build.state);
  *stage.mutable_step() = builder.BuildStep(order);
  *stage.mutable_evaluate() =
      builder.BuildForward(order, plan.evaluation_micro_batches(), graph::ForwardUse::kEvaluate);
  *stage.mutable_generate() = builder.BuildForward(order, 1, graph::ForwardUse::kGenerate);
  const Places gathered = PlaceBuckets(build.state.buckets, builder.walk().gathered_lives());
  const Places partial = PlaceBuckets(build.state.buckets, builder.walk().partial_lives());
  for (int bucket = 0; bucket < stage.buckets_size(); ++bucket) {
    const auto index = static_cast<size_t>(bucket);
    stage.mutable_buckets(bucket)->set_gathered_offset(
        static_cast<uint64_t>(gathered.offsets[index]));
    stage.mutable_buckets(bucket)->set_partial_offset(
        static_cast<uint64_t>(partial.offsets[index]));
  }
  PlanMemory(plan, stage, build.bytes, builder.slots(), build.state,
             {.gathered = gathered.elements, .partial = partial.elements});
}

// `ops`: of tensor coordinate 0.
absl::Status CheckReduced(const v1::Plan& plan, const graph::ModelGraph& graph, uint32_t pipeline,
                          const std::vector<graph::StageOps>& ops, const StateLayout& state) {
  const uint32_t ranks = plan.mesh().pipeline();
  const v1::StagePlan& stage = plan.stages(static_cast<int>(pipeline));
  std::set<uint32_t> reduced;
  for (const v1::Instruction& instruction : stage.step().instructions()) {
    if (instruction.kind() == v1::REDUCE) reduced.insert(instruction.bucket());
  }
  std::set<graph::ParameterId> partial;
  for (const graph::StageOps& each : ops) {
    partial.insert(each.partial_over_tensor.begin(), each.partial_over_tensor.end());
  }
  const bool edge = pipeline == 0 || pipeline + 1 == ranks;
  for (const StatePlace& place : state.places) {
    const v1::Bucket& bucket = stage.buckets(static_cast<int>(place.bucket));
    const bool tied = ranks > 1 && edge && place.parameter == graph.tied;
    std::vector<std::string> axes;
    const bool replicated = plan.mesh().data() > 1;
    if (!reduced.contains(place.bucket) || (replicated && !IsPartialOver(bucket, v1::AXIS_DATA))) {
      axes.push_back("data");
    }
    if (partial.contains(place.parameter) && !IsPartialOver(bucket, v1::AXIS_TENSOR))
      axes.push_back("tensor");
    if (tied && !IsPartialOver(bucket, v1::AXIS_TIED)) axes.push_back("pipeline (tied stages)");
    if (axes.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the gradient of ", graph.parameters[place.parameter].name, " on pipeline stage ", pipeline,
        " is still Partial(sum) over the axis ", absl::StrJoin(axes, ", "),
        " when it reaches the optimizer: the plan lacks a REDUCE over it"));
  }
  return absl::OkStatus();
}

absl::Status BuildStages(v1::Plan& plan, const graph::ModelGraph& graph, const PlanGoOn& go_on) {
  const auto may_go_on = [&] { return go_on ? go_on() : absl::OkStatus(); };
  const std::vector<int> first = SplitLayers(plan.job());
  const uint32_t ranks = plan.mesh().pipeline();
  const uint32_t virtual_stages = static_cast<uint32_t>(plan.job().parallelism().virtual_stages());
  for (uint32_t pipeline = 0; pipeline < ranks; ++pipeline) {
    v1::StagePlan& stage = *plan.add_stages();
    for (uint32_t index = 0; index < virtual_stages; ++index) {
      const uint32_t global = index * ranks + pipeline;
      stage.add_first_block(static_cast<uint32_t>(first[global]));
      stage.add_end_block(static_cast<uint32_t>(first[global + 1]));
    }
  }
  std::vector<StageBuild> builds;
  std::vector<StageFacts> facts;
  for (uint32_t pipeline = 0; pipeline < ranks; ++pipeline) {
    v1::StagePlan& stage = *plan.mutable_stages(static_cast<int>(pipeline));
    RETURN_IF_ERROR(may_go_on());
    LoweredStage lowered = LowerStage(plan, graph, pipeline);
    ASSIGN_OR_RETURN(facts.emplace_back(), FactsOf(plan, lowered, pipeline));
    StageBuild& build = builds.emplace_back();
    build.bytes.resize(virtual_stages);
    for (uint32_t index = 0; index < virtual_stages; ++index) {
      for (const auto& ops : lowered.ops) {
        stage.add_fingerprint(ops[index].Fingerprint());
        build.bytes[index].Raise(ops[index]);
      }
    }
    build.ops = std::move(lowered.ops[0]);
    build.state = std::move(lowered.state);
    build.coded_buckets = CodedBuckets(plan, build.state);
    for (const v1::Bucket& bucket : build.state.buckets) *stage.add_buckets() = bucket;
  }
  RETURN_IF_ERROR(CheckPieces(plan));
  const ScheduleOptions options{
      .ranks = ranks, .micro_batches = plan.micro_batches(), .virtual_stages = virtual_stages};
  ASSIGN_OR_RETURN(const ComputeOrder order, GenerateSchedule(plan.schedule(), options));
  ASSIGN_OR_RETURN(const Simulation simulation, Simulate(order, options, {}));
  plan.set_bubble(simulation.bubble);
  // Waiting for a send early needs few slots; if that could block for ever, wait later.
  absl::Status verdict;
  for (uint32_t lag = 1; lag <= 4 * plan.micro_batches() * virtual_stages; lag *= 4) {
    for (uint32_t pipeline = 0; pipeline < ranks; ++pipeline) {
      RETURN_IF_ERROR(may_go_on());
      BuildPrograms(plan, pipeline, builds[pipeline], order[pipeline], lag);
    }
    RETURN_IF_ERROR(may_go_on());
    verdict = VerifyPlan(plan, facts);
    if (verdict.ok()) break;
  }
  RETURN_IF_ERROR(base::Annotate(verdict, "the plan that was built does not pass the verifier"));
  for (uint32_t pipeline = 0; pipeline < ranks; ++pipeline) {
    const StageBuild& build = builds[pipeline];
    RETURN_IF_ERROR(CheckReduced(plan, graph, pipeline, build.ops, build.state));
  }
  return absl::OkStatus();
}

}  // namespace

v1::JobSpec JobOnMesh(const v1::JobSpec& job, const v1::Mesh& mesh) {
  v1::JobSpec on_mesh = job;
  on_mesh.mutable_parallelism()->set_data_parallel_size(mesh.data());
  v1::TrainingSpec& training = *on_mesh.mutable_training();
  const int64_t per_replica = CeilDivide(training.global_batch_size(), mesh.data());
  training.set_micro_batch_size(std::min(training.micro_batch_size(), per_replica));
  return on_mesh;
}

absl::StatusOr<v1::Plan> MakePlan(const v1::JobSpec& job, int ranks, const PlanGoOn& go_on,
                                  std::optional<uint32_t> snapshot_slots) {
  v1::Plan plan;
  *plan.mutable_job() = job;
  plan.set_snapshot_slots(snapshot_slots.value_or(SnapshotSlotsOf(job)));
  plan.set_version(plan.snapshot_slots() > 0 ? kPlanVersionWithSlots : kPlanVersion);
  RETURN_IF_ERROR(CheckJob(job));
  RETURN_IF_ERROR(CheckSnapshotSlots(plan));
  ASSIGN_OR_RETURN(*plan.mutable_mesh(), MakeMesh(job.parallelism(), ranks));
  const int64_t samples = job.training().global_batch_size();
  if (plan.mesh().data() > samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.global_batch_size: ", samples, " samples for ", plan.mesh().data(),
                     " replicas; each needs at least one, so use at least ", plan.mesh().data()));
  }
  const int64_t per_replica = CeilDivide(samples, plan.mesh().data());
  *plan.mutable_job() = JobOnMesh(job, plan.mesh());
  const int64_t micro_batch = plan.job().training().micro_batch_size();
  plan.set_micro_batches(static_cast<uint32_t>(CeilDivide(per_replica, micro_batch)));
  // Enough in flight to fill the pipeline; more would only make the plan longer.
  plan.set_evaluation_micro_batches(std::min(
      plan.micro_batches(),
      2 * plan.mesh().pipeline() * static_cast<uint32_t>(job.parallelism().virtual_stages())));
  plan.set_schedule(job.parallelism().schedule());
  RETURN_IF_ERROR(CheckJob(plan.job()));  // again: micro-batches may have become smaller
  RETURN_IF_ERROR(CheckExtent(plan));
  ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(job.model().config()));
  RETURN_IF_ERROR(BuildStages(plan, graph, go_on));
  return plan;
}

Coordinates CoordinatesOf(const v1::Mesh& mesh, int rank) {
  const uint32_t index = static_cast<uint32_t>(rank);
  return {.pipeline = index / (mesh.data() * mesh.tensor()),
          .data = index / mesh.tensor() % mesh.data(),
          .tensor = index % mesh.tensor()};
}

int RankOf(const v1::Mesh& mesh, const Coordinates& at) {
  return static_cast<int>((at.pipeline * mesh.data() + at.data) * mesh.tensor() + at.tensor);
}

int RankCount(const v1::Mesh& mesh) {
  return static_cast<int>(mesh.pipeline() * mesh.data() * mesh.tensor());
}

tensor::DType ComputeDType(const v1::JobSpec& job) {
  if (job.training().dtype() == "bf16") return tensor::DType::kBf16;
  return job.training().dtype() == "f64" ? tensor::DType::kF64 : tensor::DType::kF32;
}

bool SplitsBackward(const v1::JobSpec& job) { return job.parallelism().schedule() == "zb-h1"; }

layout::Interval ReplicaSamples(const v1::Plan& plan, int64_t samples, uint32_t data) {
  return layout::SplitEvenly(samples, plan.mesh().data(), data);
}

const v1::Pool& FindPool(const v1::StagePlan& stage, v1::PoolKind kind, uint32_t virtual_stage) {
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() == kind && pool.virtual_stage() == virtual_stage) return pool;
  }
  TRIREME_CHECK(false);
}

absl::Status VerifyGiven(const v1::Plan& plan) {
  const auto verdict = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckJob(plan.job()));
    RETURN_IF_ERROR(CheckSnapshotSlots(plan));
    if ((plan.version() == kPlanVersionWithSlots) != (plan.snapshot_slots() > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has version ", plan.version(),
                                                     " and ", plan.snapshot_slots(),
                                                     " snapshot slots"));
    }
    RETURN_IF_ERROR(CheckExtent(plan));
    RETURN_IF_ERROR(VerifyPlan(plan));
    // Also a stage that reads no tokens has the pool, without slots.
    for (const v1::StagePlan& stage : plan.stages()) {
      const bool there =
          std::any_of(stage.pools().begin(), stage.pools().end(),
                      [](const v1::Pool& pool) { return pool.kind() == v1::TOKENS; });
      if (!there) return absl::InvalidArgumentError("a stage has no pool TOKENS");
    }
    ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(plan.job().model().config()));
    return CheckGradientsReduced(plan, graph);
  };
  const absl::Status status = verdict();
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      base::Text("the plan that was given does not pass the verifier: ", base::MessageOf(status)));
}

absl::Status CheckGradientsReduced(const v1::Plan& plan, const graph::ModelGraph& graph) {
  for (uint32_t pipeline = 0; pipeline < plan.mesh().pipeline(); ++pipeline) {
    const LoweredStage lowered = LowerForRank(plan, graph, {.pipeline = pipeline});
    RETURN_IF_ERROR(CheckReduced(plan, graph, pipeline, lowered.ops[0], lowered.state));
  }
  return absl::OkStatus();
}

}  // namespace trireme::plan
