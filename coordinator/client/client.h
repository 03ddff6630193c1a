// A program's connection to the coordinator daemon: calls with a deadline, and streams that survive
// its restarts. Errors are absl::Status of the code that the daemon gave, its details folded into
// the message, which can be shown to people as it is.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/control.pb.h"

namespace trireme::client {

struct ClientOptions {
  // "unix:/path/of/socket" or "host:port"; empty: DefaultSocketPath().
  std::string address;
  // A file of one line, sent as a bearer token; empty: none. Over TCP to another machine only under
  // TLS.
  std::string token_file;
  // PEM files. With `ca_file` the connection is TLS and the daemon is who that says; certificate
  // and key, together, say who we are.
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  // Of a call.
  std::chrono::milliseconds timeout{10'000};
  // How long a stream tries to come back before it fails.
  std::chrono::milliseconds reconnect_for{120'000};
};

enum class Pull {
  kMessage,  // a message was taken
  kNothing,  // none came in time: ask again
  kEnd,      // the daemon has ended the stream in order
};

// One thread at a time. Destruction leaves the stream without waiting for the daemon.
template <typename Message>
class Stream {
 public:
  virtual ~Stream() = default;

  // Blocks for `wait` at most. Connects by itself, at first and after every interruption, and goes
  // on behind the last message, so that none is missing and none comes twice. An error is final:
  // the daemon refused, or was away for `reconnect_for`; DataLoss: part of a log is gone.
  virtual absl::StatusOr<Pull> Next(Message& message, std::chrono::milliseconds wait) = 0;

  // Nobody has answered for a while (a third of a second), and Next keeps trying.
  virtual bool interrupted() const = 0;
};

// Threads: any. A call blocks until its answer or its deadline; where the daemon takes more calls
// only after a while, that is waited for. Errors beside those of control.proto: Unavailable: nobody
// answers there; DeadlineExceeded: no answer in time, and whether the daemon has acted is not
// known.
class Client {
 public:
  // Reads the files of `options`; does not connect yet. InvalidArgument, NotFound: they cannot be
  // used together or read; PermissionDenied: the socket is not ours to use (of the default socket
  // each call says so, which looks anew).
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options);
  virtual ~Client() = default;

  // The unary calls of v1.Control, chosen by the request.
  virtual absl::StatusOr<v1::SubmitResponse> Call(const v1::SubmitRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> Call(const v1::GetRequest& request) = 0;
  virtual absl::StatusOr<v1::ListResponse> Call(const v1::ListRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> Call(const v1::CancelRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> Call(const v1::PauseRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> Call(const v1::ResumeRequest& request) = 0;
  virtual absl::StatusOr<v1::PreviewPlanResponse> Call(const v1::PreviewPlanRequest& request) = 0;
  virtual absl::StatusOr<v1::ListCheckpointsResponse> Call(
      const v1::ListCheckpointsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListFilesResponse> Call(const v1::ListFilesRequest& request) = 0;
  virtual absl::StatusOr<v1::Node> Call(const v1::DrainRequest& request) = 0;
  virtual absl::StatusOr<v1::AdoptNodeResponse> Call(const v1::AdoptNodeRequest& request) = 0;
  virtual absl::StatusOr<v1::Node> Call(const v1::UndrainRequest& request) = 0;
  virtual absl::StatusOr<v1::Cluster> Call(const v1::GetClusterRequest& request) = 0;
  virtual absl::StatusOr<v1::OpenDashboardResponse> Call(
      const v1::OpenDashboardRequest& request) = 0;

  // May outlive the client.
  virtual std::unique_ptr<Stream<v1::WatchResponse>> Watch(const v1::WatchRequest& request) = 0;
  virtual std::unique_ptr<Stream<v1::LogsResponse>> Logs(const v1::LogsRequest& request) = 0;
  virtual std::unique_ptr<Stream<v1::ReadFileResponse>> ReadFile(
      const v1::ReadFileRequest& request) = 0;
  // Does not come back after an interruption, which ends the export: Unavailable.
  virtual std::unique_ptr<Stream<v1::ExportResponse>> Export(const v1::ExportRequest& request) = 0;
  // Likewise.
  virtual std::unique_ptr<Stream<v1::BackupResponse>> Backup(const v1::BackupRequest& request) = 0;
};

}  // namespace trireme::client
