#include "runtime/plan/fit.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::plan {

namespace {

constexpr const char* kRecomputeModes[] = {"none", "selective", "full"};
constexpr int64_t kMostZeroStage = 3;  // what the rules do not know yet, they refuse
constexpr size_t kMostHalvings = 5;

// What a micro-batch moves of a weight through memory, and of its gradient over the network, takes
// as long as its products with this many tokens (fit.h).
constexpr double kTokensOfWeights = 54;

size_t LevelOf(const std::string& mode) {
  const auto at = std::find(std::begin(kRecomputeModes), std::end(kRecomputeModes), mode);
  return at == std::end(kRecomputeModes) ? 0 : static_cast<size_t>(at - kRecomputeModes);
}

// By layer; one for all of them where the job says no more.
std::vector<size_t> RecomputeLevels(const v1::JobSpec& job) {
  std::vector<size_t> levels;
  for (const std::string& mode : job.parallelism().recompute()) levels.push_back(LevelOf(mode));
  if (levels.empty()) levels.push_back(0);
  return levels;
}

int64_t Number(const std::string& value) {
  int64_t number = 0;
  TRIREME_CHECK(absl::SimpleAtoi(value, &number));
  return number;
}

// A field that trades time for memory, and its values.
struct Dimension {
  const char* path;
  // Those that may take less memory than the job's own, cheapest first.
  std::vector<std::string> (*saving)(const v1::Plan& plan);
  // Every one, for the table of choices; null: not in it.
  std::vector<std::string> (*all)(const v1::Plan& plan);
  std::string (*now)(const v1::JobSpec& job);  // the job's own value; empty: more than one
  void (*set)(const std::string& value, v1::JobSpec& job);
  bool other_numerics = false;
};

std::vector<std::string> AllZeroStages(const v1::Plan& plan) {
  std::vector<std::string> values;
  // One replica has nothing to shard over.
  if (plan.mesh().data() < 2) return values;
  for (int64_t stage = 0; stage <= kMostZeroStage; ++stage) values.push_back(absl::StrCat(stage));
  return values;
}

std::vector<std::string> HigherZeroStages(const v1::Plan& plan) {
  std::vector<std::string> values = AllZeroStages(plan);
  std::erase_if(values, [&](const std::string& value) {
    return Number(value) <= plan.job().parallelism().zero_stage();
  });
  return values;
}

std::string ZeroStageNow(const v1::JobSpec& job) {
  return absl::StrCat(job.parallelism().zero_stage());
}

void SetZeroStage(const std::string& value, v1::JobSpec& job) {
  job.mutable_parallelism()->set_zero_stage(Number(value));
}

std::vector<std::string> AllRecomputes(const v1::Plan&) {
  return {std::begin(kRecomputeModes), std::end(kRecomputeModes)};
}

// Those by which no layer keeps more than today.
std::vector<std::string> MoreRecompute(const v1::Plan& plan) {
  const std::vector<size_t> levels = RecomputeLevels(plan.job());
  const auto [least, most] = std::minmax_element(levels.begin(), levels.end());
  std::vector<std::string> values;
  for (size_t level = std::max(*most, *least + 1); level < std::size(kRecomputeModes); ++level) {
    values.emplace_back(kRecomputeModes[level]);
  }
  return values;
}

std::string RecomputeNow(const v1::JobSpec& job) {
  const std::vector<size_t> levels = RecomputeLevels(job);
  const bool alike = std::count(levels.begin(), levels.end(), levels[0]) ==
                     static_cast<std::ptrdiff_t>(levels.size());
  return alike ? kRecomputeModes[levels[0]] : "";
}

void SetRecompute(const std::string& value, v1::JobSpec& job) {
  job.mutable_parallelism()->clear_recompute();
  job.mutable_parallelism()->add_recompute(value);
}

std::vector<std::string> AllPlaces(const v1::Plan&) { return {"none", "host", "file"}; }

// Memory beside the arena is memory too.
std::vector<std::string> StateToFile(const v1::Plan& plan) {
  return plan.job().offload().optimizer_state() == "file" ? std::vector<std::string>()
                                                          : std::vector<std::string>{"file"};
}

std::string StatePlaceNow(const v1::JobSpec& job) { return job.offload().optimizer_state(); }

void SetStatePlace(const std::string& value, v1::JobSpec& job) {
  job.mutable_offload()->set_optimizer_state(value);
}

std::vector<std::string> ActivationsToFile(const v1::Plan& plan) {
  return plan.job().offload().activations() == "file" ? std::vector<std::string>()
                                                      : std::vector<std::string>{"file"};
}

std::string ActivationPlaceNow(const v1::JobSpec& job) { return job.offload().activations(); }

void SetActivationPlace(const std::string& value, v1::JobSpec& job) {
  job.mutable_offload()->set_activations(value);
}

std::vector<std::string> SmallerMicroBatches(const v1::Plan& plan) {
  std::vector<std::string> values;
  int64_t size = plan.job().training().micro_batch_size() / 2;
  for (; size >= 1 && values.size() < kMostHalvings; size /= 2) {
    values.push_back(absl::StrCat(size));
  }
  return values;
}

std::string MicroBatchNow(const v1::JobSpec& job) {
  return absl::StrCat(job.training().micro_batch_size());
}

void SetMicroBatch(const std::string& value, v1::JobSpec& job) {
  job.mutable_training()->set_micro_batch_size(Number(value));
}

std::vector<std::string> NarrowerDTypes(const v1::Plan& plan) {
  if (plan.job().training().dtype() == "f32") return {"bf16"};
  return {};
}

std::string DTypeNow(const v1::JobSpec& job) { return job.training().dtype(); }

void SetDType(const std::string& value, v1::JobSpec& job) {
  job.mutable_training()->set_dtype(value);
}

constexpr Dimension kDimensions[] = {
    {"parallelism.zero_stage", HigherZeroStages, AllZeroStages, ZeroStageNow, SetZeroStage},
    {"parallelism.recompute", MoreRecompute, AllRecomputes, RecomputeNow, SetRecompute},
    {"offload.optimizer_state", StateToFile, AllPlaces, StatePlaceNow, SetStatePlace},
    {"offload.activations", ActivationsToFile, AllPlaces, ActivationPlaceNow, SetActivationPlace},
    {"training.micro_batch_size", SmallerMicroBatches, nullptr, MicroBatchNow, SetMicroBatch},
    {"training.dtype", NarrowerDTypes, nullptr, DTypeNow, SetDType, /*other_numerics=*/true},
};

int64_t MicroBatches(const v1::JobSpec& job, const v1::Mesh& mesh) {
  const int64_t replicas = mesh.data(), size = job.training().micro_batch_size();
  const int64_t samples = (job.training().global_batch_size() + replicas - 1) / replicas;
  return (samples + size - 1) / size;
}

double RecomputeShare(const v1::JobSpec& job) {
  const auto tokens = static_cast<double>(job.data().sequence_length());
  const auto hidden = static_cast<double>(job.model().config().hidden_size());
  // However long the sequence, attention is a part of what full makes again.
  const double selective = std::min(0.01 + tokens / (tokens + 12 * hidden) / 3, 0.32);
  const double shares[] = {0, selective, 1.0 / 3};
  const std::vector<size_t> levels = RecomputeLevels(job);
  double sum = 0;
  for (const size_t level : levels) sum += shares[level];
  return sum / static_cast<double>(levels.size());
}

// Of a byte that is moved, in flops: to a file as over the network, to memory as to memory (fit.h).
double FlopsOfByte(v1::PoolPlace place) {
  return place == v1::FILE ? 80 : place == v1::HOST ? 20 : 0;
}

double OffloadTime(const v1::JobSpec& job, const v1::Mesh& mesh, double tokens_of_step) {
  const double state = FlopsOfByte(PlaceOf(job, v1::MOMENT1)) * 2 *
                       static_cast<double>(UpdateBytes(job)) / (6 * tokens_of_step);
  const bool shared = job.parallelism().zero_stage() > 0;
  const double moved[] = {136, 100, 8};  // bytes a token, of one hidden unit of a layer
  double bytes = 0;
  const std::vector<size_t> levels = RecomputeLevels(job);
  for (const size_t level : levels) bytes += moved[level] / static_cast<double>(levels.size());
  const double activations = FlopsOfByte(PlaceOf(job, v1::STORED)) * bytes /
                             (72 * static_cast<double>(job.model().config().hidden_size()));
  return state / (shared ? mesh.data() : 1) + activations;
}

// The model of fit.h.
double StepTime(const v1::JobSpec& job, const v1::Mesh& mesh) {
  const auto tokens =
      static_cast<double>(job.training().micro_batch_size() * job.data().sequence_length());
  const double pass = kTokensOfWeights / tokens;
  const auto n = static_cast<double>(MicroBatches(job, mesh));
  const int64_t stage = mesh.data() > 1 ? job.parallelism().zero_stage() : 0;
  double zero = 0.01 * static_cast<double>(stage);
  if (stage >= 2) zero += (n - 1) / n * pass;
  if (stage >= 3) zero += (2 * n - 1) / n * pass;
  return (1 + RecomputeShare(job)) * (1 + pass) + zero + OffloadTime(job, mesh, n * tokens);
}

struct Candidate {
  v1::JobSpec job;
  std::vector<FieldChange> changes;
  double time = 1;
  bool other_numerics = false;
  bool is_job = true;
};

void Change(const Dimension& dimension, const std::string& value, Candidate& candidate) {
  candidate.is_job = candidate.is_job && dimension.now(candidate.job) == value;
  dimension.set(value, candidate.job);
  candidate.changes.push_back({dimension.path, value});
  candidate.other_numerics = candidate.other_numerics || dimension.other_numerics;
}

// Every combination, cheapest first. Each change alone has its cost, so a combination comes after
// all parts of itself: whatever fits first has no change that it could do without.
std::vector<Candidate> CandidatesOf(const v1::Plan& plan) {
  std::vector<Candidate> candidates(1);
  candidates[0].job = plan.job();
  for (const Dimension& dimension : kDimensions) {
    const size_t before = candidates.size();
    for (const std::string& value : dimension.saving(plan)) {
      for (size_t i = 0; i < before; ++i) {
        Change(dimension, value, candidates.emplace_back(Candidate(candidates[i])));
      }
    }
  }
  for (Candidate& each : candidates) each.time = StepTime(each.job, plan.mesh());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::tuple(a.other_numerics, a.time, a.changes.size()) <
                            std::tuple(b.other_numerics, b.time, b.changes.size());
                   });
  return candidates;
}

// What planning takes, in units of about 4 us.
int64_t EffortOf(const v1::JobSpec& job, const v1::Mesh& mesh) {
  const int64_t stages = int64_t{mesh.pipeline()} * job.parallelism().virtual_stages();
  const int64_t layers = job.model().config().num_hidden_layers() + 2;
  const bool by_block = mesh.data() > 1 && job.parallelism().zero_stage() >= 2;
  return (by_block ? layers : stages) * MicroBatches(job, mesh) + 4 * layers * mesh.tensor();
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
  return choice;
}

// Plans candidates of a job that has a plan.
class CandidatePlanner {
 public:
  CandidatePlanner(const v1::Plan& today, int64_t effort)
      : today_(today),
        faults_(spec::Validate(today.job()).size()),
        time_(StepTime(today.job(), today.mesh())),
        effort_(effort) {}

  // False where that would be more than the effort, which is then not taken.
  bool Affords(const Candidate& candidate) const {
    return candidate.is_job || EffortOf(candidate.job, today_.mesh()) <= effort_;
  }

  std::optional<FitChoice> Choose(const Candidate& candidate) {
    if (candidate.is_job) return ChoiceOf(today_, candidate, time_);
    // What the job lacks for a run (its data) is no fault of the change.
    if (spec::Validate(candidate.job).size() > faults_) return std::nullopt;
    effort_ -= EffortOf(candidate.job, today_.mesh());
    const auto plan = MakePlan(candidate.job, RankCount(today_.mesh()));
    if (!plan.ok()) return std::nullopt;
    return ChoiceOf(*plan, candidate, time_);
  }

 private:
  const v1::Plan& today_;
  const size_t faults_;
  const double time_;
  int64_t effort_;
};

uint64_t Over(uint64_t bytes, uint64_t limit) { return bytes > limit ? bytes - limit : 0; }

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
  CandidatePlanner planner(today, effort);
  FitReport report;
  for (const Candidate& candidate : CandidatesOf(today)) {
    // Combinations that are dearer than what fits are of no use; single changes are the table.
    if (report.fitting.has_value() && candidate.changes.size() > 1) continue;
    if (!planner.Affords(candidate)) {
      report.not_planned += report.fitting.has_value() ? 0 : 1;
      continue;
    }
    std::optional<FitChoice> choice = planner.Choose(candidate);
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
  std::vector<FitChoice> choices;
  for (const Dimension& dimension : kDimensions) {
    if (dimension.all == nullptr) continue;
    for (const std::string& value : dimension.all(plan)) {
      Candidate candidate;
      candidate.job = plan.job();
      Change(dimension, value, candidate);
      candidate.time = StepTime(candidate.job, plan.mesh());
      if (!planner.Affords(candidate)) continue;
      std::optional<FitChoice> choice = planner.Choose(candidate);
      if (choice.has_value()) choices.push_back(*std::move(choice));
    }
  }
  return choices;
}

}  // namespace trireme::plan
