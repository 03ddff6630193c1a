#include "checkpoint/client/unheld_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "checkpoint/format/snapshot.h"
#include "runtime/base/folder_names.h"

namespace trireme::checkpoint {
namespace {

// A plain file that nobody holds, locked; -1: it is held, or is no such file any more. `is_file`:
// whether it is one at all.
int TakeUnheld(const std::string& path, struct stat& about, bool& is_file) {
  is_file = false;
  const int fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  if (is_file && flock(fd, LOCK_EX | LOCK_NB) == 0 && IsNamed(fd, path)) return fd;
  close(fd);
  return -1;
}

}  // namespace

bool IsNamed(int fd, const std::string& path) {
  struct stat held {
  }, named{};
  return fstat(fd, &held) == 0 && lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

bool VisitUnheld(const base::PinnedFolder& folder,
                 const std::function<void(const std::string& path, const struct stat&)>& work) {
  bool all = true;
  base::VisitNames(folder.PathOf("."), [&](const std::string& name) {
    const std::string path = folder.PathOf(name);
    struct stat about {};
    bool is_file = false;
    const int fd = TakeUnheld(path, about, is_file);
    if (fd >= 0) work(path, about);
    all = all && (fd >= 0 || !is_file);
    if (fd >= 0) close(fd);
  }).IgnoreError();
  return all;
}

std::optional<HeldFiles> HeldFiles::TakeAll(const base::PinnedFolder& folder) {
  HeldFiles held(folder);
  bool all = true;
  base::VisitNames(folder.PathOf("."), [&](const std::string& name) {
    if (!all) return;
    struct stat about {};
    bool is_file = false;
    const int fd = TakeUnheld(folder.PathOf(name), about, is_file);
    all = fd >= 0 || !is_file;
    if (fd < 0) return;
    const auto written = std::chrono::seconds(about.st_mtim.tv_sec);
    held.files_.push_back({fd, name, static_cast<uint64_t>(about.st_size),
                           std::chrono::system_clock::time_point(written)});
  }).IgnoreError();
  if (!all) return std::nullopt;
  return held;
}

HeldFiles::~HeldFiles() {
  for (const Held& file : files_) close(file.fd);
}

uint64_t HeldFiles::bytes() const {
  uint64_t bytes = 0;
  for (const Held& file : files_) bytes += file.bytes;
  return bytes;
}

std::chrono::system_clock::time_point HeldFiles::written() const {
  std::chrono::system_clock::time_point newest;
  for (const Held& file : files_) newest = std::max(newest, file.written);
  return newest;
}

uint64_t HeldFiles::NewestStep() const {
  uint64_t newest = 0;
  for (const Held& file : files_) {
    alignas(8) std::array<std::byte, kSnapshotPageBytes> page;
    const auto read = [&](uint64_t at) {
      return pread(file.fd, page.data(), page.size(), static_cast<off_t>(at)) ==
             static_cast<ssize_t>(page.size());
    };
    if (!read(0)) continue;
    const auto shape = ParseSnapshotHeader(page, file.bytes);
    if (!shape.ok()) continue;
    for (uint32_t slot = 1; slot <= shape->slots && read(slot * kSnapshotPageBytes); ++slot) {
      const auto record = SnapshotSlotView(page).Staged();
      if (record) newest = std::max(newest, record->step);
    }
  }
  return newest;
}

bool HeldFiles::IsBegun() const {
  return std::any_of(files_.begin(), files_.end(), [](const Held& file) {
    std::array<char, 8> magic{};
    return pread(file.fd, magic.data(), magic.size(), 0) == static_cast<ssize_t>(magic.size()) &&
           magic == std::array<char, 8>{};
  });
}

bool HeldFiles::FreeAll(const std::function<bool()>& goes_on) {
  for (const Held& file : files_) {
    for (uint64_t at = 0; at < file.bytes; at += kPartBytes) {
      if (!goes_on()) return false;
      const uint64_t part = std::min(kPartBytes, file.bytes - at);
      // Where the system cannot, the memory goes with the name, all at once.
      if (fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                    static_cast<off_t>(part)) != 0 &&
          errno == EOPNOTSUPP) {
        break;
      }
    }
  }
  // A rank that has waited in vain may have put its own in a place of these.
  for (const Held& file : files_) {
    const std::string path = folder_.PathOf(file.name);
    if (IsNamed(file.fd, path)) unlink(path.c_str());
  }
  return true;
}

}  // namespace trireme::checkpoint
