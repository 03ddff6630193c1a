// Snapshots that nobody comes back to (docs/formats/snapshot.md): a run that failed or was
// cancelled for good leaves its files in memory, and whether another attempt follows its ranks do
// not know.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::checkpoint {

// Thread: one, which nobody waits for: the kernel gives back a few GiB in a second.
class SnapshotSweep {
 public:
  using Clock = std::chrono::steady_clock;
  struct Left {
    std::string folder;
    uint64_t bytes = 0;
    uint64_t step = 0;  // the newest that is whole in one of its files; 0: none
  };
  struct Looked {
    std::vector<Left> removed;
    std::vector<Left> late;  // half of the time is over; each is told once
  };

  // Of folders of this process's user in `root`, a file system in memory. `keep` 0: for ever.
  SnapshotSweep(std::string root, std::chrono::milliseconds keep)
      : root_(std::move(root)), keep_(keep) {}

  // Removes the folders of which no file has been held by a rank at any call since `keep` ago, and
  // what a call before this one, also of another process, has begun to remove. Their files are held
  // meanwhile, and their memory is given back by parts (HeldFiles::kPartBytes). `goes_on` is asked
  // before each; false from it: the rest is for the next call.
  Looked Turn(
      Clock::time_point now, const std::function<bool()>& goes_on = [] { return true; });

 private:
  struct Idle {
    Clock::time_point since;
    bool told = false;
  };

  const std::string root_;
  const std::chrono::milliseconds keep_;
  std::map<std::string, Idle> idle_;  // by folder
};

struct RoomOptions {
  std::string root = "/dev/shm";  // a file system in memory
  // Only what nobody holds, and nobody has written to for so long, by the time of day: a run whose
  // next attempt is about to come keeps its own.
  std::chrono::seconds idle{600};
  std::string except;  // the folder of whoever asks
};

// Takes away what runs of this process's user have left in `root`, the oldest first, until
// `wanted_bytes` are free in it, or no more can go. What has gone. Blocks for as long as the kernel
// needs. Threads and processes: any, beside each other.
std::vector<SnapshotSweep::Left> MakeRoom(const RoomOptions& options, uint64_t wanted_bytes);

}  // namespace trireme::checkpoint
