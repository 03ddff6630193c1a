// Removes trees by openat and unlinkat from a folder down, so that no link that a rank has left
// there leads out. What goes is bounded, and so, by itself, is what fails: a tree that cannot be
// removed takes nothing of what others may have.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>

namespace trireme::coordinator {

// How a folder is opened that is no link. Each that is above another holds a descriptor; ranks make
// none that are so deep.
inline constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
inline constexpr int kDeepest = 64;

// Of one thread, and of what is removed as one; blocks on the disk.
class Removal {
 public:
  // As unlinkat.
  using Unlink = std::function<int(int folder, const char* name, int flags)>;
  struct Options {
    size_t most_files = 0;   // and folders that go; beyond that only folders that are empty now
    size_t most_failed = 0;  // tries; then the rest is left
    Unlink unlink;
    const std::atomic<bool>* stopping = nullptr;  // nothing goes from then on
  };
  // One that is open, and the path by which it is told of.
  struct Folder {
    int descriptor = -1;
    std::string path;
    int depth = 0;
  };

  explicit Removal(Options options) : options_(std::move(options)) {}

  // These: false: something is left.
  bool RemoveTree(const Folder& folder, const std::string& name);
  bool RemoveEntries(const Folder& folder, const std::set<std::string>& kept);
  // One file, or, by the flags of unlinkat, an empty folder; whatever has gone before.
  bool RemoveOne(const Folder& folder, const std::string& name, int flags);
  // For a reason of the caller's.
  void Fail(const std::string& path, int error);

  // Of most_files: what went, and what was not there any more.
  size_t spent() const { return spent_; }
  // The first one: which, why, and what to do. Empty: none.
  const std::string& failure() const { return failure_; }
  // It was stopped, or is at its bound of files, and another one would go on.
  bool IsCut() const;

 private:
  bool IsOver() const { return IsCut() || failed_ >= options_.most_failed; }
  void Fail(const std::string& path, const std::string& cause_and_advice);

  const Options options_;
  size_t spent_ = 0;
  size_t failed_ = 0;
  std::string failure_;
  bool refused_ = false;  // by a folder whatever is in it, at the last try
};

}  // namespace trireme::coordinator
