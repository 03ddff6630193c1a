// A call's context is made by the server that gets it: that is what ties the two.
#include "coordinator/control_api/local_servers.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <vector>

#include "coordinator/control_api/connection_gate.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostLocalUsers = 1000;
constexpr const char* kUserDatabase = "/etc/passwd";

class LocalContext : public grpc::CallbackServerContext {
 public:
  explicit LocalContext(const Caller& caller) : caller(caller) {}
  const Caller& caller;  // of its server, which outlives its calls
};

class LocalContexts : public grpc::ContextAllocator {
 public:
  explicit LocalContexts(Caller caller) : caller_(std::move(caller)) {}
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new LocalContext(caller_);
  }
  // That of a call to a method that nobody has is gRPC's own, and no allocation.
  void Release(grpc::CallbackServerContext* context) override {
    delete dynamic_cast<LocalContext*>(context);
  }

 private:
  const Caller caller_;
};

// gRPC has reflection as a blocking service alone, of which each stream takes a thread: it is for
// those who may take all of the daemon anyway.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

}  // namespace

void SayHealthy(grpc::Server& server) {
  for (const char* service : {"trireme.v1.Control", "trireme.v1.AgentLink"}) {
    server.GetHealthCheckService()->SetServingStatus(service, true);
  }
}

const Caller* LocalCallerOf(const grpc::CallbackServerContext& context) {
  const auto* local = dynamic_cast<const LocalContext*>(&context);
  return local == nullptr ? nullptr : &local->caller;
}

LocalServers::LocalServers(const Access& access, std::function<void(grpc::ServerBuilder&)> prepare)
    : access_(access), prepare_(std::move(prepare)) {
  for (const uid_t uid : {uid_t{0}, geteuid()}) {
    if (auto caller = access.LocalCaller(uid)) privileged_[uid] = *std::move(caller);
  }
}

void LocalServers::Take(int fd, uid_t uid) {
  if (const auto found = privileged_.find(uid); found != privileged_.end()) {
    return Serve(fd, found->second);
  }
  const absl::Status begun = names_.Begin(
      {kUserDatabase, std::to_string(uid)},
      [access = access_, uid]() -> absl::StatusOr<Caller> {
        std::optional<Caller> caller = access.LocalCaller(uid);
        if (caller) return *std::move(caller);
        return absl::NotFoundError("the machine has no name for this user");
      },
      [this, fd](absl::StatusOr<Caller> caller) {
        caller.ok() ? Serve(fd, *caller) : EndConnection(fd);
      });
  if (!begun.ok()) EndConnection(fd);
}

void LocalServers::Serve(int fd, const Caller& caller) {
  const absl::MutexLock lock(&mutex_);
  grpc::Server* server = ServerOf(caller);
  if (server == nullptr) {
    EndConnection(fd);
  } else {
    grpc::AddInsecureChannelFromFd(server, fd);
  }
}

grpc::Server* LocalServers::ServerOf(const Caller& caller) {
  const Key key{caller.role, caller.user};
  if (const auto found = servers_.find(key); found != servers_.end()) return found->second.get();
  if (servers_.size() >= kMostLocalUsers && caller.role != Role::kAdmin) return nullptr;
  grpc::ServerBuilder builder;
  prepare_(builder);
  if (caller.role != Role::kAdmin) builder.SetOption(std::make_unique<WithoutReflection>());
  builder.SetContextAllocator(std::make_unique<LocalContexts>(caller));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return nullptr;
  SayHealthy(*server);
  return (servers_[key] = std::move(server)).get();
}

void LocalServers::EndHealth() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [key, server] : servers_) {
    server->GetHealthCheckService()->SetServingStatus(false);
  }
}

void LocalServers::Shutdown(std::chrono::steady_clock::time_point deadline) {
  names_.Stop();
  const absl::MutexLock lock(&mutex_);
  for (const auto& [key, server] : servers_) server->Shutdown(base::TimeOfDayAt(deadline));
}

}  // namespace trireme::coordinator
