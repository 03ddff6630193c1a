#include "coordinator/agent/rank_logs.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::agent {
namespace {

constexpr int64_t kLookNs = 2'000'000'000;

}  // namespace

absl::StatusOr<bool> TrimRankLog(const std::string& path, int64_t keep_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open " + path);
  struct stat about {};
  const bool plain = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const int64_t end = (about.st_size - keep_bytes) / kRankLogPieceBytes * kRankLogPieceBytes;
  int error = 0;
  bool gone = false;
  if (plain && about.st_size > keep_bytes && end > kRankLogPieceBytes) {
    // Nothing to do where it is a hole already.
    const off_t data = lseek(fd, kRankLogPieceBytes, SEEK_DATA);
    gone = data >= 0 && data < end;
    if (gone && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kRankLogPieceBytes,
                          end - kRankLogPieceBytes) != 0) {
      error = errno;
    }
  }
  close(fd);
  if (error == EOPNOTSUPP || error == ENOSYS) {
    return absl::UnimplementedError(base::Text("the file system of ", path, " gives no part of a ",
                                               "file back; watch its size, or move run folders"));
  }
  if (error != 0) return absl::ErrnoToStatus(error, "cannot bound " + path);
  return gone;
}

RankLogs::RankLogs(int64_t keep_bytes)
    : keep_bytes_(keep_bytes),
      thread_({.name = "rank logs",
               .between = [this](int64_t now_unix_ns) { return Look(now_unix_ns); }}) {}

void RankLogs::Watch(std::set<std::string> folders) {
  const std::lock_guard<std::mutex> lock(mutex_);
  folders_ = std::move(folders);
}

int64_t RankLogs::Look(int64_t now_unix_ns) {
  std::set<std::string> folders;
  if (keep_bytes_ > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    folders = folders_;
  }
  for (const std::string& folder : folders) {
    base::VisitNames(folder, [&](const std::string& name) {
      if (!name.ends_with(".log")) return;
      const absl::StatusOr<bool> trimmed = TrimRankLog(folder + "/" + name, keep_bytes_);
      if (absl::IsUnimplemented(trimmed.status()) && !std::exchange(told_, true)) {
        spdlog::warn("logs of ranks have no bound: {}", base::MessageOf(trimmed.status()));
      }
    }).IgnoreError();
  }
  return now_unix_ns + kLookNs;
}

}  // namespace trireme::agent
