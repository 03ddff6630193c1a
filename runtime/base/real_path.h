// Files by their real folders only, for paths that others may turn into links after they were
// checked.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trireme::base {

// As open(2) with O_CLOEXEC, but no link of `path` is followed, wherever on the way. -1 and errno:
// ELOOP where there is one, EINVAL where the path is not absolute or holds "..".
int OpenWithoutLinks(const std::string& path, int flags);

// FailedPrecondition if a link is on the way to `path`, a folder that need not be there yet.
absl::Status CheckWithoutLinks(const std::string& path);

}  // namespace trireme::base
