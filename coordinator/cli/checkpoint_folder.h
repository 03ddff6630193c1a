// The checkpoint meant by a folder that a person names.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trireme::cli {

// `folder` itself if it is a checkpoint, else the newest one of the run folder or of the folder of
// checkpoints that it is. NotFound says where it looked.
absl::StatusOr<std::string> FindCheckpoint(const std::string& folder);

}  // namespace trireme::cli
