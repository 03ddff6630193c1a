// A step time comes from a rank: whatever it tells, a grace stays within its bounds.
#include "coordinator/job_machine/stop_grace.h"

#include <catch2/catch.hpp>
#include <limits>

namespace trireme::coordinator {

TEST_CASE("a grace is a number of seconds up to a day, whatever a rank tells") {
  v1::JobSpec job;
  job.mutable_runtime()->set_deadline_seconds(30);
  CHECK(StopGraceSeconds(job, 300) == 60 + 30 + 900);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double step : {0.0, -5.0, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK(StopGraceSeconds(job, step) == 60 + 30);
  }
  for (const double step : {1e6, infinity}) CHECK(StopGraceSeconds(job, step) == 86400);
}

}  // namespace trireme::coordinator
