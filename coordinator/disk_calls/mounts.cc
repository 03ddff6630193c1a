// Lines as proc(5) has them: "36 35 98:0 /root /folder options tags - type source options".
#include "coordinator/disk_calls/mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_split.h"
#include "runtime/base/whole_file.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kDevice = 2;
constexpr size_t kFolder = 4;
constexpr size_t kFirstTag = 6;

bool IsOctal(char c) { return c >= '0' && c <= '7'; }

// Blanks and the like are three octal digits after a backslash.
std::string Unescaped(absl::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    const bool escaped = word[i] == '\\' && i + 3 < word.size() && IsOctal(word[i + 1]) &&
                         IsOctal(word[i + 2]) && IsOctal(word[i + 3]);
    if (!escaped) {
      text += word[i];
      continue;
    }
    text +=
        static_cast<char>((word[i + 1] - '0') * 64 + (word[i + 2] - '0') * 8 + (word[i + 3] - '0'));
    i += 3;
  }
  return text;
}

bool IsBelow(const std::string& path, const std::string& folder) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::vector<Mount> ParseMounts(std::string_view text) {
  std::vector<Mount> mounts;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    size_t dash = kFirstTag;
    while (dash < words.size() && words[dash] != "-") ++dash;
    if (dash + 2 >= words.size()) continue;
    mounts.push_back({std::string(words[kDevice]), Unescaped(words[kFolder]),
                      std::string(words[dash + 1]), Unescaped(words[dash + 2])});
  }
  return mounts;
}

Mount MountIn(const std::vector<Mount>& mounts, const std::string& path) {
  const std::string plain = std::filesystem::path(path).lexically_normal().string();
  const Mount* found = nullptr;
  // Of several at one folder the last one hides the others.
  for (const Mount& mount : mounts) {
    const bool deeper = found == nullptr || mount.folder.size() >= found->folder.size();
    if (deeper && IsBelow(plain, mount.folder)) found = &mount;
  }
  return found == nullptr ? Mount{"", "/", "", ""} : *found;
}

MountTable::MountTable() : fd_(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)) {}

MountTable::~MountTable() {
  if (fd_ >= 0) close(fd_);
}

Mount MountTable::Of(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  pollfd changed{fd_, POLLPRI, 0};
  if (fd_ >= 0 && (poll(&changed, 1, 0) > 0 || !read_)) {
    if (const auto text = base::ReadWholeFile("/proc/self/mountinfo"); text.ok()) {
      read_ = true;
      mounts_ = ParseMounts(*text);
    }
  }
  return MountIn(mounts_, path);
}

}  // namespace trireme::coordinator
