// gRPC cannot add a listener to a server that runs, so each attempt has a server of its own.
#include "coordinator/keeper/worker_links.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <tuple>

#include "coordinator/keeper/attempt_service.h"
#include "runtime/base/pinned_folder.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

constexpr int kMostBytes = 64 << 10;  // of a message of a rank

bool IsSocket(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 && S_ISSOCK(about.st_mode);
}

}  // namespace

class Listener {
 public:
  Listener(const Seat& seat, coordinator::DiskCalls& disks)
      : service_(seat, disks), path_(seat.socket) {}
  ~Listener() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // False: somebody has removed the socket.
  bool intact() const { return !server_ || IsSocket(path_); }

  // Nobody else listens there: the folder is this keeper's, or it is an error. Without a folder
  // nobody dials yet.
  absl::Status Listen() {
    if (server_) return absl::OkStatus();
    const absl::Status own = base::OpenOwnFolder(fs::path(path_).parent_path()).status();
    if (!own.ok()) return absl::IsNotFound(own) ? absl::OkStatus() : own;
    if (path_.size() >= sizeof(sockaddr_un::sun_path)) {
      return absl::InvalidArgumentError(fmt::format("the socket path {} is too long", path_));
    }
    if (IsSocket(path_)) unlink(path_.c_str());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMostBytes);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    // The folder lets nobody else in.
    if (server_ && chmod(path_.c_str(), 0600) == 0) return absl::OkStatus();
    server_.reset();
    return absl::UnavailableError(fmt::format("cannot listen for ranks at {}", path_));
  }

  AttemptService& service() { return service_; }
  const AttemptService& service() const { return service_; }
  bool complained = false;

 private:
  AttemptService service_;
  const std::string path_;
  std::unique_ptr<grpc::Server> server_;
};

WorkerLinks::WorkerLinks() = default;
WorkerLinks::~WorkerLinks() = default;

absl::Status WorkerLinks::Serve(const std::vector<Seat>& seats) {
  absl::Status failure;
  std::map<std::string, std::unique_ptr<Listener>> listeners;
  for (const Seat& seat : seats) {
    auto known = listeners_.extract(seat.socket);
    std::unique_ptr<Listener>& listener = listeners[seat.socket];
    if (!known.empty() && known.mapped()->intact()) listener = std::move(known.mapped());
    // Before another one is made: with its end it removes its socket.
    if (!known.empty()) known.mapped().reset();
    if (!listener) listener = std::make_unique<Listener>(seat, disks_);
    if (!(listener->service().seat() == seat)) listener->service().SetSeat(seat);
    const absl::Status status = listener->Listen();
    if (status.ok() || listener->complained) continue;
    listener->complained = true;
    failure.Update(status);
  }
  listeners_ = std::move(listeners);
  return failure;
}

void WorkerLinks::Freshen(v1::NodeReport& report) const {
  std::map<std::tuple<std::string, uint64_t, uint32_t>, const AttemptService*> services;
  for (const auto& [socket, listener] : listeners_) {
    const Seat seat = listener->service().seat();
    services[{seat.store, seat.job_id, seat.attempt}] = &listener->service();
  }
  for (v1::AttemptReport& attempt : *report.mutable_attempts()) {
    const auto known =
        services.find({attempt.store().store(), attempt.job_id(), attempt.attempt()});
    if (known != services.end()) known->second->Freshen(attempt);
  }
}

std::vector<StepNews> WorkerLinks::steps() const {
  std::vector<StepNews> steps;
  for (const auto& [key, listener] : listeners_) steps.push_back(listener->service().step());
  return steps;
}

}  // namespace trireme::keeper
