// A file is made without a name, filled up to its header, and gets its name then: a death on the
// way leaves nothing.
#include "checkpoint/client/snapshot_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/client/unheld_files.h"
#include "runtime/base/durable.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 100;  // that are removed under a rank's hands

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// What a rank of this user has put there, or root: nobody else may look into it.
absl::StatusOr<base::PinnedFolder> OpenFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return base::ErrnoStatus(errno, absl::StrCat("cannot make the folder ", path));
  }
  ASSIGN_OR_RETURN(base::PinnedFolder folder, base::OpenOwnFolder(path));
  if ((folder.about().st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the folder ", path, " is open to others; chmod 700 ", path));
  }
  return folder;
}

bool IsFile(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

bool ReadsAs(int fd, uint64_t offset, std::span<std::byte> to) {
  return pread(fd, to.data(), to.size(), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(to.size());
}

// Whether it is one that a rank of this shape can go on in. It is locked.
bool IsOurs(int fd, const SnapshotShape& shape, const std::string& manifest) {
  struct stat about {};
  if (fstat(fd, &about) != 0 || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
    return false;
  }
  std::array<std::byte, kSnapshotPageBytes> header;
  if (!ReadsAs(fd, 0, header)) return false;
  const auto found = ParseSnapshotHeader(header, static_cast<uint64_t>(about.st_size));
  if (!found.ok() || *found != shape) return false;
  std::string text(manifest.size(), '\0');
  return ReadsAs(fd, PlacesOf(shape)->manifest, std::as_writable_bytes(std::span(text))) &&
         text == manifest;
}

// What is of a rank's name.
struct Named {
  enum Verdict { kAbsent, kOurs, kReplace };
  Verdict verdict = kAbsent;
  Descriptor file{-1};  // locked, if it is ours; none, if it is no file
};

absl::StatusOr<Named> OpenNamed(const std::string& path) {
  while (true) {
    Named named{.file =
                    Descriptor(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC))};
    const int error = named.file.get() < 0 ? errno : 0;
    if (error == ENOENT) return named;
    named.verdict = Named::kReplace;
    // A link, a folder, a FIFO that nobody reads: nobody's state.
    if (error == 0 || error == ELOOP || error == EISDIR || error == ENXIO) return named;
    // Without descriptors or memory the file may well be there, the only one of its state.
    if (error != EINTR) return base::ErrnoStatus(error, absl::StrCat("cannot open ", path));
  }
}

// Also one of another shape is waited for: its memory is free when whoever holds it has died.
absl::StatusOr<Named> Find(const std::string& path, const SnapshotFileOptions& options,
                           const SnapshotShape& shape, std::chrono::steady_clock::time_point end) {
  while (true) {
    ASSIGN_OR_RETURN(Named named, OpenNamed(path));
    const int fd = named.file.get();
    if (fd < 0 || !IsFile(fd)) return named;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      // Whoever held it may have been replaced meanwhile.
      if (IsNamed(fd, path)) {
        if (IsOurs(fd, shape, options.manifest)) named.verdict = Named::kOurs;
        return named;
      }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      return base::ErrnoStatus(errno, absl::StrCat("cannot lock ", path));
    }
    if (std::chrono::steady_clock::now() >= end) return named;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::Status NoRoom(const std::string& folder, uint64_t bytes, int error) {
  struct statvfs about {};
  const uint64_t unused =
      statvfs(folder.c_str(), &about) == 0 ? uint64_t{about.f_bavail} * about.f_frsize : 0;
  if (error != ENOSPC && error != EDQUOT && error != EFBIG && error != ENOMEM) {
    return base::ErrnoStatus(error, absl::StrCat("cannot take room in ", folder));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "snapshots of this rank take ", base::ReadableBytes(bytes), ", and ", folder, " has ",
      base::ReadableBytes(unused), " left (", std::strerror(error),
      "); give it more (mount -o remount,size=... /dev/shm; of a container --shm-size), or set ",
      "snapshots.every_step: false"));
}

absl::Status WriteAt(int fd, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::ErrnoStatus(errno, "cannot write a snapshot file's header");
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

// All of its memory, in parts: a signal in the middle of one takes that back alone.
absl::Status TakeRoom(int fd, uint64_t bytes, const std::string& root) {
  constexpr uint64_t kPart = uint64_t{64} << 20;
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t part = std::min(kPart, bytes - at);
    const int error = posix_fallocate(fd, static_cast<off_t>(at), static_cast<off_t>(part));
    if (error != 0 && error != EINTR) return NoRoom(root, bytes, error);
    if (error == 0) at += part;
  }
  return absl::OkStatus();
}

// A new one, locked, in place of `old`. AlreadyExists: another has named his own meanwhile.
absl::StatusOr<Descriptor> Make(const base::PinnedFolder& folder, const std::string& path,
                                const SnapshotFileOptions& options, const SnapshotShape& shape,
                                Named old) {
  const std::string name = folder.PathOf(SnapshotFileName(shape));
  const bool there = old.file.get() < 0 || IsNamed(old.file.get(), name);
  if (old.verdict == Named::kReplace && there && unlink(name.c_str()) != 0 && errno != ENOENT) {
    return base::ErrnoStatus(errno, absl::StrCat("cannot remove ", path));
  }
  // Before there is room for the new one, its memory is to be free.
  old = {};
  Descriptor file(open(folder.PathOf(".").c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0 || fchmod(file.get(), 0600) != 0) {
    return base::ErrnoStatus(errno, absl::StrCat("cannot make ", path));
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return base::ErrnoStatus(errno, absl::StrCat("cannot lock ", path));
  }
  ASSIGN_OR_RETURN(const SnapshotPlaces places, PlacesOf(shape));
  RETURN_IF_ERROR(TakeRoom(file.get(), places.file_bytes, options.root));
  std::array<std::byte, kSnapshotPageBytes> header;
  FormatSnapshotHeader(shape, header);
  RETURN_IF_ERROR(WriteAt(file.get(), places.manifest, std::as_bytes(std::span(options.manifest))));
  RETURN_IF_ERROR(WriteAt(file.get(), 0, header));
  const std::string made = absl::StrCat("/proc/self/fd/", file.get());
  if (linkat(AT_FDCWD, made.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return file;
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(
        absl::StrCat("two processes make ", path, " at once: is the run started twice?"));
  }
  return base::ErrnoStatus(errno, absl::StrCat("cannot name ", path));
}

}  // namespace

std::string SnapshotFileName(const SnapshotShape& shape) {
  return SnapshotNameBegin(shape.rank) + SnapshotNameEnd(shape.layout, shape.slots);
}

std::string SnapshotNameBegin(uint32_t rank) {
  char name[32];
  std::snprintf(name, sizeof(name), "rank-%05u-", rank);
  return name;
}

std::string SnapshotNameEnd(uint64_t layout, uint32_t slots) {
  char name[48];
  std::snprintf(name, sizeof(name), "%016llx-%u", static_cast<unsigned long long>(layout), slots);
  return name + std::string(kSnapshotFileEnding);
}

std::string SnapshotFolder(const std::string& root, const SnapshotKey& key) {
  return absl::StrCat(root, "/trireme-", geteuid(), "-", SnapshotKeyText(key));
}

absl::StatusOr<std::unique_ptr<SnapshotFile>> SnapshotFile::Open(
    const SnapshotFileOptions& options) {
  SnapshotShape shape = options.shape;
  shape.manifest_bytes = options.manifest.size();
  std::unique_ptr<SnapshotFile> file(new SnapshotFile);
  ASSIGN_OR_RETURN(file->places_, PlacesOf(shape));
  file->shape_ = shape;
  const std::string path = SnapshotFolder(options.root, shape.key);
  file->path_ = absl::StrCat(path, "/", SnapshotFileName(shape));
  const auto end = std::chrono::steady_clock::now() + options.lock_wait;
  // Whoever removes what is left there takes an empty folder away, also this one.
  for (int again = 0;; ++again) {
    const absl::Status opened = file->OpenIn(path, options, shape, end);
    if (!absl::IsNotFound(opened) || again == kMostFolders) {
      RETURN_IF_ERROR(opened);
      return file;
    }
  }
}

absl::Status SnapshotFile::OpenIn(const std::string& path, const SnapshotFileOptions& options,
                                  const SnapshotShape& shape,
                                  std::chrono::steady_clock::time_point end) {
  ASSIGN_OR_RETURN(const base::PinnedFolder folder, OpenFolder(path));
  while (true) {
    ASSIGN_OR_RETURN(Named named,
                     Find(folder.PathOf(SnapshotFileName(shape)), options, shape, end));
    found_ = named.verdict == Named::kOurs;
    if (found_) return MapAll(named.file.Release());
    absl::StatusOr<Descriptor> made = Make(folder, path_, options, shape, std::move(named));
    // Whoever was faster is waited for like any other.
    const bool again =
        absl::IsAlreadyExists(made.status()) && std::chrono::steady_clock::now() < end;
    if (again) continue;
    RETURN_IF_ERROR(made.status());
    return MapAll(made->Release());
  }
}

absl::Status SnapshotFile::MapAll(int fd) {
  RETURN_IF_ERROR(Map(fd, Access::kAll));
  // Where the system has neither, the memory is as good, only slower at first use. The pages are
  // there: no more is taken.
  const auto bytes = static_cast<size_t>(places_.file_bytes);
  madvise(base_, bytes, MADV_HUGEPAGE);
  madvise(base_, bytes, MADV_POPULATE_WRITE);
  return absl::OkStatus();
}

uint32_t SnapshotFile::NextSlot(uint32_t state) const {
  return checkpoint::NextSlot(slots(), state, pins());
}

absl::Status SnapshotFile::Begin(uint32_t slot, uint64_t version) {
  return SnapshotSlot(record_of(slot)).Begin(version);
}

absl::Status SnapshotFile::Stage(uint32_t slot, SnapshotRecord record,
                                 std::span<const uint64_t> sums) {
  const std::span<std::byte> table = sums_of(slot);
  if (sums.size_bytes() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slot of ", path_, " has ", pieces(), " pieces, not ", sums.size()));
  }
  // Not a byte of what another has written here since is changed.
  RETURN_IF_ERROR(SnapshotSlot(record_of(slot)).CheckWriting(record.version));
  std::memcpy(table.data(), sums.data(), table.size());
  record.sums_crc = checksum::Crc32c(std::as_bytes(sums));
  return SnapshotSlot(record_of(slot)).Stage(record);
}

void SnapshotFile::Clear(uint32_t slot) { SnapshotSlot(record_of(slot)).Clear(); }

// A rank of this layout that has just died holds its own no more, and leaves it to the next.
void SnapshotFile::RemoveOthers() const {
  const auto folder = base::OpenOwnFolder(fs::path(path_).parent_path());
  if (!folder.ok()) return;
  const std::string own = SnapshotNameEnd(shape_.layout, shape_.slots);
  VisitUnheld(*folder, [&](const std::string& file, const struct stat&) {
    if (file.ends_with(kSnapshotFileEnding) && !file.ends_with(own)) unlink(file.c_str());
  });
}

void SnapshotFile::Remove() {
  const std::string path = fs::path(path_).parent_path();
  if (IsNamed(fd_, path_)) unlink(path_.c_str());
  if (const auto folder = base::OpenOwnFolder(path); folder.ok()) {
    VisitUnheld(*folder, [](const std::string& file, const struct stat&) { unlink(file.c_str()); });
  }
  rmdir(path.c_str());
}

}  // namespace trireme::checkpoint
