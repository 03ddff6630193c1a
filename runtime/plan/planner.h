// The planner: JobSpec and number of ranks to a verified Plan. Pure: no hardware, no MPI. And the
// few functions by which a worker reads back from a Plan what it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Of a plan with snapshot slots: who knows none of them would update the state in place.
constexpr uint32_t kPlanVersion = 2, kPlanVersionWithSlots = 3;
// Whether this program can read it. Whether version and slots fit each other says VerifyGiven.
constexpr bool IsPlanVersion(uint32_t version) {
  return version == kPlanVersion || version == kPlanVersionWithSlots;
}

// `job` must be resolved (every field set, vocab_size > 0). InvalidArgument names the field, the
// legal values and the fix, for every rule of spec::ValidateForPlan and for sizes beyond what a
// plan can hold; FailedPrecondition if the verifier refuses what was built (a defect of ours).
// `go_on` is asked now and then, at least for each stage; an error of it ends the planning and is
// returned. Absent: it goes on. `snapshot_slots`: as many
// in place of those that the job asks for (SnapshotSlotsOf).
using PlanGoOn = std::function<absl::Status()>;
absl::StatusOr<v1::Plan> MakePlan(const v1::JobSpec& job, int ranks, const PlanGoOn& go_on = {},
                                  std::optional<uint32_t> snapshot_slots = {});

// `job` as a plan on this mesh holds it: with what follows from the mesh.
v1::JobSpec JobOnMesh(const v1::JobSpec& job, const v1::Mesh& mesh);

// Coordinates of a rank in the mesh.
struct Coordinates {
  uint32_t pipeline = 0;
  uint32_t data = 0;
  uint32_t tensor = 0;
};
Coordinates CoordinatesOf(const v1::Mesh& mesh, int rank);
int RankOf(const v1::Mesh& mesh, const Coordinates& coordinates);
int RankCount(const v1::Mesh& mesh);

tensor::DType ComputeDType(const v1::JobSpec& job);
bool SplitsBackward(const v1::JobSpec& job);

// Samples of the global batch that data coordinate `data` trains on: [begin, end).
layout::Interval ReplicaSamples(const v1::Plan& plan, int64_t samples, uint32_t data);

const v1::Pool& FindPool(const v1::StagePlan& stage, v1::PoolKind kind, uint32_t virtual_stage);

// What MakePlan asks of a plan before it gives it away, of a whole one that was made elsewhere or
// has lain in a file: its job, the verifier's proof, that no gradient reaches the optimizer as
// Partial. FailedPrecondition, whatever is wrong with it. A tenth of a second of a processor for
// 3,072 ranks.
absl::Status VerifyGiven(const v1::Plan& plan);

// InvalidArgument naming the first parameter whose gradient would reach the optimizer as Partial.
absl::Status CheckGradientsReduced(const v1::Plan& plan, const graph::ModelGraph& graph);

}  // namespace trireme::plan
