// gRPC's server: listeners, limits, keepalive. A peer that has gone without a word is noticed by
// pings within half a minute.
#include "coordinator/control_api/api_server.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/support/server_interceptor.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "coordinator/control_api/agent_link.h"
#include "coordinator/control_api/control_service.h"
#include "coordinator/control_api/unreadable_requests.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"

namespace trireme::coordinator {
namespace {

constexpr int kPingMs = 20000;
constexpr int kPingTimeoutMs = 10000;
constexpr int kHandshakeMs = 20000;
constexpr int kMostCallsOfConnection = 2000;
constexpr size_t kMostBuffered = size_t{512} << 20;  // of all connections together
constexpr std::chrono::seconds kDrainTime(5);

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, base::ReadWholeFile(path));
  if (text.empty()) return absl::InvalidArgumentError("the PEM file " + path + " is empty");
  return text;
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(
    const ListenOptions& listen) {
  if (listen.certificate_file.empty() != listen.key_file.empty()) {
    return absl::InvalidArgumentError("TLS needs both a certificate and its key");
  }
  if (listen.certificate_file.empty()) {
    if (!listen.client_ca_file.empty()) {
      return absl::InvalidArgumentError("mutual TLS needs a certificate and its key as well");
    }
    if (!IsLoopback(listen.address)) {
      return absl::InvalidArgumentError(
          fmt::format("{} is open to others, who could read tokens on the way: give a certificate "
                      "and its key, or listen on 127.0.0.1",
                      listen.address));
    }
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(
      listen.client_ca_file.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.private_key, ReadPem(listen.key_file));
  ASSIGN_OR_RETURN(pair.cert_chain, ReadPem(listen.certificate_file));
  options.pem_key_cert_pairs.push_back(pair);
  if (!listen.client_ca_file.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(listen.client_ca_file));
  }
  return grpc::SslServerCredentials(options);
}

// A socket that nobody listens to is removed; one that somebody does is an error.
absl::Status PrepareSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        fmt::format("the socket path {} has {} characters, at most {} are possible", path,
                    path.size(), sizeof address.sun_path - 1));
  }
  std::error_code error;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const bool made = std::filesystem::create_directories(folder, error);
  if (made) chmod(folder.c_str(), 0700);
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make the socket's folder " + folder);
  }
  // In /tmp anybody could have made it first.
  const bool shared = (about.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (about.st_mode & S_ISVTX) == 0;
  if ((about.st_uid != geteuid() && about.st_uid != 0) || shared) {
    return absl::FailedPreconditionError(
        fmt::format("the socket's folder {} belongs to somebody else, or others may write to it; "
                    "choose another by --socket",
                    folder));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listening =
      probe >= 0 && connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
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

// gRPC would take its last 16 bits.
absl::Status CheckPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon != std::string::npos && absl::SimpleAtoi(address.substr(colon + 1), &port) &&
      port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("--listen {}: expected HOST:PORT with a port of 0 to 65535", address));
}

// In this order they see what goes out: the observer hears the code that the caller does.
void Intercept(const CallObserver& calls, grpc::ServerBuilder& builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(UnreadableRequests());
  if (calls.begins && calls.ends) factories.push_back(Observed(calls));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

class GrpcApiServer : public ApiServer {
 public:
  GrpcApiServer(const ApiRooms& rooms, const Limits& limits)
      : calls_(rooms.calls), control_(rooms, limits), agents_(rooms) {}

  ~GrpcApiServer() override {
    if (!server_) return;
    if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
    control_.EndStreams();
    agents_.EndStreams();
    server_->Shutdown(std::chrono::system_clock::now() + kDrainTime);
  }

  absl::Status Start(const ListenOptions& listen, const Limits& limits) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    if (!listen.socket_path.empty()) {
      RETURN_IF_ERROR(PrepareSocket(listen.socket_path));
      builder.AddListeningPort("unix:" + listen.socket_path, grpc::InsecureServerCredentials());
    }
    if (!listen.address.empty()) {
      RETURN_IF_ERROR(CheckPort(listen.address));
      ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(listen));
      builder.AddListeningPort(listen.address, credentials, &port_);
    }
    builder.SetMaxReceiveMessageSize(limits.most_message_bytes);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Who connects and says nothing, or sends what nobody has asked for, is no burden for long.
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfConnection);
    grpc::ResourceQuota quota("control API");
    quota.Resize(kMostBuffered);
    builder.SetResourceQuota(quota);
    Intercept(calls_, builder);
    builder.RegisterService(&control_);
    builder.RegisterService(&agents_);
    // The socket is nobody else's from its first moment on.
    const mode_t before = umask(0177);
    server_ = builder.BuildAndStart();
    umask(before);
    // By name too, as probes ask for it; all end with the server.
    for (const char* service : {"trireme.v1.Control", "trireme.v1.AgentLink"}) {
      if (server_) server_->GetHealthCheckService()->SetServingStatus(service, true);
    }
    if (!server_ || (!listen.address.empty() && port_ == 0)) {
      return absl::UnavailableError(fmt::format(
          "cannot listen at {}{}{}: the address is in use, or not of this machine",
          listen.socket_path, listen.address.empty() || listen.socket_path.empty() ? "" : " and ",
          listen.address));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  void SendDesired(const std::string& node, const v1::DesiredAttempts& desired) override {
    agents_.SendDesired(node, desired);
  }
  void SendAdopt(const std::string& node, uint64_t revision) override {
    agents_.SendAdopt(node, revision);
  }
  void SendTaken(const std::string& node, uint64_t number) override {
    agents_.SendTaken(node, number);
  }

 private:
  const CallObserver calls_;
  ControlService control_;
  AgentLinkService agents_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Start(const ListenOptions& listen,
                                                            const Limits& limits,
                                                            const ApiRooms& rooms) {
  auto server = std::make_unique<GrpcApiServer>(rooms, limits);
  RETURN_IF_ERROR(server->Start(listen, limits));
  return std::unique_ptr<ApiServer>(std::move(server));
}

}  // namespace trireme::coordinator
