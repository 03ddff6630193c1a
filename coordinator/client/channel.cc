#include "coordinator/client/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include "coordinator/client/default_socket.h"
#include "coordinator/client/reconnecting_stream.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"

namespace trireme::client {
namespace {

constexpr const char* kUnix = "unix:";
constexpr int kMostBytes = 64 << 20;  // of an answer
// A daemon whose machine has gone without a word is noticed within this; it allows as much.
constexpr int kPingMs = 30'000;
constexpr int kPingAnswerMs = 10'000;
constexpr int kConnectMs = 5'000;

absl::StatusOr<std::string> ReadFile(const std::string& path, const std::string& what) {
  const absl::StatusOr<std::string> read = base::ReadWholeFile(path);
  if (!read.ok()) return base::Annotate(read.status(), "the " + what);
  const std::string& text = *read;
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
absl::Status CheckSocket(const std::string& path, const std::string& name) {
  if (access(path.c_str(), W_OK) != 0 && errno == EACCES) {
    return absl::PermissionDeniedError(base::Text(
        name,
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

grpc::ChannelArguments ArgumentsOfAll() {
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
  return arguments;
}

grpc::ChannelArguments ArgumentsOfOne() {
  grpc::ChannelArguments arguments = ArgumentsOfAll();
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// Of the default socket as it is now.
absl::StatusOr<std::shared_ptr<grpc::Channel>> DialDefault(
    const std::shared_ptr<grpc::ChannelCredentials>& how) {
  struct Line {
    base::PinnedFolder folder;
    std::shared_ptr<grpc::Channel> channel;  // ends first
  };
  const auto line = std::make_shared<Line>();
  ASSIGN_OR_RETURN(line->folder, OpenDefaultFolder());
  const std::string path = line->folder.PathOf(kDefaultSocketName);
  RETURN_IF_ERROR(CheckSocket(path, DefaultSocketPath()));
  // Else channels to one path are one connection, which may be of another folder's time.
  line->channel = grpc::CreateCustomChannel(kUnix + path, how, ArgumentsOfOne());
  return std::shared_ptr<grpc::Channel>(line, line->channel.get());
}

}  // namespace

absl::StatusOr<Connection> Connect(const ClientOptions& options) {
  CallPlace place;
  place.is_default = options.address.empty();
  place.address = place.is_default ? kUnix + DefaultSocketPath() : options.address;
  place.timeout = options.timeout;
  place.in_clear = !IsUnix(place.address) && options.ca_file.empty();
  place.nameless = !options.ca_file.empty() && options.certificate_file.empty();
  if (IsUnix(place.address)) {
    const std::string path = place.address.substr(5);
    if (!place.is_default) RETURN_IF_ERROR(CheckSocket(path, path));
  } else if (place.address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        base::Text("\"", place.address, "\" is no address; expected HOST:PORT or unix:/PATH"));
  }
  std::string token;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(options, place.address));
  Connection connection{nullptr, nullptr, std::move(token), std::move(place)};
  if (connection.place.is_default) {
    connection.channel = [credentials] { return DialDefault(credentials); };
    connection.own_channel = connection.channel;
    return connection;
  }
  const std::string& address = connection.place.address;
  connection.channel = [one = grpc::CreateCustomChannel(address, credentials, ArgumentsOfAll())] {
    return one;
  };
  connection.own_channel = [address, credentials] {
    return grpc::CreateCustomChannel(address, credentials, ArgumentsOfOne());
  };
  return connection;
}

CallError ErrorOf(const grpc::Status& status) {
  return {static_cast<int>(status.error_code()), status.error_message(), status.error_details()};
}

void Identify(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
}

}  // namespace trireme::client
