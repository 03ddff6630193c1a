// Files that are in use while somebody holds their lock (flock), and by nobody after a death.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/pinned_folder.h"

namespace trireme::checkpoint {

// Whether `path` still names the file of `fd`.
bool IsNamed(int fd, const std::string& path);

// Calls `work` with the path of each plain file in `folder` that nobody holds; it is held
// meanwhile. False: somebody holds one, or was faster with it.
bool VisitUnheld(const base::PinnedFolder& folder,
                 const std::function<void(const std::string& path, const struct stat&)>& work);

// All plain files of a folder, held until this ends, so that nobody takes one of them up meanwhile.
// Thread: one.
class HeldFiles {
 public:
  // Of FreeAll, for each turn: the kernel needs about 10 ms for so much.
  static constexpr uint64_t kPartBytes = uint64_t{64} << 20;

  // None: somebody holds one. Does not wait. `folder` outlives it.
  static std::optional<HeldFiles> TakeAll(const base::PinnedFolder& folder);
  HeldFiles(HeldFiles&& other) noexcept
      : folder_(other.folder_), files_(std::exchange(other.files_, {})) {}
  HeldFiles& operator=(HeldFiles&&) = delete;
  ~HeldFiles();

  // Of all of them, as long as they are.
  uint64_t bytes() const;
  // When one of them was written to last, by the time of day; a mapped file says so where its
  // writer does (SnapshotFile's users).
  std::chrono::system_clock::time_point written() const;
  // The newest that one of them says is whole in it; 0: none.
  uint64_t NewestStep() const;
  // That of one of them was begun to be freed: it has no header any more, and a file of snapshots
  // gets its name with one.
  bool IsBegun() const;
  // Gives their memory back by parts, their headers first, then takes their names away. A file that
  // others still map reads as zeros. `goes_on` is asked before each part; false from it: no more is
  // done, and false is returned.
  bool FreeAll(const std::function<bool()>& goes_on);

 private:
  struct Held {
    int fd = -1;
    std::string name;
    uint64_t bytes = 0;
    std::chrono::system_clock::time_point written;
  };

  explicit HeldFiles(const base::PinnedFolder& folder) : folder_(folder) {}

  const base::PinnedFolder& folder_;
  std::vector<Held> files_;
};

}  // namespace trireme::checkpoint
