// A call's context is made by the server that gets it: that is what ties the two.
#include "coordinator/control_api/local_servers.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <sys/resource.h>
#include <unistd.h>

namespace trireme::coordinator {
namespace {

constexpr size_t kMostLocalUsers = 1000;

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
  void Release(grpc::CallbackServerContext* context) override { delete context; }

 private:
  const Caller caller_;
};

// The lowest free number is given to each: who gets one so high finds half of them in use. The
// other half is for who administers the daemon, and for agents.
bool TooMany(int fd, const Caller& caller) {
  rlimit most{};
  return caller.role != Role::kAdmin && getrlimit(RLIMIT_NOFILE, &most) == 0 &&
         static_cast<rlim_t>(fd) >= most.rlim_cur / 2;
}

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

void LocalServers::Take(int fd, uid_t uid) {
  const std::optional<Caller> caller = access_.LocalCaller(uid);
  const absl::MutexLock lock(&mutex_);
  grpc::Server* server = !caller || TooMany(fd, *caller) ? nullptr : ServerOf(*caller);
  if (server == nullptr) {
    close(fd);
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

void LocalServers::Shutdown(std::chrono::system_clock::time_point deadline) {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [key, server] : servers_) server->Shutdown(deadline);
}

}  // namespace trireme::coordinator
