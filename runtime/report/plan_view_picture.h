// The schedule in a terminal.
#pragma once

#include <string>

#include "runtime/report/plan_view.h"

namespace trireme::report {

// A line per pipeline rank, time to the right, two columns per unit (the time of F): F0 is the
// forward of micro-batch 0 (10 and 20 look the same), lower case on odd virtual stages. Cut with
// "..." where the width ends.
std::string SchedulePicture(const PlanTimeline& timeline, const DescribeOptions& options);

}  // namespace trireme::report
