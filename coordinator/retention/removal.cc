#include "coordinator/retention/removal.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"

namespace trireme::coordinator {
namespace {

const char* AdviceOf(int error) {
  switch (error) {
    case EACCES:
      return "let triremed's user read and write there (chown, chmod)";
    case EPERM:
      return "give it to triremed's user (chown), or take its immutable flag (chattr -i)";
    case EROFS:
      return "mount its file system writable";
    case EBUSY:
      return "unmount what is mounted there";
    case ENOTEMPTY:
      return "end what still writes there, or has a file open there";
    case ELOOP:
    case ENOTDIR:
      return "take away the link, or the file, that is in the place of a folder";
    default:
      return "look after its disk";
  }
}

}  // namespace

bool Removal::IsCut() const {
  return *options_.stopping || (spent_ >= options_.most_files && failed_ < options_.most_failed);
}

void Removal::Fail(const std::string& path, int error) {
  Fail(path, fmt::format("{}; {}, or remove it yourself", std::strerror(error), AdviceOf(error)));
}

// The names are the ranks' to choose.
void Removal::Fail(const std::string& path, const std::string& cause_and_advice) {
  ++failed_;
  if (!failure_.empty()) return;
  failure_ = fmt::format("{}: {}", absl::Utf8SafeCHexEscape(path), cause_and_advice);
}

bool Removal::RemoveEntries(const Folder& folder, const std::set<std::string>& kept) {
  // closedir closes its own.
  const int own = openat(folder.descriptor, ".", kFolderFlags);
  DIR* entries = own < 0 ? nullptr : fdopendir(own);
  if (entries == nullptr) {
    Fail(folder.path, errno);
    if (own >= 0) close(own);
    return false;
  }
  // One more than may be done with here, so that what is cut is not taken for all.
  const size_t most = options_.most_files + options_.most_failed + 1;
  std::vector<std::string> names;
  for (const dirent* one = readdir(entries); one != nullptr && names.size() < most;
       one = readdir(entries)) {
    const std::string name = one->d_name;
    if (name != "." && name != ".." && !kept.contains(name)) names.push_back(name);
  }
  closedir(entries);
  bool all = true;
  for (const std::string& name : names) {
    if (RemoveTree(folder, name)) continue;
    all = false;
    if (std::exchange(refused_, false)) break;
  }
  return all;
}

bool Removal::RemoveTree(const Folder& folder, const std::string& name) {
  refused_ = false;
  if (IsOver()) return false;
  const std::string path = folder.path + "/" + name;
  const int error = options_.unlink(folder.descriptor, name.c_str(), 0) == 0 ? 0 : errno;
  if (error == 0 || error == ENOENT) {
    ++spent_;
    return true;
  }
  // EPERM: of a folder, on some file systems.
  int inner = -1;
  if (error == EISDIR || error == EPERM) {
    inner = openat(folder.descriptor, name.c_str(), kFolderFlags);
  }
  if (inner < 0) {
    Fail(path, error == EISDIR ? errno : error);
    refused_ = error == EACCES || error == EROFS;
    return false;
  }
  bool empty = false;
  if (folder.depth >= kDeepest) {
    Fail(path, fmt::format("deeper than {} folders; remove it yourself", kDeepest));
  } else {
    empty = RemoveEntries({inner, path, folder.depth + 1}, {});
  }
  close(inner);
  return empty && RemoveOne(folder, name, AT_REMOVEDIR);
}

bool Removal::RemoveOne(const Folder& folder, const std::string& name, int flags) {
  if (options_.unlink(folder.descriptor, name.c_str(), flags) == 0) {
    ++spent_;
    return true;
  }
  Fail(folder.path + "/" + name, errno);
  return false;
}

}  // namespace trireme::coordinator
