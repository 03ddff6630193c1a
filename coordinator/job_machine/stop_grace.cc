#include "coordinator/job_machine/stop_grace.h"

#include <algorithm>

namespace trireme::coordinator {
namespace {

constexpr double kDiskSeconds = 60;
// The rest of a step, an evaluation's pass and a whole step more.
constexpr double kSteps = 3;
constexpr double kLongestSeconds = 86400;  // as the API takes

}  // namespace

// What an honest stop may need; a rank that hears nothing ends by its deadline.
double StopGraceSeconds(const v1::JobSpec& job, double step_seconds) {
  // In this order of arguments a NaN gives 0.
  const double deadline = std::max(0.0, job.runtime().deadline_seconds());
  const double steps = kSteps * std::max(0.0, step_seconds);
  return std::min(kLongestSeconds, kDiskSeconds + deadline + steps);
}

}  // namespace trireme::coordinator
