#include "coordinator/client/client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_unary_call.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "coordinator/client/channel.h"
#include "coordinator/client/reconnecting_stream.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/steady_wait.h"
#include "runtime/base/text.h"
#include "trireme/v1/control.grpc.pb.h"

namespace trireme::client {
namespace {

using Stub = v1::Control::Stub;

// For a daemon that says that a call came too soon.
constexpr int kMostWaits = 3;
// For gRPC to say by itself that a deadline has passed.
constexpr std::chrono::milliseconds kTimersSlack(200);

// Bytes behind those that were there before: what is repeated is cut off `response`, and `next`
// asks for what follows it. `known`: the offset asked for counts from the beginning.
template <typename Request, typename Response>
absl::StatusOr<bool> TakeBytes(Request& next, Response& response, bool known) {
  const auto at = static_cast<int64_t>(response.offset());
  const auto size = static_cast<int64_t>(response.data().size());
  const int64_t seen = known ? std::clamp<int64_t>(next.offset() - at, 0, size) : 0;
  response.mutable_data()->erase(0, static_cast<size_t>(seen));
  response.set_offset(static_cast<uint64_t>(at + seen));
  next.set_offset(at + size > next.offset() || !known ? at + size : next.offset());
  return !response.data().empty();
}

// Of the one operation in `queue`. False: it was still under way at the deadline, and is cut off.
// gRPC's own timers wait by the time of day: set back by an hour, they take an hour more.
bool AwaitEnd(grpc::ClientContext& context, grpc::CompletionQueue& queue,
              std::chrono::steady_clock::time_point deadline) {
  void* tag = nullptr;
  bool ok = false;
  const auto until = base::TimeOfDayAt(deadline + kTimersSlack);
  if (queue.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT) return true;
  context.TryCancel();
  queue.Next(&tag, &ok);
  return false;
}

class GrpcClient final : public Client {
 public:
  GrpcClient(Connection connection, std::chrono::milliseconds reconnect_for)
      : connection_(std::move(connection)), reconnect_for_(reconnect_for) {}

  absl::StatusOr<v1::SubmitResponse> Call(const v1::SubmitRequest& request) override {
    return Unary(&Stub::PrepareAsyncSubmit, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::GetRequest& request) override {
    return Unary(&Stub::PrepareAsyncGet, request);
  }
  absl::StatusOr<v1::ListResponse> Call(const v1::ListRequest& request) override {
    return Unary(&Stub::PrepareAsyncList, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::CancelRequest& request) override {
    return Unary(&Stub::PrepareAsyncCancel, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::PauseRequest& request) override {
    return Unary(&Stub::PrepareAsyncPause, request);
  }
  absl::StatusOr<v1::Job> Call(const v1::ResumeRequest& request) override {
    return Unary(&Stub::PrepareAsyncResume, request);
  }
  absl::StatusOr<v1::PreviewPlanResponse> Call(const v1::PreviewPlanRequest& request) override {
    return Unary(&Stub::PrepareAsyncPreviewPlan, request);
  }
  absl::StatusOr<v1::ListCheckpointsResponse> Call(
      const v1::ListCheckpointsRequest& request) override {
    return Unary(&Stub::PrepareAsyncListCheckpoints, request);
  }
  absl::StatusOr<v1::ListFilesResponse> Call(const v1::ListFilesRequest& request) override {
    return Unary(&Stub::PrepareAsyncListFiles, request);
  }
  absl::StatusOr<v1::Node> Call(const v1::DrainRequest& request) override {
    return Unary(&Stub::PrepareAsyncDrain, request);
  }
  absl::StatusOr<v1::Node> Call(const v1::UndrainRequest& request) override {
    return Unary(&Stub::PrepareAsyncUndrain, request);
  }
  absl::StatusOr<v1::AdoptNodeResponse> Call(const v1::AdoptNodeRequest& request) override {
    return Unary(&Stub::PrepareAsyncAdoptNode, request);
  }
  absl::StatusOr<v1::Cluster> Call(const v1::GetClusterRequest& request) override {
    return Unary(&Stub::PrepareAsyncGetCluster, request);
  }
  absl::StatusOr<v1::OpenDashboardResponse> Call(const v1::OpenDashboardRequest& request) override {
    return Unary(&Stub::PrepareAsyncOpenDashboard, request);
  }

  std::unique_ptr<Stream<v1::WatchResponse>> Watch(const v1::WatchRequest& request) override;
  std::unique_ptr<Stream<v1::LogsResponse>> Logs(const v1::LogsRequest& request) override;
  std::unique_ptr<Stream<v1::ReadFileResponse>> ReadFile(
      const v1::ReadFileRequest& request) override;
  std::unique_ptr<Stream<v1::ExportResponse>> Export(const v1::ExportRequest& request) override;
  std::unique_ptr<Stream<v1::BackupResponse>> Backup(const v1::BackupRequest& request) override;

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Unary(std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (
                                     Stub::*prepare)(grpc::ClientContext*, const Request&,
                                                     grpc::CompletionQueue*),
                                 const Request& request) {
    const CallPlace& place = connection_.place;
    const auto deadline = std::chrono::steady_clock::now() + place.timeout;
    ASSIGN_OR_RETURN(const auto channel, connection_.channel());
    Stub stub(channel);
    for (int waits = 0;; ++waits) {
      grpc::ClientContext context;
      Identify(context, connection_.token);
      context.set_deadline(base::TimeOfDayAt(deadline));
      Response response;
      grpc::CompletionQueue queue;
      const auto reader = (stub.*prepare)(&context, request, &queue);
      reader->StartCall();
      grpc::Status status;
      reader->Finish(&response, &status, nullptr);
      const bool ended = AwaitEnd(context, queue, deadline);
      if (!ended && status.error_code() == grpc::StatusCode::CANCELLED) {
        status = {grpc::StatusCode::DEADLINE_EXCEEDED, ""};
      }
      if (status.ok()) return response;
      const std::chrono::milliseconds pause = PauseOf(status);
      const bool in_time = std::chrono::steady_clock::now() + pause < deadline;
      if (pause.count() == 0 || waits == kMostWaits || !in_time) {
        return StatusOfCall(ErrorOf(status), place);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  template <typename Request, typename Response>
  StreamRules<Request, Response> Rules(std::unique_ptr<grpc::ClientAsyncReader<Response>> (
      Stub::*method)(grpc::ClientContext*, const Request&, grpc::CompletionQueue*)) {
    StreamRules<Request, Response> rules;
    rules.channel = connection_.channel;
    rules.prepare = [token = connection_.token, wait = !connection_.place.is_default, method](
                        const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context,
                        const Request& request, grpc::CompletionQueue& queue) {
      Identify(context, token);
      // A daemon that is away is waited for here, where gRPC's connection is looked after
      // meanwhile; but where each try is to look anew, by tries.
      context.set_wait_for_ready(wait);
      return (Stub(channel).*method)(&context, request, &queue);
    };
    rules.place = connection_.place;
    rules.reconnect_for = reconnect_for_;
    return rules;
  }

  const Connection connection_;
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
    // The middle of a long log is gone (LogsResponse.offset): callers tell.
    return TakeBytes(next, response, std::exchange(known, true));
  };
  return std::make_unique<ReconnectingStream<v1::LogsRequest, v1::LogsResponse>>(request,
                                                                                 std::move(rules));
}

std::unique_ptr<Stream<v1::ReadFileResponse>> GrpcClient::ReadFile(
    const v1::ReadFileRequest& request) {
  auto rules = Rules(&Stub::PrepareAsyncReadFile);
  rules.accept = [known = request.offset() >= 0, bounded = request.most_bytes() > 0,
                  left = request.most_bytes()](
                     v1::ReadFileRequest& next,
                     v1::ReadFileResponse& response) mutable -> absl::StatusOr<bool> {
    if (known && static_cast<int64_t>(response.offset()) > next.offset()) {
      return absl::DataLossError(
          base::Text("bytes ", next.offset(), " to ", response.offset(), " of the file are gone"));
    }
    ASSIGN_OR_RETURN(const bool fresh, TakeBytes(next, response, std::exchange(known, true)));
    if (!bounded) return fresh;
    const uint64_t size = std::min<uint64_t>(response.data().size(), left);
    response.mutable_data()->resize(size);
    left -= size;
    // 0 would ask for all of it: what comes of a byte too many is not passed on.
    next.set_most_bytes(std::max<uint64_t>(left, 1));
    return size > 0;
  };
  return std::make_unique<ReconnectingStream<v1::ReadFileRequest, v1::ReadFileResponse>>(
      request, std::move(rules));
}

std::unique_ptr<Stream<v1::ExportResponse>> GrpcClient::Export(const v1::ExportRequest& request) {
  auto rules = Rules(&Stub::PrepareAsyncExport);
  rules.accept = [](v1::ExportRequest&, v1::ExportResponse&) { return absl::StatusOr<bool>(true); };
  rules.once = true;
  rules.reconnect_for = connection_.place.timeout;
  return std::make_unique<ReconnectingStream<v1::ExportRequest, v1::ExportResponse>>(
      request, std::move(rules));
}

std::unique_ptr<Stream<v1::BackupResponse>> GrpcClient::Backup(const v1::BackupRequest& request) {
  auto rules = Rules(&Stub::PrepareAsyncBackup);
  rules.accept = [](v1::BackupRequest&, v1::BackupResponse&) { return absl::StatusOr<bool>(true); };
  rules.once = true;
  rules.reconnect_for = connection_.place.timeout;
  return std::make_unique<ReconnectingStream<v1::BackupRequest, v1::BackupResponse>>(
      request, std::move(rules));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  ASSIGN_OR_RETURN(Connection connection, Connect(options));
  return std::make_unique<GrpcClient>(std::move(connection), options.reconnect_for);
}

}  // namespace trireme::client
