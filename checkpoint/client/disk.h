// The few calls by which a checkpoint reaches the disk for good. Internal to checkpoint/client.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::checkpoint {

// The status of `errno_value`: ResourceExhausted for a full disk or quota, else Unavailable; names path and cause.
absl::Status DiskError(std::string_view path, std::string_view what, int errno_value);
// Writes the file and waits until it is on the disk.
absl::Status WriteDurably(const std::string& path, std::string_view text);
// Waits until the entries of a folder are on the disk.
absl::Status SyncFolder(const std::string& folder);
// NotFound if there is none; DataLoss above 1 GiB, which no manifest is.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace trireme::checkpoint
