#include "runtime/plan/fit_fields.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/plan/fit_time.h"
#include "runtime/plan/job_checks.h"

namespace trireme::plan {

namespace {

constexpr int64_t kMostZeroStage = 3;  // what the rules do not know yet, they refuse
constexpr size_t kMostSizes = 8;       // of a micro-batch
// Of a tile of the loss: with fewer a step becomes slower than what it saves is worth.
constexpr int64_t kFewTileRows = 256;

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

// Of a job whose layers are not alike: a value that only such a job has.
constexpr char kByLayer[] = "by layer";

std::string RecomputeNow(const v1::JobSpec& job) {
  const std::vector<size_t> levels = RecomputeLevels(job);
  const bool alike = std::count(levels.begin(), levels.end(), levels[0]) ==
                     static_cast<std::ptrdiff_t>(levels.size());
  return alike ? kRecomputeModes[levels[0]] : kByLayer;
}

std::vector<std::string> AllRecomputes(const v1::Plan& plan) {
  std::vector<std::string> values(std::begin(kRecomputeModes), std::end(kRecomputeModes));
  if (RecomputeNow(plan.job()) == kByLayer) values.emplace_back(kByLayer);
  return values;
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

void SetRecompute(const std::string& value, v1::JobSpec& job) {
  if (value == kByLayer) return;
  job.mutable_parallelism()->clear_recompute();
  job.mutable_parallelism()->add_recompute(value);
}

std::vector<std::string> AllPlaces(const v1::Plan&) { return {"none", "host", "file"}; }

// Memory beside the arena is memory too, and what goes there leaves slots in the arena.
std::vector<std::string> LighterPlaces(const std::string& now) {
  if (now == "file") return {};
  if (now == "host") return {"none", "file"};
  return {"file"};
}

std::vector<std::string> LighterStatePlaces(const v1::Plan& plan) {
  return LighterPlaces(plan.job().offload().optimizer_state());
}

std::string StatePlaceNow(const v1::JobSpec& job) { return job.offload().optimizer_state(); }

void SetStatePlace(const std::string& value, v1::JobSpec& job) {
  job.mutable_offload()->set_optimizer_state(value);
}

std::vector<std::string> LighterActivationPlaces(const v1::Plan& plan) {
  return LighterPlaces(plan.job().offload().activations());
}

std::string ActivationPlaceNow(const v1::JobSpec& job) { return job.offload().activations(); }

void SetActivationPlace(const std::string& value, v1::JobSpec& job) {
  job.mutable_offload()->set_activations(value);
}

std::vector<std::string> NoSnapshots(const v1::Plan& plan) {
  if (plan.job().snapshots().every_step()) return {"false"};
  return {};
}

std::string SnapshotsNow(const v1::JobSpec& job) {
  return job.snapshots().every_step() ? "true" : "false";
}

void SetSnapshots(const std::string& value, v1::JobSpec& job) {
  job.mutable_snapshots()->set_every_step(value == "true");
}

// Those that a replica's samples are a multiple of, and halves, largest first. Of many, some from
// the first to the last.
std::vector<std::string> SmallerMicroBatches(const v1::Plan& plan) {
  const v1::TrainingSpec& training = plan.job().training();
  const int64_t replicas = plan.mesh().data(), now = training.micro_batch_size();
  const int64_t samples = (training.global_batch_size() + replicas - 1) / replicas;
  std::set<int64_t, std::greater<>> sizes;
  for (int64_t size = now / 2; size >= 1; size /= 2) sizes.insert(size);
  for (int64_t divisor = 1; divisor * divisor <= samples; ++divisor) {
    if (samples % divisor != 0) continue;
    for (const int64_t size : {divisor, samples / divisor}) {
      if (size < now) sizes.insert(size);
    }
  }
  const std::vector<int64_t> all(sizes.begin(), sizes.end());
  const size_t count = std::min(all.size(), kMostSizes);
  std::vector<std::string> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(absl::StrCat(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]));
  }
  return values;
}

std::string MicroBatchNow(const v1::JobSpec& job) {
  return absl::StrCat(job.training().micro_batch_size());
}

void SetMicroBatch(const std::string& value, v1::JobSpec& job) {
  job.mutable_training()->set_micro_batch_size(Number(value));
}

// 1F1B has the bubble of GPipe, and fewer micro-batches in flight.
std::vector<std::string> SchedulesOfFewerInFlight(const v1::Plan& plan) {
  if (plan.job().parallelism().schedule() == "gpipe") return {"1f1b"};
  return {};
}

std::string ScheduleNow(const v1::JobSpec& job) { return job.parallelism().schedule(); }

void SetSchedule(const std::string& value, v1::JobSpec& job) {
  job.mutable_parallelism()->set_schedule(value);
}

std::vector<std::string> FewerTileRows(const v1::Plan& plan) {
  if (LossTileRowsOf(plan.job()) > kFewTileRows) return {absl::StrCat(kFewTileRows)};
  return {};
}

std::string TileRowsNow(const v1::JobSpec& job) {
  return absl::StrCat(job.training().loss_tile_rows());
}

void SetTileRows(const std::string& value, v1::JobSpec& job) {
  job.mutable_training()->set_loss_tile_rows(Number(value));
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
    {"parallelism.schedule", SchedulesOfFewerInFlight, nullptr, ScheduleNow, SetSchedule},
    {"parallelism.zero_stage", HigherZeroStages, AllZeroStages, ZeroStageNow, SetZeroStage},
    {"parallelism.recompute", MoreRecompute, AllRecomputes, RecomputeNow, SetRecompute},
    {"offload.optimizer_state", LighterStatePlaces, AllPlaces, StatePlaceNow, SetStatePlace},
    {"offload.activations", LighterActivationPlaces, AllPlaces, ActivationPlaceNow,
     SetActivationPlace},
    {"snapshots.every_step", NoSnapshots, nullptr, SnapshotsNow, SetSnapshots},
    {"training.micro_batch_size", SmallerMicroBatches, nullptr, MicroBatchNow, SetMicroBatch},
    {"training.loss_tile_rows", FewerTileRows, nullptr, TileRowsNow, SetTileRows},
    {"training.dtype", NarrowerDTypes, nullptr, DTypeNow, SetDType, /*other_numerics=*/true},
};

}  // namespace

std::span<const FitField> FitFields() { return kFields; }

}  // namespace trireme::plan
