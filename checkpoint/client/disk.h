// The few calls by which a checkpoint reaches the disk for good. Internal to checkpoint/.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/real_path.h"

namespace trireme::checkpoint {

// The status of `errno_value`: ResourceExhausted for a full disk or quota, else Unavailable; names
// path and cause.
absl::Status DiskError(std::string_view path, std::string_view what, int errno_value);
// Writes the file and waits until it is on the disk.
absl::Status WriteDurably(const std::string& path, std::string_view text);
// Makes the folder and those above it that are missing, and waits until they are on the disk.
absl::Status MakeFolders(const std::string& folder);
// Waits until the entries of a folder are on the disk.
absl::Status SyncFolder(const std::string& folder);
// NotFound if there is none; DataLoss above 1 GiB, which no manifest is, and where links are
// refused above 32 MiB: what others may have put there is not to fill our memory.
absl::StatusOr<std::string> ReadText(const std::string& path,
                                     base::Links links = base::Links::kFollow);

bool Exists(const std::string& path);
// Removes a file or folder with all that is in it; ok if there is nothing.
absl::Status RemoveAll(const std::string& path);

enum class Swap { kAtomic, kTwoRenames };
// Gives the folder `from` the name `to` for good. An older `to` is swapped for it in one step and
// then removed; where the file system cannot swap (or `swap` says so) it is first renamed to
// `aside`, so a crash in between hides it, but loses nothing and shows nothing half.
absl::Status Publish(const std::string& from, const std::string& to, const std::string& aside,
                     Swap swap = Swap::kAtomic);

}  // namespace trireme::checkpoint
