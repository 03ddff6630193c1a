// Positions in the words of the schedule.
#pragma once

#include <string>

#include "runtime/recorder/flight_recorder.h"

namespace trireme::recorder {

// "F of micro-batch 2, virtual stage 0", "RECV_ACT of micro-batch 5, virtual stage 1 (peer rank 3)"
// or "REDUCE".
std::string DescribePosition(const Position& position);

// "waiting for rank 3 over group 'pipeline'", "waiting for rank 0 and 2 more in a collective of
// group 'data'"; empty: it does not wait.
std::string DescribeWait(const Wait& wait);

// "starting", "running", "stopped" or "failed".
std::string StateName(RankState state);

}  // namespace trireme::recorder
