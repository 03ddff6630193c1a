// Which change makes a job fit into a limit of memory. The choices are a table (fit.cc): each row a
// field whose values trade time for bytes and leave the result's meaning alone. Every candidate is
// a plan of MakePlan, so its bytes are those that a run would take. Pure.
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

// The order of choices is that of a model of time, made to compare them and not to forecast. With t
// tokens in a micro-batch and n micro-batches per replica and step, a step takes, in units of its
// products,
//   (1 + recompute) (1 + 54 / t) + zero_stage + offload
// - recompute: full 1/3, forward again (arXiv 2205.05198); selective 0.01 for the norms, and a
// third
//   of the share T / (T + 12 C) that causal attention has of the flops; the mean of the layers.
// - 54 / t: for each weight a micro-batch moves 16 bytes (read twice, added to its gradient) beside
//   6 t flops, of which 20 take as long as a byte of memory.
// - zero_stage: of 1 0.01, for parameters are gathered behind the update and not behind backward;
// of
//   2 0.02 + (n - 1) / n 54 / t, gradients being scattered in each micro-batch; of 3 0.03 and
//   (2 n - 1) / n 54 / t more, parameters being gathered for each forward and backward. 54 / t: 4
//   bytes over the network beside 6 t flops, of which 80 take as long (100 Gflop/s, 10 Gbit/s).
// - offload: of optimizer state 16 bytes a weight and step (24 in bf16) in and out beside 6 t n
// flops,
//   shared by the replicas from ZeRO-1 on; of activations up to 136 bytes a token and hidden unit
//   of a layer beside 72 C flops. A byte takes as long as 80 flops to a file, 20 to memory; nothing
//   of it is taken as hidden behind the operators.
// bf16 counts as no slower but computes other numbers: it comes after everything that does not.
// The bubble is left out; smaller micro-batches only shrink it.
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
  // Planned: the job as it is, each change alone, and of the combinations those that the model
  // finds cheaper than `fitting`. In the model's order, so that the first is the job as it is.
  std::vector<FitChoice> choices;
  std::optional<size_t> fitting;  // the cheapest that fits
  size_t closest = 0;             // that misses the limit by least
  // Candidates of which it is not known whether they fit, since planning them would take too long.
  size_t not_planned = 0;
};

// Planning is bounded by micro-batches times stages, and layers times tensor ranks, of all
// candidates together: this many take about 4 s, all 18 candidates of 175 billion parameters on
// 3,072 ranks.
constexpr int64_t kFitEffort = 1 << 20;

// `job` as MakePlan takes it, whose error is returned where even the job as it is has no plan.
// Candidates that the rules or the planner refuse are passed over.
absl::StatusOr<FitReport> FindFit(const v1::JobSpec& job, int ranks, const FitLimit& limit,
                                  int64_t effort = kFitEffort);

// For the value that the job has and every other one, cheaper or dearer, of recompute and
// zero_stage: what the job takes with it. Those that have no plan, or none within `effort`, are
// left out.
std::vector<FitChoice> BytesPerChoice(const v1::Plan& plan, int64_t effort = kFitEffort / 4);

}  // namespace trireme::plan
