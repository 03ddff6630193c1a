#include "runtime/plan/fit_fields.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/plan/fit_time.h"

namespace trireme::plan {

namespace {

constexpr int64_t kMostZeroStage = 3;  // what the rules do not know yet, they refuse
constexpr size_t kMostHalvings = 5;

int64_t Number(const std::string& value) {
  int64_t number = 0;
  TRIREME_CHECK(absl::SimpleAtoi(value, &number));
  return number;
}

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

constexpr FitField kFields[] = {
    {"parallelism.zero_stage", HigherZeroStages, AllZeroStages, ZeroStageNow, SetZeroStage},
    {"parallelism.recompute", MoreRecompute, AllRecomputes, RecomputeNow, SetRecompute},
    {"offload.optimizer_state", StateToFile, AllPlaces, StatePlaceNow, SetStatePlace},
    {"offload.activations", ActivationsToFile, AllPlaces, ActivationPlaceNow, SetActivationPlace},
    {"training.micro_batch_size", SmallerMicroBatches, nullptr, MicroBatchNow, SetMicroBatch},
    {"training.dtype", NarrowerDTypes, nullptr, DTypeNow, SetDType, /*other_numerics=*/true},
};

}  // namespace

std::span<const FitField> FitFields() { return kFields; }

}  // namespace trireme::plan
