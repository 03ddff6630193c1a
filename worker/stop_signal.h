// USR1, USR2, TERM and INT mean the same: stop at the next step boundary, with a checkpoint.
#pragma once

namespace trireme::worker {

// Installs the handlers; call once, before threads start.
void ListenForStop();
bool StopRequested();

}  // namespace trireme::worker
