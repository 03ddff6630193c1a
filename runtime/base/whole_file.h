// A small file that is there whole or not at all, whatever happens while it is written.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::base {

// Writes PATH.partial, syncs, renames and syncs the folder, so that a reader, also after a power
// cut, sees the former content or this one; one writer at a time. Blocks on the disk.
// Errors: ErrnoStatus.
absl::Status WriteWholeFile(const std::string& path, std::string_view content, mode_t mode = 0644);

// The same of a file that is not held in memory: `next` gives it part by part, "" at its end.
absl::Status WriteWholeFile(const std::string& path, const std::function<std::string()>& next,
                            mode_t mode = 0644);

// The same of a name that must be free: of all who call at once one has it. AlreadyExists: it is
// taken, and as it was. Needs a file system with hard links.
absl::Status WriteNewFile(const std::string& path, std::string_view content, mode_t mode = 0644);

// All of it, or why not: also folders, devices without an end and disks that fail are errors, with
// the path in the message. NotFound: there is none; ResourceExhausted: it has more than
// `most_bytes`; else by errno. Blocks on the disk.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          size_t most_bytes = size_t{64} << 20);

// The same of what others may have put there: follows no link, waits for no FIFO.
// FailedPrecondition: it is no plain file. That and ResourceExhausted are never errors of the disk,
// or of this process.
absl::StatusOr<std::string> ReadPlainFile(const std::string& path, size_t most_bytes);

}  // namespace trireme::base
