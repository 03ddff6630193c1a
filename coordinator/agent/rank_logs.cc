#include "coordinator/agent/rank_logs.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::agent {
namespace {

constexpr int64_t kLookNs = 5'000'000'000;

}  // namespace

absl::StatusOr<bool> TrimRankLog(const std::string& path, int64_t keep_bytes) {
  struct stat before {};
  // The disk is asked for no more where there is nothing to do.
  if (lstat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode) &&
      before.st_size <= keep_bytes) {
    return false;
  }
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
      disks_({.name = "rank logs"}),
      thread_({.name = "rank logs",
               .between = [this](int64_t now_unix_ns) { return Look(now_unix_ns); }}) {}

void RankLogs::Watch(std::set<std::string> logs) {
  const absl::MutexLock lock(&mutex_);
  logs_ = std::move(logs);
}

int64_t RankLogs::Look(int64_t now_unix_ns) {
  std::set<std::string> logs;
  if (keep_bytes_ > 0) {
    const absl::MutexLock lock(&mutex_);
    logs = logs_;
  }
  for (const std::string& path : logs) {
    // What cannot be begun or does not answer is tried again by the next look.
    disks_
        .Begin(
            {path}, [path, keep = keep_bytes_] { return TrimRankLog(path, keep); },
            [told = told_](const absl::StatusOr<bool>& trimmed) {
              if (!absl::IsUnimplemented(trimmed.status()) || told->exchange(true)) return;
              spdlog::warn("logs of ranks have no bound: {}", base::MessageOf(trimmed.status()));
            })
        .IgnoreError();
  }
  return now_unix_ns + kLookNs;
}

}  // namespace trireme::agent
