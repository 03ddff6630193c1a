// Each handler: who calls, may he, then a read of the table or a task for the thread that owns it.
#include "coordinator/control_api/control_service.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/client/reader.h"
#include "coordinator/control_api/log_stream.h"
#include "coordinator/control_api/watch_stream.h"
#include "runtime/base/status_macros.h"
#include "runtime/report/plan_view.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kFollowNs = 200000000;
constexpr size_t kLongestRequestId = 128;
constexpr double kCancelGraceSeconds = 30;

using Unary = grpc::ServerUnaryReactor;

Unary* Done(grpc::CallbackServerContext* context, const absl::Status& status) {
  Unary* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

template <typename T>
Unary* Answer(grpc::CallbackServerContext* context, absl::StatusOr<T> result, T* response) {
  if (result.ok()) *response = std::move(*result);
  return Done(context, result.status());
}

absl::Status CheckRequestId(const std::string& id) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c > 32 && c < 127; });
  if (!id.empty() && id.size() <= kLongestRequestId && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "request_id: expected 1 to {} printable characters without blanks, chosen anew for "
      "each submission",
      kLongestRequestId));
}

std::vector<v1::ErrorDetail> DetailsOf(const std::vector<spec::Fault>& faults) {
  std::vector<v1::ErrorDetail> details;
  for (const spec::Fault& fault : faults) {
    v1::ErrorDetail& detail = details.emplace_back();
    detail.set_field(fault.path.empty() ? "job" : "job." + fault.path);
    detail.set_message(fault.message);
  }
  return details;
}

// Without the instructions, which may be many megabytes.
void Describe(const CheckedJob& checked, v1::PreviewPlanResponse& response) {
  response.set_text(report::DescribePlan(checked.plan, {}));
  v1::Plan plan = checked.plan;
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    stage.clear_step();
    stage.clear_evaluate();
    stage.clear_generate();
  }
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  const auto ignored =
      google::protobuf::util::MessageToJsonString(plan, response.mutable_json(), style);
  response.set_ranks(checked.resources.ranks());
  *response.mutable_resources() = checked.resources;
}

// Folders that do not open are no checkpoints.
void ListFolder(const std::string& root, v1::ListCheckpointsResponse& response) {
  std::vector<v1::CheckpointInfo> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const auto checkpoint = checkpoint::Open(entry.path().string());
    if (!checkpoint.ok()) continue;
    v1::CheckpointInfo& one = found.emplace_back();
    one.set_path(entry.path().string());
    one.set_step(checkpoint->info().step);
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator(entry.path(), ignored)) {
      one.set_bytes(one.bytes() + file.file_size(ignored));
    }
    struct stat about {};
    if (stat(entry.path().c_str(), &about) == 0) {
      one.set_written_unix_ns(about.st_mtim.tv_sec * int64_t{1000000000} + about.st_mtim.tv_nsec);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step() > b.step(); });
  response.mutable_checkpoints()->Assign(found.begin(), found.end());
}

}  // namespace

ControlService::ControlService(const ApiRooms& rooms, const Limits& limits)
    : rooms_(rooms),
      limits_(limits),
      subscription_(rooms.table.Subscribe([this] { watchers_.LookAll(); })),
      follower_thread_({.name = "log followers", .between = [this](int64_t now_unix_ns) {
                          followers_.LookAll();
                          return now_unix_ns + kFollowNs;
                        }}) {}

ControlService::~ControlService() { rooms_.table.Unsubscribe(subscription_); }

void ControlService::EndStreams() {
  watchers_.End();
  followers_.End();
}

absl::StatusOr<v1::Job> ControlService::Touch(const Context& context, uint64_t job_id) const {
  ASSIGN_OR_RETURN(const Caller caller, CallerOf(context, rooms_.access));
  auto job = rooms_.table.Get(job_id);
  if (!job) {
    return absl::NotFoundError(
        fmt::format("there is no job {}; trireme list --all shows them", job_id));
  }
  RETURN_IF_ERROR(MayTouch(caller, job->owner()));
  return *std::move(job);
}

Unary* ControlService::Submit(Context* context, const v1::SubmitRequest* request,
                              v1::SubmitResponse* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return Done(context, caller.status());
  if (const auto role = MustBe(*caller, Role::kSubmit); !role.ok()) return Done(context, role);
  if (const auto id = CheckRequestId(request->request_id()); !id.ok()) return Done(context, id);
  Unary* reactor = context->DefaultReactor();
  const absl::Status posted =
      rooms_.planner.Post([this, reactor, caller = *caller, request, response] {
        CheckAndSubmit(reactor, caller, *request, response);
      });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

// On the planner's thread. A repeat is answered without a look at the files, which may be gone.
void ControlService::CheckAndSubmit(Unary* reactor, const Caller& caller,
                                    const v1::SubmitRequest& request,
                                    v1::SubmitResponse* response) {
  const auto before = rooms_.store.FindRequest(caller.user, request.request_id());
  if (!before.ok()) return reactor->Finish(ToGrpc(before.status()));
  Submission submission{caller.user, request.request_id(), {}, {}};
  if (!*before) {
    SubmissionCheck check = CheckSubmission(request.job(), rooms_.rules);
    if (!check.status.ok()) {
      return reactor->Finish(ToGrpc(check.status, DetailsOf(check.faults)));
    }
    submission.job = std::move(check.checked.job);
    submission.resources = std::move(check.checked.resources);
  }
  const absl::Status posted =
      rooms_.reconciler_thread.Post([this, reactor, submission = std::move(submission), response] {
        auto result = rooms_.reconciler.Submit(submission, NowUnixNs());
        if (result.ok()) *response = std::move(*result);
        reactor->Finish(ToGrpc(result.status()));
      });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
}

Unary* ControlService::Get(Context* context, const v1::GetRequest* request, v1::Job* response) {
  return Answer(context, Touch(*context, request->job_id()), response);
}

Unary* ControlService::List(Context* context, const v1::ListRequest* request,
                            v1::ListResponse* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return Done(context, caller.status());
  v1::ListRequest asked = *request;
  if (caller->role != Role::kAdmin) {
    if (!asked.owner().empty() && asked.owner() != caller->user) {
      return Done(context, MayTouch(*caller, asked.owner()));
    }
    asked.set_owner(caller->user);
  }
  return Answer(context, rooms_.table.List(asked), response);
}

grpc::ServerWriteReactor<v1::WatchResponse>* ControlService::Watch(
    Context* context, const v1::WatchRequest* request) {
  using Refused = RefusedStream<v1::WatchResponse>;
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return new Refused(ToGrpc(caller.status()));
  if (request->job_id() != 0) {
    const auto job = Touch(*context, request->job_id());
    if (!job.ok()) return new Refused(ToGrpc(job.status()));
  }
  auto* stream = new WatchStream(rooms_, *request, *caller, watchers_);
  if (!watchers_.Add(stream, static_cast<size_t>(limits_.most_streams))) {
    stream->Refuse(
        grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watchers; try again later"));
    return stream;
  }
  stream->Look();
  return stream;
}

grpc::ServerWriteReactor<v1::LogsResponse>* ControlService::Logs(Context* context,
                                                                 const v1::LogsRequest* request) {
  using Refused = RefusedStream<v1::LogsResponse>;
  const auto job = Touch(*context, request->job_id());
  if (!job.ok()) return new Refused(ToGrpc(job.status()));
  const uint32_t attempt = request->attempt() == 0 ? job->status().attempt() : request->attempt();
  const auto path = LogPath(*job, attempt, request->rank());
  if (!path.ok()) return new Refused(ToGrpc(path.status()));
  auto* stream = new LogStream(rooms_.table, *request, attempt, *path, followers_);
  if (!followers_.Add(stream, static_cast<size_t>(limits_.most_streams))) {
    stream->Refuse(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "too many readers of logs; try again later"));
    return stream;
  }
  stream->Look();
  return stream;
}

Unary* ControlService::Ask(Context* context, uint64_t job_id, double grace_seconds, Request request,
                           v1::Job* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return Done(context, caller.status());
  const auto job = Touch(*context, job_id);
  if (!job.ok()) return Done(context, job.status());
  if (grace_seconds < 0 || grace_seconds > 86400) {
    return Done(context, absl::InvalidArgumentError("grace_seconds: expected 0 to 86400"));
  }
  Unary* reactor = context->DefaultReactor();
  const absl::Status posted = rooms_.reconciler_thread.Post(
      [this, reactor, job_id, grace_seconds, event = request(caller->user), response] {
        auto result = rooms_.reconciler.Ask(job_id, event, grace_seconds, NowUnixNs());
        if (result.ok()) *response = std::move(*result);
        reactor->Finish(ToGrpc(result.status()));
      });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

Unary* ControlService::Cancel(Context* context, const v1::CancelRequest* request,
                              v1::Job* response) {
  const double grace =
      request->grace_seconds() == 0 ? kCancelGraceSeconds : request->grace_seconds();
  return Ask(
      context, request->job_id(), grace,
      [](std::string by) -> JobEvent { return CancelAsked{std::move(by)}; }, response);
}

Unary* ControlService::Pause(Context* context, const v1::PauseRequest* request, v1::Job* response) {
  return Ask(
      context, request->job_id(), 0,
      [](std::string by) -> JobEvent { return PauseAsked{std::move(by)}; }, response);
}

Unary* ControlService::Resume(Context* context, const v1::ResumeRequest* request,
                              v1::Job* response) {
  return Ask(
      context, request->job_id(), 0,
      [](std::string by) -> JobEvent { return ResumeAsked{std::move(by)}; }, response);
}

Unary* ControlService::PreviewPlan(Context* context, const v1::PreviewPlanRequest* request,
                                   v1::PreviewPlanResponse* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return Done(context, caller.status());
  if (const auto role = MustBe(*caller, Role::kSubmit); !role.ok()) return Done(context, role);
  Unary* reactor = context->DefaultReactor();
  const absl::Status posted = rooms_.planner.Post([this, reactor, request, response] {
    const SubmissionCheck check = CheckSubmission(request->job(), rooms_.rules);
    if (!check.status.ok()) {
      return reactor->Finish(ToGrpc(check.status, DetailsOf(check.faults)));
    }
    Describe(check.checked, *response);
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

Unary* ControlService::ListCheckpoints(Context* context, const v1::ListCheckpointsRequest* request,
                                       v1::ListCheckpointsResponse* response) {
  const auto job = Touch(*context, request->job_id());
  if (!job.ok()) return Done(context, job.status());
  const v1::CheckpointSpec& spec = job->spec().checkpoint();
  const std::string root =
      spec.has_directory() ? spec.directory() : job->run_folder() + "/checkpoints";
  Unary* reactor = context->DefaultReactor();
  const absl::Status posted = rooms_.planner.Post([reactor, root, response] {
    ListFolder(root, *response);
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

Unary* ControlService::Drain(Context* context, const v1::DrainRequest* request,
                             v1::Node* response) {
  return SetDrained(context, request->node(), true, request->reason(), response);
}

Unary* ControlService::Undrain(Context* context, const v1::UndrainRequest* request,
                               v1::Node* response) {
  return SetDrained(context, request->node(), false, "", response);
}

Unary* ControlService::SetDrained(Context* context, const std::string& node, bool drained,
                                  const std::string& reason, v1::Node* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return Done(context, caller.status());
  if (const auto role = MustBe(*caller, Role::kAdmin); !role.ok()) return Done(context, role);
  Unary* reactor = context->DefaultReactor();
  const absl::Status posted =
      rooms_.reconciler_thread.Post([this, reactor, node, drained, reason, response] {
        auto result = rooms_.reconciler.SetDrained(node, drained, reason, NowUnixNs());
        if (result.ok()) *response = std::move(*result);
        reactor->Finish(ToGrpc(result.status()));
      });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

Unary* ControlService::GetCluster(Context* context, const v1::GetClusterRequest*,
                                  v1::Cluster* response) {
  const auto caller = CallerOf(*context, rooms_.access);
  if (caller.ok()) *response = rooms_.table.cluster();
  return Done(context, caller.status());
}

}  // namespace trireme::coordinator
