// One name a line; a line without its end was cut off and is none.
#include "runtime/recorder/save_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/durable.h"
#include "runtime/base/real_path.h"
#include "runtime/base/utf8.h"

namespace trireme::recorder {
namespace {

constexpr char kFailed = '!';          // begins no name
constexpr off_t kMostBytes = 1 << 13;  // of the end: hundreds of names

// 0, or errno.
int Append(int fd, const std::string& line) {
  struct stat about {};
  if (fstat(fd, &about) != 0) return errno;
  const ssize_t written = pwrite(fd, line.data(), line.size(), about.st_size);
  if (written == static_cast<ssize_t>(line.size())) return fsync(fd) == 0 ? 0 : errno;
  const int error = written < 0 ? errno : ENOSPC;
  // The next name is not to stand behind a part of this one.
  (void)!ftruncate(fd, about.st_size);
  return error;
}

std::string TailOf(const std::string& path) {
  const int fd = base::OpenToRead(path, base::Links::kFollow);
  if (fd < 0) return "";
  struct stat about {};
  std::string text;
  if (fstat(fd, &about) == 0) {
    text.resize(static_cast<size_t>(std::min(about.st_size, kMostBytes)));
    const ssize_t got =
        pread(fd, text.data(), text.size(), about.st_size - static_cast<off_t>(text.size()));
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    // It may begin inside a name.
    if (about.st_size > kMostBytes) text.erase(0, text.find('\n'));
  }
  close(fd);
  return text;
}

}  // namespace

std::string SaveLogPath(const std::string& recorder_folder) { return recorder_folder + "/saves"; }

absl::Status ForgetSaves(const std::string& path) {
  if (unlink(path.c_str()) == 0) return base::SyncFolderOf(path);
  return errno == ENOENT ? absl::OkStatus() : base::DiskError(path, "cannot be removed", errno);
}

absl::Status NoteSave(const std::string& path, const std::string& name) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return base::DiskError(path, "cannot be opened", errno);
  const int error = Append(fd, name + "\n");
  close(fd);
  if (error != 0) return base::DiskError(path, "cannot be written", error);
  return base::SyncFolderOf(path);
}

absl::Status NoteFailedSave(const std::string& path, const std::string& why) {
  return NoteSave(path, kFailed + base::ShowableLine(why, kMostFailedBytes));
}

std::string FailedSaveOf(const std::string& line) {
  return line.empty() || line[0] != kFailed ? "" : line.substr(1);
}

std::vector<std::string> ReadSaves(const std::string& path) {
  const std::string text = TailOf(path);
  std::vector<std::string> names;
  for (size_t end = text.rfind('\n'); end != std::string::npos && end > 0;) {
    const size_t before = text.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    if (end > begin) names.push_back(text.substr(begin, end - begin));
    end = before;
  }
  return names;
}

}  // namespace trireme::recorder
