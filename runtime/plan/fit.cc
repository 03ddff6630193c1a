#include "runtime/plan/fit.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/fit_fields.h"
#include "runtime/plan/fit_time.h"
#include "runtime/plan/job_checks.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {

namespace {

struct Candidate {
  v1::JobSpec job;
  std::vector<FieldChange> changes;
  double time = 1;
  bool other_numerics = false;
  bool is_job = true;
};

void Change(const FitField& field, const std::string& value, Candidate& candidate) {
  candidate.is_job = candidate.is_job && field.now(candidate.job) == value;
  field.set(value, candidate.job);
  candidate.changes.push_back({field.path, value});
  candidate.other_numerics = candidate.other_numerics || field.other_numerics;
}

// Every combination: the job as it is, then the cheapest first (TimeClass), and of equals the one
// of fewest changes.
std::vector<Candidate> CandidatesOf(const v1::Plan& plan) {
  std::vector<Candidate> candidates(1);
  candidates[0].job = plan.job();
  for (const FitField& field : FitFields()) {
    const size_t before = candidates.size();
    for (const std::string& value : field.saving(plan)) {
      for (size_t i = 0; i < before; ++i) {
        Change(field, value, candidates.emplace_back(Candidate(candidates[i])));
      }
    }
  }
  StepTimes times(plan.mesh());
  for (Candidate& each : candidates) each.time = times.Of(each.job);
  const double today = candidates[0].time;
  // Of a schedule in which backward follows at once they stay where they are.
  std::erase_if(candidates, [&](const Candidate& each) {
    return each.job.offload().activations() != plan.job().offload().activations() &&
           OffloadsActivations(each.job) && !times.MovesActivations(each.job);
  });
  const auto rank = [today](const Candidate& each) {
    return std::tuple(each.other_numerics, TimeClass(each.time / today - 1), each.changes.size(),
                      each.time);
  };
  std::stable_sort(candidates.begin() + 1, candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  return candidates;
}

// Of optimizer state, on all stages; by the weights that matrices have.
int64_t PieceEstimate(const v1::JobSpec& job, const v1::Mesh& mesh) {
  if (!OffloadsState(job)) return 0;
  const v1::ModelConfig& model = job.model().config();
  const auto heads =
      static_cast<double>(2 * (model.num_attention_heads() + model.num_key_value_heads()));
  const double weights = static_cast<double>(model.hidden_size()) *
                         (static_cast<double>(model.num_hidden_layers()) *
                              (heads * static_cast<double>(model.head_dim()) +
                               3 * static_cast<double>(model.intermediate_size())) +
                          2 * static_cast<double>(model.vocab_size()));
  const uint32_t shares = mesh.tensor() * (job.parallelism().zero_stage() > 0 ? mesh.data() : 1);
  const double bytes = weights * static_cast<double>(UpdateBytes(job)) / shares;
  const int64_t given = job.offload().piece_bytes();
  constexpr int64_t kUsual = 64;  // of a stage
  if (given == 0) return kUsual * mesh.pipeline();
  return static_cast<int64_t>(
      std::min(bytes / static_cast<double>(given), double{kMostFurtherPieces}));
}

// What planning takes, in units of about 4 us.
int64_t EffortOf(const v1::JobSpec& job, const v1::Mesh& mesh) {
  const int64_t stages = int64_t{mesh.pipeline()} * job.parallelism().virtual_stages();
  const int64_t layers = job.model().config().num_hidden_layers() + 2;
  const bool by_block = mesh.data() > 1 && job.parallelism().zero_stage() >= 2;
  return (by_block ? layers : stages) * MicroBatches(job, mesh) + 4 * layers * mesh.tensor() +
         LossTilesOf(job) + PieceEstimate(job, mesh);
}

FitChoice ChoiceOf(const v1::Plan& plan, const Candidate& candidate, double today) {
  FitChoice choice{.changes = candidate.changes,
                   .is_job = candidate.is_job,
                   .slowdown = candidate.time / today - 1,
                   .other_numerics = candidate.other_numerics};
  const v1::StagePlan* largest = &plan.stages(0);
  for (const v1::StagePlan& stage : plan.stages()) {
    choice.all_ranks_bytes += MemoryBytes(stage) * plan.mesh().data() * plan.mesh().tensor();
    if (MemoryBytes(stage) > MemoryBytes(*largest)) largest = &stage;
  }
  *choice.largest.mutable_first_block() = largest->first_block();
  *choice.largest.mutable_end_block() = largest->end_block();
  *choice.largest.mutable_pools() = largest->pools();
  choice.largest.set_arena_bytes(largest->arena_bytes());
  choice.largest.set_host_bytes(largest->host_bytes());
  choice.largest.set_file_bytes(largest->file_bytes());
  choice.largest.set_snapshot_bytes(largest->snapshot_bytes());
  return choice;
}

// Whether the ranks of two plans hold and do the same: equal sums may hide that they do not.
bool SameStages(const v1::Plan& a, const v1::Plan& b) {
  return std::equal(a.stages().begin(), a.stages().end(), b.stages().begin(), b.stages().end(),
                    [](const v1::StagePlan& left, const v1::StagePlan& right) {
                      return left.ByteSizeLong() == right.ByteSizeLong() &&
                             left.SerializeAsString() == right.SerializeAsString();
                    });
}

// Plans candidates of a job that has a plan.
class CandidatePlanner {
 public:
  CandidatePlanner(const v1::Plan& today, int64_t effort)
      : today_(today),
        faults_(spec::Validate(today.job()).size()),
        time_(StepTimes(today.mesh()).Of(today.job())),
        effort_(effort) {}

  // False where that would be more than the effort, which is then not taken.
  bool Affords(const Candidate& candidate) const {
    return candidate.is_job || EffortOf(candidate.job, today_.mesh()) <= effort_;
  }

  // None where it has no plan, or the job's own though it names another value.
  std::optional<FitChoice> Choose(const Candidate& candidate) {
    if (candidate.is_job) return ChoiceOf(today_, candidate, time_);
    // What the job lacks for a run (its data) is no fault of the change.
    if (spec::Validate(candidate.job).size() > faults_) return std::nullopt;
    effort_ -= EffortOf(candidate.job, today_.mesh());
    const auto plan = MakePlan(candidate.job, RankCount(today_.mesh()));
    if (!plan.ok() || SameStages(*plan, today_)) return std::nullopt;
    return ChoiceOf(*plan, candidate, time_);
  }

 private:
  const v1::Plan& today_;
  const size_t faults_;
  const double time_;
  int64_t effort_;
};

uint64_t Over(uint64_t bytes, uint64_t limit) { return bytes > limit ? bytes - limit : 0; }

int64_t EffortOf(const std::vector<Candidate>& candidates, const v1::Mesh& mesh) {
  int64_t sum = 0;
  for (const Candidate& each : candidates) sum += each.is_job ? 0 : EffortOf(each.job, mesh);
  return sum;
}

// The job as it is and each change alone, planned.
class SingleChanges {
 public:
  SingleChanges(CandidatePlanner& planner, const std::vector<Candidate>& candidates,
                const FitLimit& limit)
      : limit_(limit) {
    for (const Candidate& candidate : candidates) {
      if (candidate.changes.size() > 1) continue;
      const std::string name = AsOptions(candidate.changes);
      if (planner.Affords(candidate)) {
        choices_[name] = planner.Choose(candidate);
      } else {
        too_long_.insert(name);
      }
    }
  }

  std::optional<FitChoice> Find(const Candidate& candidate) const {
    return choices_.at(AsOptions(candidate.changes));
  }
  bool IsTooLong(const Candidate& candidate) const {
    return too_long_.contains(AsOptions(candidate.changes));
  }

  // Whether a combination would fit if it spared all that its changes do alone. Most spare the same
  // bytes in part, so that most of those that fit are among these.
  bool MayFit(const Candidate& candidate) const {
    const FitChoice& today = *choices_.at("");
    uint64_t of_rank = 0, of_all = 0;
    for (const FieldChange& change : candidate.changes) {
      const auto single = choices_.find(AsOptions({change}));
      if (single == choices_.end() || !single->second.has_value()) return true;
      of_rank += Over(today.rank_bytes(), single->second->rank_bytes());
      of_all += Over(today.all_ranks_bytes, single->second->all_ranks_bytes);
    }
    return Over(today.rank_bytes(), of_rank) <= limit_.rank_bytes &&
           Over(today.all_ranks_bytes, of_all) <= limit_.all_ranks_bytes;
  }

 private:
  const FitLimit limit_;
  std::map<std::string, std::optional<FitChoice>> choices_;  // by AsOptions
  std::set<std::string> too_long_;
};

}  // namespace

std::string AsOptions(const std::vector<FieldChange>& changes) {
  return absl::StrJoin(changes, " ", [](std::string* text, const FieldChange& change) {
    absl::StrAppend(text, "--set ", change.path, "=", change.value);
  });
}

uint64_t FitLimit::MissedBy(const FitChoice& choice) const {
  return std::max(Over(choice.rank_bytes(), rank_bytes),
                  Over(choice.all_ranks_bytes, all_ranks_bytes));
}

absl::StatusOr<FitReport> FindFit(const v1::JobSpec& job, int ranks, const FitLimit& limit,
                                  int64_t effort) {
  ASSIGN_OR_RETURN(const v1::Plan today, MakePlan(job, ranks));
  const std::vector<Candidate> candidates = CandidatesOf(today);
  CandidatePlanner planner(today, effort);
  const bool is_short = EffortOf(candidates, today.mesh()) > effort;
  // Single changes come first: they are the table, and tell which combinations are worth planning.
  SingleChanges singles(planner, candidates, limit);
  FitReport report;
  for (const Candidate& candidate : candidates) {
    const bool is_single = candidate.changes.size() <= 1;
    // Combinations that are dearer than what fits are of no use.
    if (report.fitting.has_value() && !is_single) continue;
    const bool is_worth = is_single || !is_short || singles.MayFit(candidate);
    if (is_single ? singles.IsTooLong(candidate) : !is_worth || !planner.Affords(candidate)) {
      report.not_planned += report.fitting.has_value() ? 0 : 1;
      continue;
    }
    std::optional<FitChoice> choice =
        is_single ? singles.Find(candidate) : planner.Choose(candidate);
    if (!choice.has_value()) continue;
    const size_t index = report.choices.size();
    const uint64_t missed = limit.MissedBy(*choice);
    report.choices.push_back(*std::move(choice));
    if (missed == 0 && !report.fitting.has_value()) report.fitting = index;
    if (missed < limit.MissedBy(report.choices[report.closest])) report.closest = index;
  }
  return report;
}

std::vector<FitChoice> BytesPerChoice(const v1::Plan& plan, int64_t effort) {
  CandidatePlanner planner(plan, effort);
  StepTimes times(plan.mesh());
  std::vector<FitChoice> choices;
  for (const FitField& field : FitFields()) {
    if (field.all == nullptr) continue;
    for (const std::string& value : field.all(plan)) {
      Candidate candidate;
      candidate.job = plan.job();
      Change(field, value, candidate);
      candidate.time = times.Of(candidate.job);
      if (!planner.Affords(candidate)) continue;
      std::optional<FitChoice> choice = planner.Choose(candidate);
      if (choice.has_value()) choices.push_back(*std::move(choice));
    }
  }
  return choices;
}

}  // namespace trireme::plan
