// What a run has left in this machine's memory (docs/formats/snapshot.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::cli {

struct SnapshotsHere {
  std::string folder;
  uint64_t bytes = 0;  // of all ranks' files there
  uint64_t step = 0;   // the newest that one of them holds whole
};

// None where no file holds a step, or the run folder has no key. Blocks on the run folder's disk.
std::optional<SnapshotsHere> FindSnapshotsHere(const std::string& run_folder);

}  // namespace trireme::cli
