// Locks of SQLite end with whichever descriptor of its file is closed first: here only files are
// opened that no connection has open.
#include "coordinator/job_store/backup_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "coordinator/job_store/store_file.h"
#include "runtime/base/durable.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kPartBytes = 256 << 10;

absl::Status FileFault(const std::string& path, const char* what) {
  return base::DiskError(path, what, errno);
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // Some file systems tell of a failed write only here.
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

absl::StatusOr<size_t> ReadPart(int fd, const std::string& path, std::vector<char>& part) {
  while (true) {
    const ssize_t bytes = read(fd, part.data(), part.size());
    if (bytes >= 0) return static_cast<size_t>(bytes);
    if (errno != EINTR) return FileFault(path, "cannot be read");
  }
}

absl::Status WritePart(int fd, const std::string& path, std::span<const char> part) {
  while (!part.empty()) {
    const ssize_t written = write(fd, part.data(), part.size());
    if (written > 0) part = part.subspan(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) return FileFault(path, "cannot be written");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::MakeBeside(const std::string& path) {
  std::string name = path + ".XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return FileFault(path, "cannot be made");
  close(fd);
  return std::unique_ptr<ScratchFile>(new ScratchFile(name));
}

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::MakeAnew(const std::string& path) {
  RemoveScratch(path);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FileFault(path, "cannot be made");
  close(fd);
  return std::unique_ptr<ScratchFile>(new ScratchFile(path));
}

ScratchFile::~ScratchFile() { RemoveScratch(path_); }

void RemoveScratch(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-journal"}) unlink((path + suffix).c_str());
}

absl::Status CheckFree(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      base::Text(path, ": exists already, and a backup replaces nothing"));
}

absl::Status CheckRoom(const std::string& path, uint64_t bytes) {
  struct statvfs about {};
  if (statvfs(path.c_str(), &about) != 0) return FileFault(path, "cannot be looked at");
  const uint64_t room = uint64_t{about.f_bavail} * about.f_frsize;
  if (room / 2 >= bytes) return absl::OkStatus();
  return absl::UnavailableError(base::Text(
      path, ": its disk has ", base::ReadableBytes(room), " left, and a copy of ",
      base::ReadableBytes(bytes), " that is made there for a while has to leave as much to the ",
      "store; free space there, then try again"));
}

absl::Status CopyFlushed(const std::string& from, const std::string& to,
                         const BackupProgress& progress) {
  const Descriptor source(from, O_RDONLY);
  if (source.get() < 0) return FileFault(from, "cannot be opened");
  Descriptor target(to, O_WRONLY);
  if (target.get() < 0) return FileFault(to, "cannot be opened");
  struct stat about {};
  if (fstat(source.get(), &about) != 0) return FileFault(from, "cannot be looked at");
  std::vector<char> part(kPartBytes);
  uint64_t done = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t bytes, ReadPart(source.get(), from, part));
    if (bytes == 0) break;
    RETURN_IF_ERROR(WritePart(target.get(), to, std::span(part).first(bytes)));
    done += bytes;
    RETURN_IF_ERROR(progress(done, static_cast<uint64_t>(about.st_size)));
  }
  if (fsync(target.get()) != 0) return FileFault(to, "cannot be flushed");
  // So that who reads it next asks the disk; where this does nothing, memory.
  posix_fadvise(target.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (target.Close() != 0) return FileFault(to, "cannot be closed");
  return absl::OkStatus();
}

absl::StatusOr<BackupReport> InspectBackup(const std::string& path,
                                           std::span<const Migration> migrations) {
  BackupReport report;
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return FileFault(path, "cannot be looked at");
  report.bytes = static_cast<uint64_t>(about.st_size);
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> opened, OpenStoreFile(path, migrations));
  ASSIGN_OR_RETURN(const int64_t jobs, opened->Integer("SELECT count(*) FROM jobs"));
  ASSIGN_OR_RETURN(const int64_t events, opened->Integer("SELECT count(*) FROM events"));
  report.jobs = static_cast<uint64_t>(jobs);
  report.events = static_cast<uint64_t>(events);
  return report;
}

absl::Status Publish(const ScratchFile& file, const std::string& path) {
  // A link replaces nothing, and what it names is whole.
  if (link(file.path().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return CheckFree(path);
    return FileFault(path, "cannot be given to the finished backup");
  }
  const absl::Status flushed = base::SyncFolderOf(path);
  // One that is told as failed is not there.
  if (!flushed.ok()) unlink(path.c_str());
  return flushed;
}

}  // namespace trireme::coordinator
