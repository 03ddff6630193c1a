// Where `triremed` listens, and a client looks, when neither is told; and where it keeps its state.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/pinned_folder.h"

namespace trireme::client {

// $XDG_RUNTIME_DIR/trireme/triremed.sock; without that variable (empty or no absolute path counts
// as absent) /run/trireme/triremed.sock for root and /tmp/trireme-<uid>/triremed.sock for others.
// Anybody may make the last one's folder first: whoever uses it goes by one of the two below.
std::string DefaultSocketPath();
constexpr const char* kDefaultSocketName = "triremed.sock";

// What is in `folder` was put there by this process's user or by root: it is a folder of theirs, no
// link of others, and others may not write to it, or, where it is sticky, not replace what is
// there. PermissionDenied: it is not so; says whose it is, and `fix`. NotFound: there is none.
absl::Status CheckSocketFolder(const std::string& folder, const std::string& fix);
// The folder of DefaultSocketPath, for whoever dials the socket in it: to be opened for each, as
// what stands there changes. PermissionDenied: folder or socket are not this user's or root's, or
// others may write to the folder. But where nobody else may write to the folder above, they may
// also be of the user to whom root has given them, as systemd gives /run/trireme to the daemon's.
// Elsewhere it makes the folder, if there is none: whoever makes it first has it. Where it cannot
// be made, no folder, in which nobody listens.
absl::StatusOr<base::PinnedFolder> OpenDefaultFolder();

// /var/lib/trireme for root, ~/.local/state/trireme for others.
std::string DefaultStateFolder();

}  // namespace trireme::client
