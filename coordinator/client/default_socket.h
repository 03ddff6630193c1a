// Where `triremed` listens, and a client looks, when neither is told; and where it keeps its state.
#pragma once

#include <string>

namespace trireme::client {

// $XDG_RUNTIME_DIR/trireme/triremed.sock; without that variable (empty or no absolute path counts
// as absent) /run/trireme/triremed.sock for root and /tmp/trireme-<uid>/triremed.sock for others.
// Anybody may make the last one's folder first: whoever uses it checks that it is his own.
std::string DefaultSocketPath();

// /var/lib/trireme for root, ~/.local/state/trireme for others.
std::string DefaultStateFolder();

}  // namespace trireme::client
