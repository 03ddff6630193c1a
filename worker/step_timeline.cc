// One place for the step to be written: a writer that is late skips steps and queues nothing.
#include "worker/step_timeline.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "worker/run_files.h"

namespace trireme::worker {

namespace {

std::string FolderOf(const std::string& run_directory) { return run_directory + "/timeline"; }

// "m RESIDENT PEAK" of this process, in bytes; empty where the system does not say.
std::string MemoryLine() {
  uint64_t resident_kib = 0;
  uint64_t peak_kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::sscanf(line.c_str(), "VmRSS: %lu kB", &resident_kib);
    std::sscanf(line.c_str(), "VmHWM: %lu kB", &peak_kib);
  }
  if (resident_kib == 0 || peak_kib == 0) return "";
  return absl::StrCat("m ", resident_kib << 10, " ", peak_kib << 10, "\n");
}

}  // namespace

StepTimeline::StepTimeline(const std::string& run_directory, int rank)
    : folder_(FolderOf(run_directory)), rank_(rank), writer_([this] { WriteAll(); }) {}

StepTimeline::~StepTimeline() {
  {
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  writer_.join();
}

bool StepTimeline::IsDue(double shared_time_s) {
  const double second = std::floor(shared_time_s);
  return std::exchange(last_second_, second) != second;
}

void StepTimeline::Keep(uint64_t step, const engine::StepTrace& trace,
                        const engine::JobClock& clock) {
  Kept kept{step, {}, clock};
  kept.trace.Keep(step, trace);
  const absl::MutexLock lock(&mutex_);
  next_ = std::move(kept);
}

void StepTimeline::WriteAll() {
  bool warned = false;
  while (true) {
    std::optional<Kept> kept;
    {
      const absl::MutexLock lock(&mutex_, absl::Condition(this, &StepTimeline::Wanted));
      kept = std::exchange(next_, std::nullopt);
    }
    if (!kept) return;
    const absl::Status written = Write(*kept);
    if (written.ok() || std::exchange(warned, true)) continue;
    spdlog::warn("no timeline of step {}: {}", kept->step, base::MessageOf(written));
  }
}

absl::Status StepTimeline::Write(const Kept& kept) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  return WritePicture(absl::StrFormat("%s/rank-%03d.steps", folder_, rank_),
                      absl::StrCat("step ", kept.step, " rank ", rank_, "\n", MemoryLine(),
                                   kept.trace.Text(kept.clock)));
}

void RemoveTimelines(const std::string& run_directory) {
  std::error_code ignored;
  std::filesystem::remove_all(FolderOf(run_directory), ignored);
}

}  // namespace trireme::worker
