#include "coordinator/keeper/join_doors.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "coordinator/launcher/join_attempt.h"
#include "coordinator/launcher/join_request.h"
#include "coordinator/launcher/joined_command.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/text.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

// An attempt has one daemon of mpirun on a node; who asks more often is up to no good.
constexpr int kMostJoins = 16;
// A helper waits for longer, so that it hears of it.
constexpr std::chrono::milliseconds kGroupLimit = launcher::kJoinLimit / 2;

std::string SessionFolderOf(const Seat& seat) { return fs::path(seat.socket).parent_path(); }

// Where it cannot be told, no daemon of ours would be started either.
bool IsOurUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace

class JoinDoor {
 public:
  explicit JoinDoor(std::string session_folder)
      : session_folder_(std::move(session_folder)), path_(launcher::JoinSocket(session_folder_)) {}
  ~JoinDoor() {
    for (const Waiting& waiting : waiting_) close(waiting.fd);
    if (fd_ < 0) return;
    if (IsOurs()) unlink(path_.c_str());
    close(fd_);
  }
  JoinDoor(const JoinDoor&) = delete;
  JoinDoor& operator=(const JoinDoor&) = delete;

  // Without a folder nobody can come yet.
  absl::Status Listen() {
    if (fd_ >= 0 && IsThere()) return absl::OkStatus();
    if (fd_ >= 0) close(std::exchange(fd_, -1));
    const absl::Status own = base::OpenOwnFolder(session_folder_).status();
    if (!own.ok()) return absl::IsNotFound(own) ? absl::OkStatus() : own;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof address.sun_path) {
      return absl::InvalidArgumentError(base::Text("the socket path ", path_, " is too long"));
    }
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    unlink(path_.c_str());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        lstat(path_.c_str(), &about_) != 0 || listen(fd, kMostJoins) != 0) {
      const int error = errno;
      if (fd >= 0) close(fd);
      return absl::ErrnoToStatus(error, "cannot listen for mpirun's daemon at " + path_);
    }
    fd_ = fd;
    return absl::OkStatus();
  }

  void Answer(const Seat& seat) {
    const int64_t now_ms = launcher::JoinClockMs();
    int fd = -1;
    while (fd_ >= 0 && (fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      if (IsOurUser(fd) && ++joins_ <= kMostJoins) {
        waiting_.push_back({fd, now_ms + kGroupLimit.count()});
      } else {
        close(fd);
      }
    }
    const auto answered = [&](const Waiting& waiting) {
      if (!Answer(seat, waiting, now_ms)) return false;
      close(waiting.fd);
      return true;
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), answered), waiting_.end());
  }

  bool complained = false;

 private:
  struct Waiting {
    int fd;
    int64_t until_ms;
  };

  // Also another agent's, which is a node of its own on this machine: then that one answers.
  bool IsThere() const {
    struct stat about {};
    return lstat(path_.c_str(), &about) == 0 && S_ISSOCK(about.st_mode);
  }
  bool IsOurs() const {
    struct stat about {};
    return lstat(path_.c_str(), &about) == 0 && about.st_ino == about_.st_ino &&
           about.st_dev == about_.st_dev;
  }

  // False: the attempt's turn has not made the group yet.
  static bool Answer(const Seat& seat, const Waiting& waiting, int64_t now_ms) {
    const auto say = [&](char word) {
      // One byte into a new connection: nothing to wait for. The time is not now_ms any more.
      launcher::SendByte(waiting.fd, word, launcher::JoinClockMs() + 100).IgnoreError();
      return true;
    };
    if (!seat.wanted) return say(launcher::kJoinRefused);
    if (seat.control_group.empty()) return say(launcher::kJoinNone);
    if (access(seat.control_group.c_str(), F_OK) == 0) {
      const absl::Status served = launcher::ServeJoin(waiting.fd, seat.control_group);
      return served.ok() || say(launcher::kJoinNone);
    }
    return now_ms >= waiting.until_ms && say(launcher::kJoinNone);
  }

  const std::string session_folder_;
  const std::string path_;
  int fd_ = -1;
  struct stat about_ {};  // of the socket's file
  int joins_ = 0;
  std::vector<Waiting> waiting_;
};

JoinDoors::JoinDoors() = default;
JoinDoors::~JoinDoors() = default;

absl::Status JoinDoors::Serve(const std::vector<Seat>& seats) {
  absl::Status failure;
  std::map<std::string, std::unique_ptr<JoinDoor>> doors;
  for (const Seat& seat : seats) {
    if (seat.launches || seat.ranks_here == 0) continue;
    auto known = doors_.extract(seat.socket);
    std::unique_ptr<JoinDoor>& door = doors[seat.socket];
    door = known.empty() ? std::make_unique<JoinDoor>(SessionFolderOf(seat))
                         : std::move(known.mapped());
    const absl::Status listens = door->Listen();
    if (!listens.ok() && !std::exchange(door->complained, true)) failure.Update(listens);
    door->Answer(seat);
  }
  doors_ = std::move(doors);
  return failure;
}

}  // namespace trireme::keeper
