// A small file that is there whole or not at all, whatever happens while it is written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace trireme::base {

// Writes beside `path`, syncs and renames, so that a reader, also after a power cut, sees the
// former content or this one. Blocks on the disk. ResourceExhausted: the disk is full; else by
// errno.
absl::Status WriteWholeFile(const std::string& path, std::string_view content);

}  // namespace trireme::base
