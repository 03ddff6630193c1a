// Which checkpoints an attempt has begun to write, in a small text file beside its flight recorders
// (docs/formats/flight_recorder.md). What exists under a name in it is of this attempt: names alone
// tell nothing, since a run that went back behind a damaged checkpoint comes to the same steps
// again.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trireme::recorder {

// "saves" in the folder of the recorders.
std::string SaveLogPath(const std::string& recorder_folder);

// Removes what an earlier attempt has left there, for good. Blocks on the disk.
absl::Status ForgetSaves(const std::string& path);

// By rank 0, right before the folder `name` gets this name; on the disk when this returns. One
// writer. Errors: of the disk.
absl::Status NoteSave(const std::string& path, const std::string& name);

// The newest first, some hundred at most. Empty also where the disk does not give them.
std::vector<std::string> ReadSaves(const std::string& path);

}  // namespace trireme::recorder
