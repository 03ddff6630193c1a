#include "runtime/tensor/swap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"

namespace trireme::tensor {

namespace {

constexpr size_t kMapAlignment = size_t{2} << 20;
// Given to the system at once: the end of each says that the disk answers.
constexpr size_t kCallBytes = size_t{4} << 20;

size_t SystemPageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Of a disk, kept for whoever else writes there: the store of a daemon, checkpoints.
constexpr uint64_t kMostLeftBytes = uint64_t{1} << 30;
constexpr uint64_t kLeftShare = 32;

// O_TMPFILE, or where the file system has none, a name that is taken away at once.
int OpenUnnamedIn(int folder) {
  const int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = absl::StrCat("/proc/self/fd/", folder, "/.trireme-offload-XXXXXX");
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

// -1 and errno.
int OpenUnnamed(const SwapFolder& folder) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  const int opened = folder.links == base::Links::kFollow
                         ? open(folder.path.c_str(), kFlags)
                         : base::OpenWithoutLinks(folder.path, kFlags);
  if (opened < 0) return -1;
  const int fd = OpenUnnamedIn(opened);
  const int error = errno;
  close(opened);
  errno = error;
  return fd;
}

}  // namespace

absl::Status SwapFile::Failed(const char* what, int error) const {
  const std::string text =
      absl::StrCat("offload.directory: ", what, " in ", directory_, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    const uint64_t room = RoomBytes();
    // A file that never had its room does not fit; one that had it lies on a disk that shares it
    // after all.
    const absl::StatusCode code =
        data_ == nullptr ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss;
    return absl::Status(
        code,
        absl::StrCat(text, "; ", bytes_, " bytes (", base::ReadableBytes(bytes_), ") are wanted",
                     room < UINT64_MAX
                         ? absl::StrCat(", ", room, " bytes (", base::ReadableBytes(room),
                                        ") are free beside what is kept for others")
                         : "",
                     "; other ranks of the node take room there too; give a folder on a larger "
                     "local disk"));
  }
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(text, "; make the folder, or give another"));
  }
  if (error == ELOOP) {
    return absl::FailedPreconditionError(absl::StrCat(
        text,
        "; a link is on the way, though the job was submitted with the real path; put the "
        "folder back, or submit the job anew"));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(text, "; give a folder that may be written to"));
  }
  // Often a disk that failed: elsewhere the job may fare better.
  if (error == EROFS) {
    return absl::DataLossError(absl::StrCat(text, "; give a folder that may be written to"));
  }
  return absl::DataLossError(text);
}

// Free on the disk beside what is kept; UINT64_MAX where it tells nothing.
uint64_t SwapFile::RoomBytes() const {
  struct statvfs disk = {};
  if (fstatvfs(fd_, &disk) != 0 || disk.f_frsize == 0 || disk.f_blocks == 0) return UINT64_MAX;
  const uint64_t kept =
      std::min(kMostLeftBytes, uint64_t{disk.f_blocks} / kLeftShare * disk.f_frsize);
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  return free - std::min(free, kept);
}

absl::StatusOr<std::shared_ptr<SwapFile>> SwapFile::Make(const SwapFolder& folder, size_t bytes) {
  std::shared_ptr<SwapFile> file(new SwapFile);
  file->directory_ = folder.path;
  file->bytes_ = bytes;
  file->fd_ = OpenUnnamed(folder);
  if (file->fd_ < 0) return file->Failed("cannot make a file", errno);
  RETURN_IF_ERROR(file->Map());
  return file;
}

// Inside of a reservation, for the alignment.
absl::Status SwapFile::Map() {
  const size_t page = SystemPageBytes();
  mapped_bytes_ = (bytes_ + page - 1) / page * page;
  if (mapped_bytes_ == 0) return absl::OkStatus();
  // Looked at first, lest others find the disk full meanwhile.
  if (mapped_bytes_ > RoomBytes()) return Failed("cannot take the room", ENOSPC);
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(fd_, 0, static_cast<off_t>(mapped_bytes_));
  if (error != 0) return Failed("cannot take the room", error);
  void* reserved = mmap(nullptr, mapped_bytes_ + kMapAlignment, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return Failed("cannot map a file", errno);
  const auto begin = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = (begin + kMapAlignment - 1) / kMapAlignment * kMapAlignment;
  auto* at = reinterpret_cast<std::byte*>(aligned);
  if (aligned > begin) munmap(reserved, aligned - begin);
  munmap(at + mapped_bytes_, begin + kMapAlignment - aligned);
  data_ = at;
  if (mmap(at, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0) ==
      MAP_FAILED) {
    return Failed("cannot map a file", errno);
  }
  return absl::OkStatus();
}

SwapFile::~SwapFile() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
  if (fd_ >= 0) close(fd_);
}

// What goes out is on its way to the disk when it is called for again, and not in the way of what
// comes. Each piece is sent off on its own: of a disk whose queue is full one call for all of them
// would be seen to answer nothing until the last has its place.
absl::Status SwapFile::Write(size_t offset, std::span<const std::byte> from) {
  for (size_t done = 0; done < from.size();) {
    const size_t next = std::min(kCallBytes, from.size() - done);
    const ssize_t wrote = pwrite(fd_, from.data() + done, next, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Failed("cannot write", wrote < 0 ? errno : EIO);
    ++answers_;
    (void)sync_file_range(fd_, static_cast<off_t>(offset + done), wrote, SYNC_FILE_RANGE_WRITE);
    ++answers_;
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

// Where writing failed, the system forgets what was written and gives what lay there before. It
// tells of that once, and of any place in the file.
absl::Status SwapFile::WaitForDisk(size_t offset, size_t bytes) {
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (size_t done = 0; done < bytes;) {
    const size_t next = std::min(kCallBytes, bytes - done);
    const int synced =
        sync_file_range(fd_, static_cast<off_t>(offset + done), static_cast<off_t>(next), kAll);
    if (synced != 0 && errno == EINTR) continue;
    if (synced != 0 && errno != ENOSYS && errno != ESPIPE) return Failed("cannot write", errno);
    ++answers_;
    done += next;
  }
  return absl::OkStatus();
}

absl::Status SwapFile::Sync() { return WaitForDisk(0, mapped_bytes_); }

absl::Status SwapFile::Read(size_t offset, std::span<std::byte> to) {
  RETURN_IF_ERROR(WaitForDisk(offset, to.size()));
  for (size_t done = 0; done < to.size();) {
    const size_t next = std::min(kCallBytes, to.size() - done);
    const ssize_t got = pread(fd_, to.data() + done, next, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Failed("cannot read", got < 0 ? errno : EIO);
    done += static_cast<size_t>(got);
    ++answers_;
  }
  ForgetCached(offset, to.size());
  return absl::OkStatus();
}

// In whole pages, since their neighbours lose nothing. Whether the disk took it is told by whoever
// reads it next.
void SwapFile::LetGo(size_t offset, size_t bytes) {
  const size_t page = SystemPageBytes();
  const size_t begin = offset / page * page;
  const size_t end = std::min((offset + bytes + page - 1) / page * page, mapped_bytes_);
  if (begin >= end) return;
  const auto at = static_cast<off_t>(begin), size = static_cast<off_t>(end - begin);
  (void)madvise(data_ + begin, end - begin, MADV_DONTNEED);
  (void)sync_file_range(fd_, at, size, SYNC_FILE_RANGE_WRITE);
  (void)posix_fadvise(fd_, at, size, POSIX_FADV_DONTNEED);
}

// The system would keep a second copy of it as long as nobody else asks for the memory.
void SwapFile::ForgetCached(size_t offset, size_t bytes) {
  const size_t page = SystemPageBytes();
  const size_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
  if (begin >= end) return;
  (void)madvise(data_ + begin, end - begin, MADV_DONTNEED);
  (void)posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                      POSIX_FADV_DONTNEED);
}

}  // namespace trireme::tensor
