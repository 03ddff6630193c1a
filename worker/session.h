// Session: what training and generation set up alike on one rank: job, data, plan, engine, restored
// state.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/reader.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/engine.h"
#include "runtime/kernels/kernel.h"
#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/plan.pb.h"
#include "worker/places.h"
#include "worker/plan_source.h"

namespace trireme::worker {

// Of waiting for ranks that read or write: a disk may stall for minutes, and that is no dead peer.
inline constexpr std::chrono::minutes kDiskDeadline{30};

// Collective, to be called while ranks are level: a group is set up within the fabric's deadline,
// and reading a text may take one of them longer.
absl::StatusOr<std::unique_ptr<comm::Communicator>> GroupOfAll(comm::Fabric& fabric);

class Session {
 public:
  // Collective over `everyone`, the ranks of `fabric`, which must outlive the session. `dataset`
  // and `recorder` (may be null) too. The first wait is for ranks that have read `dataset`.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const v1::JobSpec& job, comm::Fabric& fabric,
                                                       std::unique_ptr<comm::Communicator> everyone,
                                                       const data::Dataset& dataset,
                                                       recorder::FlightRecorder* recorder,
                                                       const PlanSource& source = {});
  // Fills the engine's state from a checkpoint made on any layout.
  absl::Status Restore(const checkpoint::Checkpoint& checkpoint, bool with_moments);

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
  absl::Status Gather(const v1::JobSpec& job);
  absl::Status TakePlan(const v1::JobSpec& job, comm::Fabric& fabric, const PlanSource& source);
  absl::Status SharePlan(const v1::JobSpec& job, comm::Fabric& fabric);

  v1::Plan plan_;
  bool planned_here_ = false;
  kernels::KernelRegistry kernels_;
  std::unique_ptr<comm::Communicator> everyone_;
  std::vector<Place> places_;  // by rank
  std::unique_ptr<engine::Engine> engine_;
  int threads_ = 1;
};

// The dataset of a resolved job.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenJobData(const v1::JobSpec& job,
                                                           base::Links links);

}  // namespace trireme::worker
