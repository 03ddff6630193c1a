// Where a run goes on, decided before anything of its folder is changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::cli {

struct ResumePoint {
  std::string checkpoint;          // folder; empty: from the start
  uint64_t step = 0;               // its
  std::vector<std::string> notes;  // what a person should know of the choice
};

// Where a run keeps its checkpoints.
std::string CheckpointRoot(const std::string& run_folder, const v1::JobSpec& job);

// How far "auto" looks into a checkpoint before it believes it.
enum class Trust {
  kBytes,    // every byte matches its checksum
  kHeaders,  // it opens: the ranks share the reading, where this program would do it alone
};

// `resume`: empty, "auto" or a folder (FindCheckpoint). "auto" takes the newest checkpoint of the
// run folder (or of checkpoint.directory) that holds by `trust`, and the start if there is none at
// all. Errors: DataLoss if none of those there holds; InvalidArgument naming the fields in which
// the checkpoint's job differs from `job` in a way that cannot be gone on with; what a disk says
// that may know better later. Blocks on the disk.
absl::StatusOr<ResumePoint> FindResumePoint(const std::string& resume,
                                            const std::string& run_folder, const v1::JobSpec& job,
                                            Trust trust);

}  // namespace trireme::cli
