#include "coordinator/client/default_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/base/durable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::client {
namespace {

std::string Above(const std::string& path) { return path.substr(0, path.rfind('/')); }

// This process's user's, root's, or `third`'s.
bool IsOf(const struct stat& about, uid_t third) {
  return about.st_uid == geteuid() || about.st_uid == 0 || about.st_uid == third;
}

bool OthersMayWrite(const struct stat& about) { return (about.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

std::string NameOf(const std::string& folder) { return "the socket's folder " + folder; }

absl::Status OfAnother(const std::string& what, const struct stat& about, const std::string& fix) {
  return absl::PermissionDeniedError(base::Text(what, " belongs to user ", about.st_uid,
                                                ", so what listens there is not yours; ", fix));
}

// What stands there is `third`'s at most.
absl::StatusOr<base::PinnedFolder> OpenFolder(const std::string& folder, uid_t third,
                                              const std::string& fix) {
  const std::string what = NameOf(folder);
  struct stat name {};
  if (lstat(folder.c_str(), &name) != 0) return base::ErrnoStatus(errno, "cannot look at " + what);
  // Before where it leads: a link of another's leads wherever he likes at any time.
  if (!IsOf(name, third)) return OfAnother(what, name, fix);
  auto opened = base::PinnedFolder::Open(folder, base::Links::kFollow);
  struct stat other {};
  if (!opened.ok() && stat(folder.c_str(), &other) == 0 && !S_ISDIR(other.st_mode)) {
    return absl::PermissionDeniedError(base::Text(what, " is no folder; ", fix));
  }
  RETURN_IF_ERROR(opened.status());
  if (S_ISLNK(name.st_mode) && name.st_uid == 0 && !IsOf(opened->about(), third)) {
    return absl::PermissionDeniedError(base::Text(
        what, " is a link of root's to one of user ", opened->about().st_uid,
        ", as systemd makes it for DynamicUser=, and is followed only where it is named; ", fix));
  }
  if (!IsOf(opened->about(), third)) return OfAnother(what, opened->about(), fix);
  return opened;
}

absl::Status OthersWrite(const std::string& folder, const struct stat& about,
                         const std::string& fix) {
  return absl::PermissionDeniedError(base::Text(
      NameOf(folder), " of user ", about.st_uid,
      " may be written to by others, who could listen there: chmod go-w ", folder, ", or ", fix));
}

}  // namespace

std::string DefaultSocketPath() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string folder = base::Text("/tmp/trireme-", geteuid());
  if (geteuid() == 0) folder = "/run/trireme";
  if (runtime != nullptr && *runtime == '/') folder = base::Text(runtime, "/trireme");
  return base::Text(folder, '/', kDefaultSocketName);
}

absl::Status CheckSocketFolder(const std::string& folder, const std::string& fix) {
  ASSIGN_OR_RETURN(const base::PinnedFolder opened, OpenFolder(folder, geteuid(), fix));
  const struct stat& about = opened.about();
  const bool sticky = (about.st_mode & S_ISVTX) != 0;
  return OthersMayWrite(about) && !sticky ? OthersWrite(folder, about, fix) : absl::OkStatus();
}

absl::StatusOr<base::PinnedFolder> OpenDefaultFolder() {
  constexpr const char* kFix =
      "say where the coordinator is by --coordinator ADDRESS, or have root remove it";
  const std::string socket = DefaultSocketPath(), folder = Above(socket);
  uid_t third = geteuid();
  struct stat about {};
  const bool above = stat(Above(folder).c_str(), &about) == 0;
  const bool given = above && IsOf(about, geteuid()) && !OthersMayWrite(about);
  // As below /tmp: whoever makes it first has it.
  if (above && !given) mkdir(folder.c_str(), 0700);
  if (given && lstat(folder.c_str(), &about) == 0) third = about.st_uid;
  auto opened = OpenFolder(folder, third, kFix);
  if (absl::IsNotFound(opened.status())) return base::PinnedFolder();
  RETURN_IF_ERROR(opened.status());
  // Nor where it is sticky: between a look and a dial a socket may end, and another's begin.
  if (OthersMayWrite(opened->about())) return OthersWrite(folder, opened->about(), kFix);
  if (lstat(opened->PathOf(kDefaultSocketName).c_str(), &about) != 0 || IsOf(about, third))
    return opened;
  return OfAnother("the socket " + socket, about, kFix);
}

std::string DefaultStateFolder() {
  if (geteuid() == 0) return "/var/lib/trireme";
  const char* home = std::getenv("HOME");
  return base::Text(home == nullptr ? "." : home, "/.local/state/trireme");
}

}  // namespace trireme::client
