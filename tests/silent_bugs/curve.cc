#include "tests/silent_bugs/curve.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>

#include "runtime/base/check.h"
#include "tests/silent_bugs/run.h"

namespace trireme::silent_bugs {

namespace {

constexpr uint64_t kSteps = 200;
constexpr uint64_t kSavedAt = 100;
constexpr size_t kSmoothed = 20;
constexpr size_t kLooked = 50;
constexpr uint64_t kSeeds[] = {1, 2, 3};

double Smoothed(const std::vector<double>& losses, size_t step) {
  const auto end = losses.begin() + static_cast<std::ptrdiff_t>(step) + 1;
  return std::accumulate(end - kSmoothed, end, 0.0) / kSmoothed;
}

double Apart(const std::vector<double>& run, const std::vector<double>& sound) {
  if (run.size() < kSteps) return INFINITY;
  double worst = 0;
  for (size_t step = kSteps - kLooked; step < kSteps; ++step) {
    const double expected = Smoothed(sound, step);
    const double apart = std::abs(Smoothed(run, step) - expected) / expected;
    if (!(apart <= worst)) worst = apart;
  }
  return worst;
}

}  // namespace

const Curves::Sound& Curves::SoundOf(const Kind& kind) {
  Job job = kind.job;
  job.layout = {};
  job.resumes = false;
  const std::string model = SpecOf(job, {}).SerializeAsString();
  Sound& sound = sound_[model];
  if (!sound.losses.empty()) return sound;
  std::vector<std::vector<double>> runs;
  for (const uint64_t seed : kSeeds) {
    const Outcome run = Run(job, {}, {.steps = kSteps, .saved_at = kSavedAt, .seed = seed});
    TRIREME_CHECK(run.status.ok());
    for (const auto& other : runs) sound.seeds = std::max(sound.seeds, Apart(run.losses, other));
    runs.push_back(run.losses);
  }
  sound.losses = runs.front();
  return sound;
}

Curve Curves::Measure(const Kind& kind) {
  const Sound& sound = SoundOf(kind);
  const Plant plant = kind.consequence ? kind.consequence() : kind.plant;
  const Outcome run = Run(kind.job, plant, {.steps = kSteps, .saved_at = kSavedAt});
  if (!run.status.ok()) std::cerr << kind.number << ": " << run.status.message() << std::endl;
  return {.apart = Apart(run.losses, sound.losses), .seeds = sound.seeds};
}

}  // namespace trireme::silent_bugs
