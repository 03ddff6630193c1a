// How long ranks that are told to stop may take before they are killed, where nobody has said: the
// same for a Ctrl-C in `trireme run` and for the daemon's pause.
#pragma once

#include "trireme/v1/job_spec.pb.h"

namespace trireme::coordinator {

// Seconds, at most a day. `step_seconds`: a whole step of the slowest rank; what is no number or
// less than 0 counts as 0.
double StopGraceSeconds(const v1::JobSpec& job, double step_seconds);

}  // namespace trireme::coordinator
