// Which change makes a job fit into a limit of memory. The choices are a table (fit_fields.h): each
// row a field whose values trade time for bytes and leave the result's meaning alone. Every
// candidate is a plan of MakePlan, so its bytes are those that a run would take. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/plan/offload.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// As in `--set path=value`.
struct FieldChange {
  std::string path;
  std::string value;
  friend bool operator==(const FieldChange&, const FieldChange&) = default;
};

// "--set parallelism.zero_stage=1 --set parallelism.recompute=full"; empty: no change.
std::string AsOptions(const std::vector<FieldChange>& changes);

// In the order of a model of time (fit_time.h), and where that tells no order, of the number of
// changes. bf16 counts as no slower but computes other numbers: it comes after everything that does
// not.
struct FitChoice {
  std::vector<FieldChange> changes;  // none: the job as it is
  bool is_job = false;               // nothing is changed: each value is the job's own
  double slowdown = 0;               // of that model: 0.33 is a third longer a step
  bool other_numerics = false;
  // The stage whose ranks hold most: blocks, pools and sizes, without programs.
  v1::StagePlan largest;
  uint64_t all_ranks_bytes = 0;  // rank_bytes of all ranks
  uint64_t rank_bytes() const { return MemoryBytes(largest); }
};

// What may be taken of memory; what is offloaded to a file is none.
struct FitLimit {
  uint64_t rank_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t all_ranks_bytes = std::numeric_limits<uint64_t>::max();
  // By how much `choice` is over; 0: it fits.
  uint64_t MissedBy(const FitChoice& choice) const;
};

struct FitReport {
  // Planned: the job as it is, each change alone, and of the combinations those that come
  // before `fitting`. The job as it is comes first, the others in their order;
  // changes that leave the plan as it is are left out, whatever their bytes.
  std::vector<FitChoice> choices;
  std::optional<size_t> fitting;  // the first that fits
  size_t closest = 0;             // that misses the limit by least
  // Candidates of which it is not known whether they fit, since planning them would take too long:
  // where not all can be planned, combinations that would not fit if each of their changes spared
  // as much as it does alone are left out before others.
  size_t not_planned = 0;
};

// Planning is bounded by micro-batches times stages, layers times tensor ranks, tiles of the loss
// and pieces of offloaded state, of all candidates together: this many take about 4 s, of 175
// billion parameters on 3,072 ranks some 25 candidates.
constexpr int64_t kFitEffort = 1 << 20;

// `job` as MakePlan takes it, whose error is returned where even the job as it is has no plan.
// Candidates that the rules or the planner refuse are passed over.
absl::StatusOr<FitReport> FindFit(const v1::JobSpec& job, int ranks, const FitLimit& limit,
                                  int64_t effort = kFitEffort);

// For the value that the job has and every other one, cheaper or dearer, of recompute, zero_stage
// and offload: what the job takes with it. Those that leave the plan as it is, that have no plan,
// or none within `effort`, are left out.
std::vector<FitChoice> BytesPerChoice(const v1::Plan& plan, int64_t effort = kFitEffort / 4);

}  // namespace trireme::plan
