// Changes of files and folders that outlive a power cut. A file's bytes are on the disk only after
// fsync of the file, its name only after fsync of the folder; every room that promises either calls
// these, so that no order is invented twice.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace trireme::base {

// The status of `errno_value`: NotFound for what is not there, PermissionDenied, else Unavailable,
// also for a full disk, quota or file size limit: that is no plan that does not fit, and another
// time there may be room. Names path and cause.
absl::Status DiskError(std::string_view path, std::string_view what, int errno_value);
// As absl::ErrnoToStatus, but of a full disk as DiskError. `errno_value` is not 0.
absl::Status ErrnoStatus(int errno_value, std::string_view what);

// All below block on the disk.

// Writes the file itself (no other name first) and waits until its bytes are on the disk; its name
// needs SyncFolder. Does not follow a link.
absl::Status WriteDurably(const std::string& path, std::string_view text);
// Waits until the entries of a folder are on the disk.
absl::Status SyncFolder(const std::string& folder);
absl::Status SyncFolderOf(const std::string& path);
// Makes the folder and those above it that are missing, and waits until they are on the disk.
absl::Status MakeFolders(const std::string& folder);
// Waits until the way to a folder is on the disk: whoever made those above may not have waited.
// What this user may not open is somebody else's, and older.
absl::Status SyncWayTo(const std::string& folder);

}  // namespace trireme::base
