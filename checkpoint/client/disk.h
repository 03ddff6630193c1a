// The few calls by which a checkpoint reaches the disk for good. Internal to checkpoint/.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/durable.h"
#include "runtime/base/real_path.h"

namespace trireme::checkpoint {

using base::DiskError;
using base::MakeFolders;
using base::SyncFolder;
using base::WriteDurably;

// NotFound if there is none; DataLoss for sectors that cannot be read, and above 1 GiB, which no
// manifest is; where links are refused above 32 MiB: what others may have put there is not to fill
// our memory.
absl::StatusOr<std::string> ReadText(const std::string& path,
                                     base::Links links = base::Links::kFollow);

// Of an open, stat or read that failed: as DiskError, but DataLoss for a disk that has lost what it
// was given, or holds a folder in a file's place.
absl::Status ReadError(std::string_view path, std::string_view what, int errno_value);
// Lets the system forget what it has in memory of the file, as far as it is on the disk, so that
// the next read asks the disk. A wish; what is in use elsewhere stays.
void ForgetCached(int fd);

bool Exists(const std::string& path);
// Removes a file or folder with all that is in it; ok if there is nothing.
absl::Status RemoveAll(const std::string& path);

}  // namespace trireme::checkpoint
