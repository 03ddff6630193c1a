// A recording in the words that keepers and ranks send (trireme.v1).
#pragma once

#include <cstdint>

#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::recorder {

// All but whether the process lives. `now_ns`: CLOCK_MONOTONIC.
v1::RankReport RankMessage(const Recording& recording, int64_t now_ns);
v1::Progress ProgressMessage(const Recording& recording);

}  // namespace trireme::recorder
