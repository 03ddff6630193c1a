#include "coordinator/client/client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "coordinator/client/call_status.h"
#include "coordinator/client/default_socket.h"
#include "coordinator/client/reconnecting_stream.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "trireme/v1/control.grpc.pb.h"

namespace trireme::client {
namespace {

using Stub = v1::Control::Stub;

constexpr const char* kUnix = "unix:";
constexpr int kMostBytes = 64 << 20;  // of an answer
// A daemon whose machine has gone without a word is noticed within this; it allows as much.
constexpr int kPingMs = 30'000;
constexpr int kPingAnswerMs = 10'000;
constexpr int kConnectMs = 5'000;

absl::StatusOr<std::string> ReadFile(const std::string& path, const std::string& what) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || !in.is_open()) {
    return absl::NotFoundError(base::Text(path, ": the ", what, " cannot be read"));
  }
  if (text.empty())
    return absl::InvalidArgumentError(base::Text(path, ": the ", what, " is empty"));
  return text;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(std::string token, ReadFile(path, "token"));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  for (const char c : token) {
    if (c <= ' ' || c > '~') {
      return absl::InvalidArgumentError(
          base::Text(path, ": a token is one line of printable characters without blanks"));
    }
  }
  return token;
}

bool IsUnix(const std::string& address) { return address.rfind(kUnix, 0) == 0; }

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

// gRPC would only say that nobody answers.
absl::Status CheckSocket(const std::string& path, bool is_default) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  struct stat found {};
  if (is_default && stat(folder.c_str(), &found) == 0 && found.st_uid != geteuid() &&
      found.st_uid != 0) {
    return absl::PermissionDeniedError(
        base::Text(folder, " belongs to another user (", found.st_uid,
                   "), so what listens there is not ours; say where the coordinator is by "
                   "--coordinator ADDRESS"));
  }
  if (access(path.c_str(), W_OK) != 0 && errno == EACCES) {
    return absl::PermissionDeniedError(base::Text(
        path,
        ": you may not use this socket; ask who runs the coordinator for access, or use its "
        "TCP address with a token"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ClientOptions& options, const std::string& address) {
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError("a certificate and its key belong together: give both");
  }
  if (options.ca_file.empty()) {
    if (!options.certificate_file.empty()) {
      return absl::InvalidArgumentError(
          "a certificate is of use only with the one of who signed the coordinator's (--ca-file)");
    }
    if (!options.token_file.empty() && !IsUnix(address) && !IsLoopback(address)) {
      return absl::InvalidArgumentError(base::Text(
          "the token would travel to ", address, " for everybody to read; give --ca-file for TLS"));
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadFile(options.ca_file, "certificate"));
  if (!options.certificate_file.empty()) {
    ASSIGN_OR_RETURN(ssl.pem_cert_chain, ReadFile(options.certificate_file, "certificate"));
    ASSIGN_OR_RETURN(ssl.pem_private_key, ReadFile(options.key_file, "key"));
  }
  return grpc::SslCredentials(ssl);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& how) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostBytes);
  // The coordinator is in the house; a proxy is for what is outside.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstDelay.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kLongestDelay.count()));
  // Of one attempt; within the deadline of a call, so that it can say that nobody answers.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  return grpc::CreateCustomChannel(address, how, arguments);
}

class GrpcClient final : public Client {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel, std::string token, CallPlace place,
             std::chrono::milliseconds reconnect_for)
      : stub_(v1::Control::NewStub(channel)),
        token_(std::move(token)),
        place_(std::move(place)),
        reconnect_for_(reconnect_for) {}

  absl::StatusOr<v1::SubmitResponse> Call(const v1::SubmitRequest& request) override {
    return Unary(&Stub::Submit, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::GetRequest& request) override {
    return Unary(&Stub::Get, request);
  }
  absl::StatusOr<v1::ListResponse> Call(const v1::ListRequest& request) override {
    return Unary(&Stub::List, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::CancelRequest& request) override {
    return Unary(&Stub::Cancel, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::PauseRequest& request) override {
    return Unary(&Stub::Pause, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::ResumeRequest& request) override {
    return Unary(&Stub::Resume, request);
  }
  absl::StatusOr<v1::PreviewPlanResponse> Call(const v1::PreviewPlanRequest& request) override {
    return Unary(&Stub::PreviewPlan, request);
  }
  absl::StatusOr<v1::ListCheckpointsResponse> Call(
      const v1::ListCheckpointsRequest& request) override {
    return Unary(&Stub::ListCheckpoints, request);
  }
  absl::StatusOr<v1::Node> Call(const v1::DrainRequest& request) override {
    return Unary(&Stub::Drain, request);
  }
  absl::StatusOr<v1::Node> Call(const v1::UndrainRequest& request) override {
    return Unary(&Stub::Undrain, request);
  }
  absl::StatusOr<v1::Cluster> Call(const v1::GetClusterRequest& request) override {
    return Unary(&Stub::GetCluster, request);
  }

  std::unique_ptr<Stream<v1::WatchResponse>> Watch(const v1::WatchRequest& request) override;
  std::unique_ptr<Stream<v1::LogsResponse>> Logs(const v1::LogsRequest& request) override;

 private:
  static void Identify(grpc::ClientContext& context, const std::string& token) {
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Unary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 const Request& request) {
    grpc::ClientContext context;
    Identify(context, token_);
    context.set_deadline(std::chrono::system_clock::now() + place_.timeout);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return StatusOfCall(ErrorOf(status), place_);
    return response;
  }

  template <typename Request, typename Response>
  StreamRules<Request, Response> Rules(std::unique_ptr<grpc::ClientAsyncReader<Response>> (
      Stub::*method)(grpc::ClientContext*, const Request&, grpc::CompletionQueue*)) {
    StreamRules<Request, Response> rules;
    rules.prepare = [stub = stub_, token = token_, method](grpc::ClientContext& context,
                                                           const Request& request,
                                                           grpc::CompletionQueue& queue) {
      Identify(context, token);
      // A daemon that is away is waited for here, where gRPC's connection is looked after
      // meanwhile.
      context.set_wait_for_ready(true);
      return (stub.get()->*method)(&context, request, &queue);
    };
    rules.place = place_;
    rules.reconnect_for = reconnect_for_;
    return rules;
  }

  const std::shared_ptr<Stub> stub_;
  const std::string token_;
  const CallPlace place_;
  const std::chrono::milliseconds reconnect_for_;
};

std::unique_ptr<Stream<v1::WatchResponse>> GrpcClient::Watch(const v1::WatchRequest& request) {
  auto rules = Rules(&Stub::PrepareAsyncWatch);
  rules.accept = [](v1::WatchRequest& next,
                    const v1::WatchResponse& response) -> absl::StatusOr<bool> {
    if (!response.has_event()) return true;
    if (response.event().sequence() <= next.after_sequence()) return false;
    next.set_after_sequence(response.event().sequence());
    return true;
  };
  return std::make_unique<ReconnectingStream<v1::WatchRequest, v1::WatchResponse>>(
      request, std::move(rules));
}

std::unique_ptr<Stream<v1::LogsResponse>> GrpcClient::Logs(const v1::LogsRequest& request) {
  auto rules = Rules(&Stub::PrepareAsyncLogs);
  rules.accept = [known = request.offset() >= 0](
                     v1::LogsRequest& next,
                     v1::LogsResponse& response) mutable -> absl::StatusOr<bool> {
    // Of the newest attempt or from the end on is meant once; from then on it is this place.
    if (next.attempt() == 0) next.set_attempt(response.attempt());
    const auto at = static_cast<int64_t>(response.offset());
    const auto size = static_cast<int64_t>(response.data().size());
    if (known && at > next.offset()) {
      return absl::DataLossError(
          base::Text("bytes ", next.offset(), " to ", at, " of the log are gone"));
    }
    const int64_t seen = known ? std::min(size, next.offset() - at) : 0;
    response.mutable_data()->erase(0, static_cast<size_t>(seen));
    response.set_offset(static_cast<uint64_t>(at + seen));
    next.set_offset(at + size > next.offset() || !known ? at + size : next.offset());
    known = true;
    return !response.data().empty();
  };
  return std::make_unique<ReconnectingStream<v1::LogsRequest, v1::LogsResponse>>(request,
                                                                                 std::move(rules));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  CallPlace place;
  place.is_default = options.address.empty();
  place.address = place.is_default ? kUnix + DefaultSocketPath() : options.address;
  place.timeout = options.timeout;
  if (IsUnix(place.address)) {
    RETURN_IF_ERROR(CheckSocket(place.address.substr(5), place.is_default));
  } else if (place.address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        base::Text("\"", place.address, "\" is no address; expected HOST:PORT or unix:/PATH"));
  }
  std::string token;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(options, place.address));
  return std::make_unique<GrpcClient>(Connect(place.address, credentials), token, place,
                                      options.reconnect_for);
}

}  // namespace trireme::client
