#include "checkpoint/client/snapshot_reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/unheld_files.h"
#include "runtime/base/check.h"
#include "runtime/base/durable.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/status_macros.h"

namespace trireme::checkpoint {
namespace {

struct Closing {
  ~Closing() {
    if (fd >= 0) close(fd);
  }
  int fd = -1;
};

absl::StatusOr<SnapshotShape> ShapeOf(int fd, const std::string& path) {
  struct stat about {};
  if (fstat(fd, &about) != 0) return base::ErrnoStatus(errno, absl::StrCat("cannot read ", path));
  if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is no file of this user's alone (mode 0600)"));
  }
  std::array<std::byte, kSnapshotPageBytes> header;
  if (pread(fd, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) {
    return absl::DataLossError(absl::StrCat(path, ": it is shorter than its header"));
  }
  auto shape = ParseSnapshotHeader(header, static_cast<uint64_t>(about.st_size));
  if (shape.ok()) return shape;
  return absl::Status(shape.status().code(), absl::StrCat(path, ": ", shape.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& path) {
  const std::filesystem::path at(path);
  ASSIGN_OR_RETURN(const base::PinnedFolder folder, base::OpenOwnFolder(at.parent_path()));
  Closing file{
      open(folder.PathOf(at.filename()).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) return base::ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader);
  reader->path_ = path;
  ASSIGN_OR_RETURN(reader->shape_, ShapeOf(file.fd, path));
  ASSIGN_OR_RETURN(reader->places_, PlacesOf(reader->shape_));
  RETURN_IF_ERROR(reader->Map(std::exchange(file.fd, -1), Access::kRead));
  return reader;
}

bool SnapshotReader::IsUnheld() const {
  if (flock(fd_, LOCK_SH | LOCK_NB) != 0) return false;
  flock(fd_, LOCK_UN);
  return true;
}

bool SnapshotReader::IsNamed() const { return checkpoint::IsNamed(fd_, path_); }

std::string SnapshotReader::manifest() const {
  return {reinterpret_cast<const char*>(base_ + places_.manifest),
          static_cast<size_t>(shape_.manifest_bytes)};
}

bool SnapshotReader::Pin(uint32_t pin, uint64_t version) {
  TRIREME_CHECK(pin < PinsThatCount(shape_.slots));
  SetPin(page(places_.pins), pin, version);
  const std::vector<SlotState> now = slots();
  return std::all_of(now.begin(), now.end(),
                     [&](const SlotState& slot) { return slot.version <= version; });
}

std::optional<uint32_t> SnapshotReader::SlotOf(uint64_t version) const {
  for (uint32_t slot = 0; slot < shape_.slots; ++slot) {
    const auto record = Staged(slot);
    if (record.has_value() && record->version == version) return slot;
  }
  return std::nullopt;
}

}  // namespace trireme::checkpoint
