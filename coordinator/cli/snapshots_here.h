// What a run has left in this machine's memory (docs/formats/snapshot.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::cli {

struct SnapshotsHere {
  std::string folder;
  uint64_t bytes = 0;  // of all ranks' files there
  // The newest that all of these hold whole, as they say.
  uint64_t step = 0;
  uint64_t samples = 0;
  uint32_t files = 0, ranks = 0;  // those here, and of the run
};

// None where they hold no step together, or the run folder has no key. Blocks on the run folder's
// disk.
std::optional<SnapshotsHere> FindSnapshotsHere(const std::string& run_folder);

}  // namespace trireme::cli
