// The key of a run folder's snapshots: it names the folder in memory that they lie in, on each node
// (docs/formats/snapshot.md), so that whoever has the run folder finds them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "checkpoint/format/snapshot.h"

namespace trireme::checkpoint {

inline constexpr std::string_view kSnapshotKeyName = "snapshots.key";

// 32 hexadecimal digits.
std::string SnapshotKeyText(const SnapshotKey& key);

// NotFound: there is none; DataLoss: what is there is none, or another folder's, as in a copy of a
// run folder, whose memory is not its own; else by errno. Blocks on the disk.
absl::StatusOr<SnapshotKey> ReadSnapshotKey(const std::string& run_folder);
// The same, but where there is none, or none of this folder, one is drawn and written first. One
// caller at a time.
absl::StatusOr<SnapshotKey> ReadOrDrawSnapshotKey(const std::string& run_folder);

}  // namespace trireme::checkpoint
