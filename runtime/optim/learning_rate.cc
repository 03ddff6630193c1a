// Learning-rate schedules: a pure function of the step, so a resumed job has no schedule state to
// restore.
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/optim/adamw.h"

namespace trireme::optim {

double LearningRate(const LearningRateOptions& options, int64_t step) {
  TRIREME_CHECK(step >= 0);
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps + 1);
  }
  if (options.schedule == LearningRateSchedule::kConstant) return options.peak;
  if (step >= options.decay_steps) return options.minimum;
  const double progress = static_cast<double>(step - options.warmup_steps) /
                          static_cast<double>(options.decay_steps - options.warmup_steps);
  const double weight = options.schedule == LearningRateSchedule::kCosine
                            ? 0.5 * (1 + std::cos(3.141592653589793 * progress))
                            : 1 - progress;
  return options.minimum + weight * (options.peak - options.minimum);
}

}  // namespace trireme::optim
