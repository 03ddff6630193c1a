// Small text files whole, with refusals that say what the path really is.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace trireme::spec {

// The bytes of the regular file at `path`, at most `limit_bytes`. InvalidArgument without the path
// in it: "no such file", "is a folder ...", "has N bytes, more than ...".
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit_bytes);

}  // namespace trireme::spec
