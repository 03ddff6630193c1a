// gRPC's server: listeners, limits, keepalive. A peer that has gone without a word is noticed by
// pings within half a minute.
#include "coordinator/control_api/api_server.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/support/server_interceptor.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "coordinator/control_api/agent_link.h"
#include "coordinator/control_api/control_service.h"
#include "coordinator/control_api/local_servers.h"
#include "coordinator/control_api/unreadable_requests.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/steady_wait.h"
#include "runtime/base/whole_file.h"

namespace trireme::coordinator {
namespace {

constexpr int kPingMs = 20000;
constexpr int kPingTimeoutMs = 10000;
constexpr int kHandshakeMs = 20000;
constexpr int kMostCallsOfConnection = 2000;
constexpr size_t kMostBuffered = size_t{512} << 20;  // of all connections together
// Of reflection: each of its streams has one, of all servers together.
constexpr int kMostBlockingThreads = 32;
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
      : calls_(rooms.calls),
        most_message_bytes_(limits.most_message_bytes),
        control_(rooms, limits),
        agents_(rooms),
        local_(rooms.access, [this](grpc::ServerBuilder& builder) { Prepare(builder); }),
        connections_(limits.connections) {
    quota_.Resize(kMostBuffered);
    quota_.SetMaxThreads(kMostBlockingThreads);
  }

  ~GrpcApiServer() override {
    door_.reset();
    gate_.reset();
    if (remote_) remote_->GetHealthCheckService()->SetServingStatus(false);
    local_.EndHealth();
    control_.EndStreams();
    agents_.EndStreams();
    const auto deadline = std::chrono::steady_clock::now() + kDrainTime;
    if (remote_) remote_->Shutdown(base::TimeOfDayAt(deadline));
    local_.Shutdown(deadline);
  }

  absl::Status Start(const ListenOptions& listen) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    if (!listen.address.empty()) RETURN_IF_ERROR(ListenTo(listen));
    if (listen.socket.path.empty()) return absl::OkStatus();
    gate_.emplace(connections_, [this](int fd, uid_t uid) { local_.Take(fd, uid); });
    ASSIGN_OR_RETURN(door_, SocketDoor::Open(listen.socket,
                                             [this](int fd, uid_t uid) { gate_->Take(fd, uid); }));
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  void EndUnknown() override {
    control_.EndUnknownStreams();
    agents_.EndUnknownStreams();
  }
  std::set<std::string> TakeSpoken() override { return agents_.TakeSpoken(); }
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
  absl::Status ListenTo(const ListenOptions& listen) {
    RETURN_IF_ERROR(CheckPort(listen.address));
    ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(listen));
    grpc::ServerBuilder builder;
    Prepare(builder);
    builder.AddListeningPort(listen.address, credentials, &port_);
    remote_ = builder.BuildAndStart();
    if (remote_ && port_ != 0) {
      SayHealthy(*remote_);
      return absl::OkStatus();
    }
    return absl::UnavailableError(fmt::format(
        "cannot listen at {}: the address is in use, or not of this machine", listen.address));
  }

  // What all servers have in common; the services are the same objects.
  void Prepare(grpc::ServerBuilder& builder) {
    builder.SetMaxReceiveMessageSize(most_message_bytes_);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
    // Also of who has no call open: who has hung is noticed, who is idle stays.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Who connects and says nothing, or sends what nobody has asked for, is no burden for long.
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfConnection);
    builder.SetResourceQuota(quota_);
    Intercept(calls_, builder);
    builder.RegisterService(&control_);
    builder.RegisterService(&agents_);
  }

  const CallObserver calls_;
  const int most_message_bytes_;
  grpc::ResourceQuota quota_{"control API"};
  ControlService control_;
  AgentLinkService agents_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> remote_;  // of the TCP address; null: there is none
  LocalServers local_;
  const GateBounds connections_;
  std::optional<ConnectionGate> gate_;  // absent: there is no socket
  std::unique_ptr<SocketDoor> door_;    // null: there is no socket
};

}  // namespace

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Start(const ListenOptions& listen,
                                                            const Limits& limits,
                                                            const ApiRooms& rooms) {
  auto server = std::make_unique<GrpcApiServer>(rooms, limits);
  RETURN_IF_ERROR(server->Start(listen));
  return std::unique_ptr<ApiServer>(std::move(server));
}

}  // namespace trireme::coordinator
