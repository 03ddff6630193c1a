// The checkpoints of a job, as people see them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/planning/submission.h"
#include "runtime/base/real_path.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

// The folder that holds them, and how it is read.
struct CheckpointRoot {
  std::string path;
  base::Links links = base::Links::kFollow;
};

// As the job names it; nothing is looked at.
std::string CheckpointFolderOf(const v1::Job& job);

// Where the job names a folder itself, it is looked at again whether it may: InvalidArgument if
// not, and under rules.real_paths() it is to be read without links. Blocks on the disk.
absl::StatusOr<CheckpointRoot> CheckpointRootOf(const v1::Job& job, const SubmissionRules& rules);

// Newest first, a thousand at most. Those that do not open are named apart; what a disk does not
// list is none. Blocks on the disk.
v1::ListCheckpointsResponse CheckpointsIn(const CheckpointRoot& root);

}  // namespace trireme::coordinator
