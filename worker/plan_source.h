// Where the ranks' plan comes from. The coordinator makes it before they start: the keeper of a
// rank's node hands out its slice, or, on a node without one, it is cut from the file in the run
// folder. Ranks that nobody has planned for (mpirun or srun by hand) are planned for by rank 0.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/comm/agreement.h"
#include "trireme/v1/plan.pb.h"
#include "worker/link/keeper_link.h"

namespace trireme::worker {

struct PlanSource {
  KeeperLink* link = nullptr;  // null: none is named
  std::string file;            // empty: none is named
};

// This rank's slice. NotFound: nobody has a plan. FailedPrecondition: the rank is not wanted, or
// the plan is another job's or for another number of ranks.
absl::StatusOr<v1::Plan> GivenPlan(const PlanSource& source, const v1::JobSpec& job,
                                   const comm::Fabric& fabric);

// Collective, waiting for ranks at a disk: true if all ranks hold slices of one plan, false if none
// has any. Else an error on every rank that says which rank is why: its own failure, or Unavailable
// for another's.
absl::StatusOr<bool> AgreeOnPlan(const absl::StatusOr<v1::Plan>& given, comm::Agreement& agreement);

}  // namespace trireme::worker
