// USR1, USR2, TERM and INT mean the same: stop at the next step boundary, with a checkpoint.
// A thread of their own waits for them, and none that computes is ever interrupted: matrix products
// of oneDNN lose their memory where a handler runs on their stack.
#pragma once

namespace trireme::worker {

// Blocks the signals in the calling thread, and so in all that it starts, and starts the one that
// waits for them. Call once, before other threads start.
void ListenForStop();
bool StopRequested();

}  // namespace trireme::worker
