// SwapFile: room on a disk for what is not used, of one process and as long as it lives. It is read
// and written in pieces, and is mapped for those who look at single elements.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/real_path.h"

namespace trireme::tensor {

// Where such a file lies. kRefuse: `path` is absolute, and of others, who may put links there.
struct SwapFolder {
  std::string path;
  base::Links links = base::Links::kFollow;
};

// Threads: any, also at the same time on bytes that do not meet.
class SwapFile {
 public:
  // A file without a name in `folder`, so that nothing of it is left however the process ends.
  // All of its room is taken now: DataLoss with the sizes where the disk has not so much beside
  // what it keeps for others (a 32nd of it, at most 1 GiB), which is no fault of the job's size;
  // NotFound, PermissionDenied or FailedPrecondition (a link) where no file can be made there.
  // Zero-filled.
  static absl::StatusOr<std::shared_ptr<SwapFile>> Make(const SwapFolder& folder, size_t bytes);
  SwapFile(const SwapFile&) = delete;
  ~SwapFile();

  // All of it as memory, in whole pages, aligned to 2 MiB. Reading it waits for the disk.
  std::span<std::byte> pages() const { return {data_, mapped_bytes_}; }
  // Block until the system has taken or given the bytes. DataLoss where the disk fails; of what was
  // written, at the latest when it is read again or synced.
  absl::Status Write(size_t offset, std::span<const std::byte> from);
  absl::Status Read(size_t offset, std::span<std::byte> to);
  // Blocks until the disk has all that was written, through the mapping too; DataLoss where it lost
  // some of it, which only one call of Read or Sync is told. Whoever reads the mapping calls it
  // first: there a page that was lost looks like any other.
  absl::Status Sync();
  // What was looked at through pages() need not stay in memory: it is on its way to the disk, and
  // comes back when it is looked at again.
  void LetGo(size_t offset, size_t bytes);
  // Grows while the disk answers.
  uint64_t answers() const { return answers_.load(std::memory_order_relaxed); }

 private:
  SwapFile() = default;
  absl::Status Map();
  absl::Status WaitForDisk(size_t offset, size_t bytes);
  uint64_t RoomBytes() const;
  absl::Status Failed(const char* what, int error) const;
  void ForgetCached(size_t offset, size_t bytes);

  std::string directory_;
  int fd_ = -1;
  size_t bytes_ = 0;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::atomic<uint64_t> answers_{0};
};

}  // namespace trireme::tensor
