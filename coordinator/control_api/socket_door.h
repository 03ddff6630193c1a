// The daemon's unix socket: whom its mode lets in, and whom the kernel names as the one who has
// opened each connection.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/process/accept_thread.h"

namespace trireme::coordinator {

struct SocketOptions {
  std::string path;
  // Whose members may open it beside the daemon's own user and root: mode 0660; empty: 0600.
  std::string group;
};

class SocketDoor {
 public:
  // `take` gets each connection, whose descriptor is then its own and does not block, and the user
  // that connected, by SO_PEERCRED; on the door's thread.
  using Take = std::function<void(int fd, uid_t uid)>;

  // AlreadyExists: somebody listens there, or it is another kind of file; PermissionDenied:
  // the folder is somebody else's; FailedPrecondition: the group cannot be let in. Each says what
  // to change.
  static absl::StatusOr<std::unique_ptr<SocketDoor>> Open(const SocketOptions& options,
                                                          const Take& take);
  // Takes in nobody any more and removes the socket.
  ~SocketDoor();
  SocketDoor(const SocketDoor&) = delete;
  SocketDoor& operator=(const SocketDoor&) = delete;

 private:
  SocketDoor(std::string path, int fd, const Take& take);

  const std::string path_;
  std::optional<AcceptThread> thread_;
};

}  // namespace trireme::coordinator
