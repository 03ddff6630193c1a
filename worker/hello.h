// `trireme-worker hello`: do ranks find each other and agree on a sum? For `trireme check` and for
// people whose MPI does not work.
#pragma once

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace trireme::worker {

// Collective. Rank 0 prints a line about all ranks. Waits for the others for half a minute at most.
absl::Status SayHello(comm::Fabric& fabric);

}  // namespace trireme::worker
