#include "runtime/benchmark/other_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace trireme::benchmark {
namespace {

std::optional<ProcessorTimes> TimesNow() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  return ProcessorTimesOf(line);
}

double OwnSeconds() {
  double seconds = 0;
  for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(whose, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
  }
  return seconds;
}

}  // namespace

std::optional<ProcessorTimes> ProcessorTimesOf(const std::string& stat) {
  std::istringstream words(stat);
  std::string name;
  // user, nice, system, idle, iowait, irq, softirq, steal; guests, who follow, are in user and
  // nice.
  double ticks[8] = {};
  words >> name;
  for (double& each : ticks) words >> each;
  if (name != "cpu" || !words) return std::nullopt;
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double idle = ticks[3] + ticks[4];
  double all = 0;
  for (const double each : ticks) all += each;
  return ProcessorTimes{.used = (all - idle) / per_second, .idle = idle / per_second};
}

OtherLoad::OtherLoad() : before_(TimesNow()), own_before_(OwnSeconds()) {}

double OtherLoad::Share() const {
  const auto now = TimesNow();
  if (!before_.has_value() || !now.has_value()) return 0;
  const double used = now->used - before_->used;
  const double all = used + now->idle - before_->idle;
  constexpr double kLeastSeconds = 0.1;
  if (all < kLeastSeconds) return 0;
  return std::clamp((used - (OwnSeconds() - own_before_)) / all, 0.0, 1.0);
}

}  // namespace trireme::benchmark
