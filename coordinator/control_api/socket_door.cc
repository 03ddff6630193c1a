// gRPC's own listener does not tell who has connected; so connections are taken in here, and given
// to it by their descriptors.
#include "coordinator/control_api/socket_door.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/client/default_socket.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr int kSocketBacklog = 128;
constexpr size_t kMostGroupBytes = size_t{1} << 20;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        fmt::format("the socket path {} has {} characters, at most {} are possible", path,
                    path.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<gid_t> GroupOf(const std::string& name) {
  std::vector<char> buffer(4096);
  group entry{};
  group* found = nullptr;
  int error = 0;
  while ((error = getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
             ERANGE &&
         buffer.size() < kMostGroupBytes) {
    buffer.resize(2 * buffer.size());
  }
  if (found != nullptr) return found->gr_gid;
  return absl::InvalidArgumentError(fmt::format(
      "--socket-group {}: this machine knows no such group{}{}; name one of getent group", name,
      error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error)));
}

absl::Status GiveToGroup(const std::string& path, const std::string& name, gid_t group,
                         mode_t mode) {
  if (chown(path.c_str(), static_cast<uid_t>(-1), group) == 0 && chmod(path.c_str(), mode) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("--socket-group {}: cannot give {} to that group: {}; the daemon's user must be "
                  "root or a member of it (under systemd SupplementaryGroups={})",
                  name, path, std::strerror(errno), name));
}

// Each folder on the way must be passable.
absl::Status CheckPassable(const std::string& folder, const std::string& name, gid_t group) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::weakly_canonical(folder, error);
  while (!error && !at.empty()) {
    struct stat about {};
    const bool seen = stat(at.c_str(), &about) == 0;
    const mode_t needed = about.st_gid == group ? S_IXGRP : S_IXOTH;
    if (seen && (about.st_mode & needed) == 0) {
      return absl::FailedPreconditionError(
          fmt::format("--socket-group {0}: its members cannot pass the folder {1}; chgrp {0} {1} "
                      "and chmod g+x {1}, or choose another path by --socket",
                      name, at.string()));
    }
    if (at == at.root_path()) break;
    at = at.parent_path();
  }
  return absl::OkStatus();
}

absl::Status PrepareFolder(const std::string& path, const std::string& name,
                           std::optional<gid_t> group) {
  std::error_code error;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const bool made = std::filesystem::create_directories(folder, error);
  if (made) chmod(folder.c_str(), 0700);
  if (made && group) RETURN_IF_ERROR(GiveToGroup(folder, name, *group, 0710));
  // In /tmp anybody could have made it first.
  RETURN_IF_ERROR(client::CheckSocketFolder(folder, "choose another by --socket"));
  return group ? CheckPassable(folder, name, *group) : absl::OkStatus();
}

// A socket that nobody listens to is removed; one that somebody does is an error.
absl::Status MakeWay(const std::string& path, const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listening = probe >= 0 && connect(probe, reinterpret_cast<const sockaddr*>(&address),
                                               sizeof address) == 0;
  if (probe >= 0) close(probe);
  if (listening) {
    return absl::AlreadyExistsError(fmt::format("a daemon listens at {} already", path));
  }
  struct stat before {};
  if (lstat(path.c_str(), &before) == 0 && !S_ISSOCK(before.st_mode)) {
    return absl::AlreadyExistsError(
        fmt::format("{} is there already and no socket; choose another path by --socket", path));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

// Nobody can connect before it listens, and then its mode stands.
absl::Status ListenAt(int fd, const SocketOptions& options, const sockaddr_un& address,
                      std::optional<gid_t> group) {
  // The socket's own mode is that of its file: so the file has it from the first, and the umask,
  // which all threads share, stays.
  if (fchmod(fd, 0600) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::UnavailableError(
        fmt::format("cannot listen at {}: {}", options.path, std::strerror(errno)));
  }
  if (group) RETURN_IF_ERROR(GiveToGroup(options.path, options.group, *group, 0660));
  if (listen(fd, kSocketBacklog) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("cannot listen at {}: {}", options.path, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketDoor>> SocketDoor::Open(const SocketOptions& options,
                                                             const Take& take) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(options.path));
  std::optional<gid_t> group;
  if (!options.group.empty()) {
    ASSIGN_OR_RETURN(group, GroupOf(options.group));
  }
  RETURN_IF_ERROR(PrepareFolder(options.path, options.group, group));
  RETURN_IF_ERROR(MakeWay(options.path, address));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  absl::Status listens = fd >= 0 ? ListenAt(fd, options, address, group)
                                 : absl::ErrnoToStatus(errno, "cannot make the daemon's socket");
  if (!listens.ok()) {
    if (fd >= 0) close(fd);
    return listens;
  }
  return std::unique_ptr<SocketDoor>(new SocketDoor(options.path, fd, take));
}

SocketDoor::SocketDoor(std::string path, int fd, const Take& take) : path_(std::move(path)) {
  thread_.emplace("socket door", fd, [take](int connection) {
    ucred who{};
    socklen_t size = sizeof who;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0) {
      take(connection, who.uid);
    } else {
      close(connection);
    }
  });
}

SocketDoor::~SocketDoor() {
  // While nobody else can listen there.
  unlink(path_.c_str());
  thread_.reset();
}

}  // namespace trireme::coordinator
