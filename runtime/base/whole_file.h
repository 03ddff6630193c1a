// A small file that is there whole or not at all, whatever happens while it is written.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace trireme::base {

// Writes PATH.partial, syncs, renames and syncs the folder, so that a reader, also after a power
// cut, sees the former content or this one; one writer at a time. Blocks on the disk.
// ResourceExhausted: the disk is full; else by errno.
absl::Status WriteWholeFile(const std::string& path, std::string_view content, mode_t mode = 0644);

}  // namespace trireme::base
