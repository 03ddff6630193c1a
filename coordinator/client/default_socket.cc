#include "coordinator/client/default_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/base/durable.h"
#include "runtime/base/text.h"

namespace trireme::client {
namespace {

std::string Above(const std::string& path) { return path.substr(0, path.rfind('/')); }

// This process's user's, root's, or `third`'s.
bool IsOf(const struct stat& about, uid_t third) {
  return about.st_uid == geteuid() || about.st_uid == 0 || about.st_uid == third;
}

bool OthersMayWrite(const struct stat& about) { return (about.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

absl::Status OfAnother(const std::string& what, const struct stat& about, const std::string& fix) {
  return absl::PermissionDeniedError(base::Text(what, " belongs to user ", about.st_uid,
                                                ", so what listens there is not yours; ", fix));
}

absl::Status CheckFolder(const std::string& folder, uid_t third, const std::string& fix) {
  const std::string what = base::Text("the socket's folder ", folder);
  struct stat about {};
  // First of what stands there: a link of another's leads wherever he likes at any time.
  for (const auto look : {lstat, stat}) {
    if (look(folder.c_str(), &about) != 0) {
      return base::ErrnoStatus(errno, "cannot look at " + what);
    }
    if (!IsOf(about, third)) return OfAnother(what, about, fix);
  }
  if (!S_ISDIR(about.st_mode)) {
    return absl::PermissionDeniedError(base::Text(what, " is no folder; ", fix));
  }
  if (!OthersMayWrite(about) || (about.st_mode & S_ISVTX) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(base::Text(
      what, " of user ", about.st_uid,
      " may be written to by others, who could listen there: chmod go-w ", folder, ", or ", fix));
}

}  // namespace

std::string DefaultSocketPath() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return base::Text(runtime, "/trireme/triremed.sock");
  if (geteuid() == 0) return "/run/trireme/triremed.sock";
  return base::Text("/tmp/trireme-", geteuid(), "/triremed.sock");
}

absl::Status CheckSocketFolder(const std::string& folder, const std::string& fix) {
  return CheckFolder(folder, geteuid(), fix);
}

absl::Status CheckDefaultSocket() {
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
  const absl::Status checked = CheckFolder(folder, third, kFix);
  if (!checked.ok()) return absl::IsNotFound(checked) ? absl::OkStatus() : checked;
  if (lstat(socket.c_str(), &about) != 0 || IsOf(about, third)) return absl::OkStatus();
  return OfAnother("the socket " + socket, about, kFix);
}

std::string DefaultStateFolder() {
  if (geteuid() == 0) return "/var/lib/trireme";
  const char* home = std::getenv("HOME");
  return base::Text(home == nullptr ? "." : home, "/.local/state/trireme");
}

}  // namespace trireme::client
