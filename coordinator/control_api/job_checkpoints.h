// The checkpoints of a job, as people see them.
#pragma once

#include <string>

#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

// The folder that holds them.
std::string CheckpointRoot(const v1::Job& job);

// Newest first. Folders that do not open are no checkpoints. Blocks on the disk.
v1::ListCheckpointsResponse CheckpointsIn(const std::string& root);

}  // namespace trireme::coordinator
