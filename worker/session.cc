#include "worker/session.h"

#include <omp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "worker/engine_state.h"
#include "worker/run_files.h"

namespace trireme::worker {

namespace {

std::chrono::milliseconds DeadlineOf(const v1::JobSpec& job) {
  return std::chrono::milliseconds(static_cast<int64_t>(job.runtime().deadline_seconds() * 1000));
}

// Before it is made: on a mount that hangs the system does not come back, and this is the last that
// the rank says.
void TellOfFile(const v1::Plan& plan, int rank, const std::string& directory) {
  const plan::Coordinates at = plan::CoordinatesOf(plan.mesh(), rank);
  const uint64_t bytes = plan.stages(static_cast<int>(at.pipeline)).file_bytes();
  if (bytes == 0) return;
  spdlog::info("makes a file of {} in {} for what is offloaded", base::ReadableBytes(bytes),
               directory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<data::Dataset>> OpenJobData(const v1::JobSpec& job,
                                                           base::Links links) {
  data::DatasetOptions options;
  options.text_files.assign(job.data().text_files().begin(), job.data().text_files().end());
  options.links = links;
  options.tokenizer = job.data().tokenizer();
  options.sequence_length = job.data().sequence_length();
  options.validation_fraction = job.data().validation_fraction();
  options.order = job.data().order();
  options.seed = job.seed();
  auto dataset = data::OpenDataset(options);
  if (!dataset.ok()) return OfDisk(dataset.status());
  return dataset;
}

absl::StatusOr<std::unique_ptr<comm::Agreement>> MakeAgreement(comm::Fabric& fabric) {
  return comm::Agreement::Make(fabric, comm::kDiskDeadline);
}

absl::StatusOr<bool> AllAgreeAfterRankZero(comm::Agreement& ranks, bool yes) {
  return ranks.rank() == 0 ? ranks.AllAgree(yes) : ranks.AllAgree(yes, comm::kDiskDeadline);
}

absl::Status Session::Gather(const v1::JobSpec& job, const engine::SnapshotKeeper* snapshots) {
  Place place = ThisPlace();
  if (snapshots != nullptr) place.held_bytes = snapshots->BytesThere();
  ASSIGN_OR_RETURN(places_, agreement_.Gather(place, comm::kDiskDeadline));
  threads_ = job.runtime().threads() > 0 ? static_cast<int>(job.runtime().threads())
                                         : ThreadsAt(places_, agreement_.rank());
  return absl::OkStatus();
}

absl::Status Session::TakePlan(const v1::JobSpec& job, comm::Fabric& fabric,
                               const PlanSource& source) {
  absl::StatusOr<v1::Plan> given = GivenPlan(source, job, fabric);
  ASSIGN_OR_RETURN(const bool any, AgreeOnPlan(given, agreement_));
  planned_here_ = !any;
  if (any) {
    plan_ = *std::move(given);
  } else {
    RETURN_IF_ERROR(SharePlan(job, fabric));
  }
  return CheckFits(plan_, places_, agreement_);
}

// Rank 0 plans, everybody runs the same bytes. A failure to plan reaches every rank as well.
absl::Status Session::SharePlan(const v1::JobSpec& job, comm::Fabric& fabric) {
  std::string text;
  int64_t code = 0;  // absl::StatusCode
  if (fabric.rank() == 0) {
    absl::StatusOr<v1::Plan> plan =
        plan::MakePlan(plan::ForThreads(job, LeastThreads(places_)), fabric.size());
    text = plan.ok() ? plan::SerializePlan(*plan) : base::MessageOf(plan.status());
    code = static_cast<int64_t>(plan.status().code());
  }
  // The others wait for the planning itself, which takes longest where there are most of them.
  RETURN_IF_ERROR(
      agreement_.Broadcast(std::as_writable_bytes(std::span(&code, 1)), 0, comm::kDiskDeadline));
  RETURN_IF_ERROR(agreement_.Share(text));
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), text);
  ASSIGN_OR_RETURN(plan_, plan::ParsePlan(text));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const v1::JobSpec& job, comm::Fabric& fabric,
                                                       comm::Agreement& agreement,
                                                       const data::Dataset& dataset,
                                                       recorder::FlightRecorder* recorder,
                                                       const tensor::SwapFolder& offload,
                                                       const PlanSource& source,
                                                       engine::SnapshotKeeper* snapshots) {
  std::unique_ptr<Session> session(new Session(agreement));
  agreement.set_patience(
      [patience = DeadlineOf(job)](std::chrono::nanoseconds) { return patience; });
  RETURN_IF_ERROR(session->Gather(job, snapshots));
  omp_set_num_threads(session->threads_);
  if (job.runtime().kernels() != "reference") kernels::RegisterCpuKernels(session->kernels_);
  kernels::RegisterReferenceKernels(session->kernels_);
  RETURN_IF_ERROR(session->TakePlan(job, fabric, source));
  TellOfFile(session->plan_, fabric.rank(), offload.path);
  const bool has_slots = session->plan_.snapshot_slots() > 0;
  ASSIGN_OR_RETURN(
      session->engine_,
      engine::Engine::Create(session->plan_, fabric, dataset,
                             {.agreement = &agreement,
                              .kernels = &session->kernels_,
                              .recorder = recorder,
                              .threads = session->threads_,
                              .device = {.asynchronous = job.runtime().asynchronous_streams()},
                              .deadline = DeadlineOf(job),
                              .prefault = true,
                              .offload_folder = offload,
                              .snapshots = has_slots ? snapshots : nullptr}));
  return session;
}

absl::Status Session::Restore(const checkpoint::Checkpoint& checkpoint, bool with_moments) {
  return RestoreBy(with_moments, [&](std::span<const checkpoint::StateShard> targets) {
    return checkpoint.Restore(targets);
  });
}

absl::Status Session::Restore(const checkpoint::StateSource& source) {
  return RestoreBy(true, [&](std::span<const checkpoint::StateShard> targets) {
    return checkpoint::RestoreFrom(source, targets);
  });
}

absl::Status Session::RestoreBy(
    bool with_moments,
    const std::function<absl::Status(std::span<const checkpoint::StateShard>)>& restore) {
  engine_->ClearSnapshots();
  const EngineState state(*engine_);
  std::vector<checkpoint::StateShard> targets;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    if (!with_moments && std::string_view(kind) != "parameter") continue;
    state.Add(engine_->state().Held(kind), targets);
  }
  return restore(targets);
}

// All ranks multiply matrices at the same time for about a quarter of a second: what the machine
// gives this job at best.
absl::StatusOr<double> Session::MeasurePeakFlops() {
  constexpr int64_t kSize = 512;
  constexpr std::chrono::milliseconds kProbe(30);
  constexpr std::chrono::milliseconds kAllProbes(240);
  graph::OpSpec spec;
  spec.kind = graph::OpKind::kLinear;
  spec.dtype = plan::ComputeDType(plan_.job());
  spec.rows = spec.cols = spec.inner = spec.x_ld = spec.y_ld = kSize;
  std::vector<std::byte> scratch(plan_.job().runtime().kernels() == "reference" ? 0 : 64 << 20);
  ASSIGN_OR_RETURN(const auto kernel, kernels_.Prepare(spec, {.scratch_limit_bytes = scratch.size(),
                                                              .threads = threads_}));
  std::vector<double> memory(3 * kSize * kSize, 0.5);
  graph::OpCall call;
  call.operand[graph::kX] = memory.data();
  call.operand[graph::kW] = memory.data() + kSize * kSize;
  call.operand[graph::kY] = memory.data() + 2 * kSize * kSize;
  call.scratch = scratch;
  kernel->Run(call);
  // The best of several: whatever else runs on the machine only makes a probe slower, and a peak
  // below what the steps reach would say more than 100 %.
  double flops = 0;
  const auto end = std::chrono::steady_clock::now() + kAllProbes;
  do {
    const auto start = std::chrono::steady_clock::now();
    std::chrono::steady_clock::duration taken{};
    int runs = 0;
    while (taken < kProbe) {
      kernel->Run(call);
      ++runs;
      taken = std::chrono::steady_clock::now() - start;
    }
    const double seconds = std::chrono::duration<double>(taken).count();
    flops = std::max(flops, 2.0 * kSize * kSize * kSize * runs / seconds);
  } while (std::chrono::steady_clock::now() < end);
  RETURN_IF_ERROR(agreement_.Reduce({&flops, 1}, comm::ReduceOp::kSum));
  return flops;
}

}  // namespace trireme::worker
