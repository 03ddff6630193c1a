// The checkpoint meant by a folder that a person names.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/client/reader.h"

namespace trireme::cli {

struct FoundCheckpoint {
  std::string folder;
  // Newer ones that are damaged, for whoever goes on from this one to say so. Their headers alone
  // have been read.
  std::vector<checkpoint::Skipped> passed_over;
};

// `folder` itself if it is a checkpoint, else the newest one of the run folder or of the folder of
// checkpoints that it is. NotFound says where it looked; DataLoss: there are some, and none opens;
// what a disk says of a newer one that it may give back later.
absl::StatusOr<FoundCheckpoint> FindCheckpoint(const std::string& folder);

// "FOLDER is damaged and passed over: WHY; FOLDER is used instead", one for each.
std::vector<std::string> PassedOverTexts(const FoundCheckpoint& found);

}  // namespace trireme::cli
