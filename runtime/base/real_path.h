// Files by their real folders only, for paths that others may turn into links after they were
// checked.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trireme::base {

enum class Links { kFollow, kRefuse };

// As open(2) with O_CLOEXEC, but no link of `path` is followed, wherever on the way. -1 and errno:
// ELOOP where there is one, EINVAL where the path is not absolute or holds "..".
int OpenWithoutLinks(const std::string& path, int flags);

// To read a regular file: never waits for the other end of a pipe, and is -1 and EINVAL for what is
// no regular file. Links::kRefuse: `path` is absolute, and a link anywhere on the way is ELOOP.
int OpenToRead(const std::string& path, Links links);

// FailedPrecondition if a link is on the way to `path`, a folder that need not be there yet.
absl::Status CheckWithoutLinks(const std::string& path);

}  // namespace trireme::base
