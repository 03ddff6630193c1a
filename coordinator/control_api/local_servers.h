// Who is at the other end of the unix socket: gRPC tells a call neither its connection nor who has
// opened that. So each local user has a server of its own, which gets his connections alone and
// whose calls carry his name from the moment they are made.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/access.h"
#include "coordinator/disk_calls/disk_calls.h"

namespace trireme::coordinator {

// To those who ask for its health, also by the names of its services, as probes do; all end with
// it.
void SayHealthy(grpc::Server& server);

// Whom the call's server belongs to; null: not to a local user.
const Caller* LocalCallerOf(const grpc::CallbackServerContext& context);

// Threads: any, but the ends from one.
class LocalServers {
 public:
  // `prepare` gives a builder all that every server of the daemon has. `access` outlives it.
  // Looks up root and the daemon's own user in the machine's user database, which may block.
  LocalServers(const Access& access, std::function<void(grpc::ServerBuilder&)> prepare);

  // Takes `fd`, a connection that `uid` has opened. Does not block: whom it does not know yet it
  // looks up on other threads, and closes the connection when that takes long.
  void Take(int fd, uid_t uid);
  // Health says that no more calls are wanted.
  void EndHealth();
  // Waits for handlers until then; nothing may be taken from then on.
  void Shutdown(std::chrono::steady_clock::time_point deadline);

 private:
  using Key = std::pair<Role, std::string>;
  void Serve(int fd, const Caller& caller);
  grpc::Server* ServerOf(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Access& access_;
  std::map<uid_t, Caller> privileged_;
  const std::function<void(grpc::ServerBuilder&)> prepare_;
  absl::Mutex mutex_;
  // As many as there are users of this machine whom the socket lets in.
  std::map<Key, std::unique_ptr<grpc::Server>> servers_ ABSL_GUARDED_BY(mutex_);
  DiskCalls names_{{.name = "user names"}};  // the user database may be a file or a server
};

}  // namespace trireme::coordinator
