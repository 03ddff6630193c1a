// Which process keeps a file: a lock that no child inherits and that ends with its process, however
// it ends.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trireme::base {

// Makes the file where there is none. AlreadyExists: another process holds it; else by errno. Held
// until this process closes the descriptor, or any other of the same file.
absl::StatusOr<int> LockFile(const std::string& path);

// Whether another process holds it, which does not feel the look; false also where nobody can say.
// Not for a process that may hold it itself: it would lose it.
bool IsLocked(const std::string& path);

}  // namespace trireme::base
