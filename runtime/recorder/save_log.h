// Which checkpoints an attempt has begun to write, in a small text file beside its flight recorders
// (docs/formats/flight_recorder.md). What exists under a name in it is of this attempt: names alone
// tell nothing, since a run that went back behind a damaged checkpoint comes to the same steps
// again. And why a save failed: the run goes on, and nobody else would tell.
#pragma once

#include <cstddef>
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

// The same for why a save failed: a line that is no name, of at most so many bytes, lest names be
// pushed out of what is read.
inline constexpr size_t kMostFailedBytes = 400;
absl::Status NoteFailedSave(const std::string& path, const std::string& why);

// `why` of a line of the log; empty: the line is a name.
std::string FailedSaveOf(const std::string& line);

// The lines, the newest first, some hundred names at most. Empty also where the disk does not give
// them.
std::vector<std::string> ReadSaves(const std::string& path);

}  // namespace trireme::recorder
