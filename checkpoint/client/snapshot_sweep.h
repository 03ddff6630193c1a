// Snapshots that nobody comes back to (docs/formats/snapshot.md): a run that failed or was
// cancelled for good leaves its files in memory, and whether another attempt follows its ranks do
// not know.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// Thread: one. Memory never hangs, so calls take as long as there are files.
class SnapshotSweep {
 public:
  using Clock = std::chrono::steady_clock;
  struct Removed {
    std::string folder;
    uint64_t bytes = 0;
  };

  // Of folders of this process's user in `root`, a file system in memory. `keep` 0: for ever.
  SnapshotSweep(std::string root, std::chrono::seconds keep)
      : root_(std::move(root)), keep_(keep) {}

  // Removes the folders of which no file has been held by a rank at any call since `keep` ago. A
  // file that one holds meanwhile stays.
  std::vector<Removed> Turn(Clock::time_point now);

 private:
  const std::string root_;
  const std::chrono::seconds keep_;
  std::map<std::string, Clock::time_point> idle_since_;  // by folder
};

}  // namespace trireme::checkpoint
