// Where a run goes on, decided before anything of its folder is changed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::cli {

struct ResumePoint {
  std::string checkpoint;          // folder; empty: from the start
  std::vector<std::string> notes;  // what a person should know of the choice
};

// Where a run keeps its checkpoints.
std::string CheckpointRoot(const std::string& run_folder, const v1::JobSpec& job);

// `resume`: empty, "auto" or a folder (FindCheckpoint). "auto" takes the newest checkpoint of the
// run folder (or of checkpoint.directory) whose every byte matches its checksum, and the start if
// there is none at all. Errors: DataLoss if none of those there is intact; InvalidArgument naming
// the fields in which the checkpoint's job differs from `job` in a way that cannot be gone on with.
// Blocks on the disk.
absl::StatusOr<ResumePoint> FindResumePoint(const std::string& resume,
                                            const std::string& run_folder, const v1::JobSpec& job);

}  // namespace trireme::cli
