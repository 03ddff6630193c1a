#include "runtime/plan/fit_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "runtime/plan/job_checks.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/schedule.h"

namespace trireme::plan {

namespace {

// What a micro-batch moves of a weight through memory, and of its gradient over the network, takes
// as long as its products with this many tokens.
constexpr double kTokensOfWeights = 54;

size_t LevelOf(const std::string& mode) {
  const auto at = std::find(std::begin(kRecomputeModes), std::end(kRecomputeModes), mode);
  return at == std::end(kRecomputeModes) ? 0 : static_cast<size_t>(at - kRecomputeModes);
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

// Of a byte that is moved, in flops: to a file as over the network, to memory as to memory.
double FlopsOfByte(v1::PoolPlace place) {
  return place == v1::FILE ? 80 : place == v1::HOST ? 20 : 0;
}

}  // namespace

std::vector<size_t> RecomputeLevels(const v1::JobSpec& job) {
  std::vector<size_t> levels;
  for (const std::string& mode : job.parallelism().recompute()) levels.push_back(LevelOf(mode));
  if (levels.empty()) levels.push_back(0);
  return levels;
}

int64_t MicroBatches(const v1::JobSpec& job, const v1::Mesh& mesh) {
  const int64_t replicas = mesh.data(), size = job.training().micro_batch_size();
  const int64_t samples = (job.training().global_batch_size() + replicas - 1) / replicas;
  return (samples + size - 1) / size;
}

bool StepTimes::MovesActivations(const v1::JobSpec& job) {
  if (!OffloadsActivations(job)) return false;
  const auto virtual_stages = static_cast<uint32_t>(job.parallelism().virtual_stages());
  // More micro-batches than fill the pipeline only repeat what these do.
  const int64_t enough = int64_t{4} * mesh_.pipeline() * virtual_stages;
  const auto count = static_cast<uint32_t>(std::min(MicroBatches(job, mesh_), enough));
  const auto [at, is_new] = far_.try_emplace({job.parallelism().schedule(), count}, false);
  if (is_new) {
    at->second = HasFarBackwards(
        job.parallelism().schedule(),
        {.ranks = mesh_.pipeline(), .micro_batches = count, .virtual_stages = virtual_stages});
  }
  return at->second;
}

double StepTimes::OffloadTime(const v1::JobSpec& job, double tokens_of_step) {
  double state = FlopsOfByte(PlaceOf(job, v1::MOMENT1)) * 2 *
                 static_cast<double>(UpdateBytes(job)) / (6 * tokens_of_step);
  if (job.parallelism().zero_stage() > 0) state /= mesh_.data();
  if (!MovesActivations(job)) return state;
  const double moved[] = {136, 100, 8};  // bytes a token, of one hidden unit of a layer
  double bytes = 0;
  const std::vector<size_t> levels = RecomputeLevels(job);
  for (const size_t level : levels) bytes += moved[level] / static_cast<double>(levels.size());
  return state + FlopsOfByte(PlaceOf(job, v1::STORED)) * bytes /
                     (72 * static_cast<double>(job.model().config().hidden_size()));
}

double StepTimes::TileTime(const v1::JobSpec& job) {
  constexpr int64_t kEnoughRows = 1024;
  const v1::ModelConfig& model = job.model().config();
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  const int64_t tile = LossTileRowsOf(job);
  if (tile >= std::min(rows, kEnoughRows)) return 0;
  const auto head = static_cast<double>(model.vocab_size());
  const double layers = 12 * static_cast<double>(model.hidden_size()) *
                        static_cast<double>(model.num_hidden_layers());
  const double at_256 = job.training().dtype() == "bf16" ? 0.7 : 0.065;
  return at_256 * head / (head + layers) * 256 / static_cast<double>(tile);
}

double StepTimes::Of(const v1::JobSpec& job) {
  const auto tokens =
      static_cast<double>(job.training().micro_batch_size() * job.data().sequence_length());
  const double pass = kTokensOfWeights / tokens;
  const auto n = static_cast<double>(MicroBatches(job, mesh_));
  const int64_t stage = mesh_.data() > 1 ? job.parallelism().zero_stage() : 0;
  double zero = 0.01 * static_cast<double>(stage);
  if (stage >= 2) zero += (n - 1) / n * pass;
  if (stage >= 3) zero += (2 * n - 1) / n * pass;
  return (1 + RecomputeShare(job)) * (1 + pass) + zero + OffloadTime(job, n * tokens) +
         TileTime(job);
}

int64_t TimeClass(double slowdown) {
  constexpr double kRounding = 1e-9;
  return static_cast<int64_t>(std::floor(slowdown * 50 + kRounding));
}

}  // namespace trireme::plan
