// Session: what training and generation set up alike on one rank: job, data, plan, engine, restored
// state.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/restore.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/engine.h"
#include "runtime/kernels/kernel.h"
#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/plan.pb.h"
#include "worker/places.h"
#include "worker/plan_source.h"

namespace trireme::worker {

// Of all ranks, before any of them is at its disk: a group is set up within the fabric's deadline,
// and reading a text may take one of them longer. Collective.
absl::StatusOr<std::unique_ptr<comm::Agreement>> MakeAgreement(comm::Fabric& fabric);

// After what rank 0 alone does at its disk or terminal: the others wait for it so long, and it
// waits for them as within a step, so that a silent one is given up in time.
absl::StatusOr<bool> AllAgreeAfterRankZero(comm::Agreement& ranks, bool yes);

class Session {
 public:
  // Collective over the ranks of `fabric` and `agreement`, which must outlive the session.
  // `dataset` and `recorder` (may be null) too. `offload` holds what is offloaded to a file; empty:
  // the system's folder for temporary files. `snapshots` keeps the slots of a plan that has such;
  // null: they end with the session. The first wait is for ranks that have read `dataset`.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const v1::JobSpec& job, comm::Fabric& fabric,
                                                       comm::Agreement& agreement,
                                                       const data::Dataset& dataset,
                                                       recorder::FlightRecorder* recorder,
                                                       const tensor::SwapFolder& offload,
                                                       const PlanSource& source = {},
                                                       engine::SnapshotKeeper* snapshots = nullptr);
  // Fills the engine's state from a checkpoint made on any layout.
  absl::Status Restore(const checkpoint::Checkpoint& checkpoint, bool with_moments);
  // Likewise, with moments, from memory of another layout.
  absl::Status Restore(const checkpoint::StateSource& source);

  engine::Engine& engine() { return *engine_; }
  // Whole, or this rank's slice of it (runtime/plan/slice.h).
  const v1::Plan& plan() const { return plan_; }
  // Rank 0 has made it, nobody else.
  bool planned_here() const { return planned_here_; }
  int threads() const { return threads_; }
  // Speed of 512 x 512 products on all ranks together, at the same time, in flops per second: each
  // rank's best of several short probes. The measured peak that utilisation is a share of, not the
  // machine's theoretical one.
  absl::StatusOr<double> MeasurePeakFlops();

 private:
  explicit Session(comm::Agreement& agreement) : agreement_(agreement) {}
  absl::Status Gather(const v1::JobSpec& job, const engine::SnapshotKeeper* snapshots);
  absl::Status TakePlan(const v1::JobSpec& job, comm::Fabric& fabric, const PlanSource& source);
  absl::Status SharePlan(const v1::JobSpec& job, comm::Fabric& fabric);
  absl::Status RestoreBy(
      bool with_moments,
      const std::function<absl::Status(std::span<const checkpoint::StateShard>)>& restore);

  v1::Plan plan_;
  bool planned_here_ = false;
  kernels::KernelRegistry kernels_;
  comm::Agreement& agreement_;
  std::vector<Place> places_;  // by rank
  std::unique_ptr<engine::Engine> engine_;
  int threads_ = 1;
};

// The dataset of a resolved job.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenJobData(const v1::JobSpec& job,
                                                           base::Links links);

}  // namespace trireme::worker
