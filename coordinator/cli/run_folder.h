// Where a run leaves its files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::cli {

struct RunFolderRequest {
  std::string runs_directory;
  std::string job_name;
  std::string given;              // --run-dir, or empty
  bool resume = false;            // --resume auto: an existing folder is gone on with
  bool keeps_checkpoints = true;  // false: they are in a folder that the job names
};

struct RunFolder {
  std::string path;  // absolute
  // Of a resume that found no run to go on with, RUNS/NAME-DATE-TIME: where it looked.
  std::string searched;
};

// Makes, or to resume finds, the run folder. A new one is RUNS/NAME-YYYYMMDD-HHMMSS, with -2, -3
// ... if that exists; a resumed one the newest of that name that has checkpoints, or a new one if
// there is none. AlreadyExists: the folder given holds a run and `resume` is false. Aborted, as of
// LockRunFolder: `resume` does not know yet what to go on from, for a run of that name is at work
// and has saved nothing.
absl::StatusOr<RunFolder> ChooseRunFolder(const RunFolderRequest& request);

// One run at a time in a folder. Holds until this process ends, however it ends. Aborted: another
// `trireme run` is at work there, which is no fault of the call and passes. File systems without
// locks are let through.
absl::Status LockRunFolder(const std::string& folder);

// Whole or not at all, through a temporary file; devices and pipes are written to as they are.
absl::Status WriteFile(const std::string& given, const std::string& text);
// Empty if it cannot be read.
std::string ReadFile(const std::string& path);

}  // namespace trireme::cli
