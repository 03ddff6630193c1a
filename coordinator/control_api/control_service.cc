// Each handler: who calls, may he, then a read of the table or a task for the thread that owns it.
#include "coordinator/control_api/control_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "coordinator/control_api/log_stream.h"
#include "coordinator/control_api/watch_stream.h"
#include "coordinator/run_files/job_log.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kFollowNs = 200000000;
constexpr size_t kLongestRequestId = 128;
constexpr size_t kLongestReason = 1000;
constexpr double kCancelGraceSeconds = 30;

using Unary = grpc::ServerUnaryReactor;

absl::Status CheckRequestId(const std::string& id) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c > 32 && c < 127; });
  if (!id.empty() && id.size() <= kLongestRequestId && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "request_id: expected 1 to {} printable characters without blanks, chosen anew for "
      "each submission",
      kLongestRequestId));
}

// It stands in the log, in events and in lists.
absl::Status CheckReason(const std::string& reason) {
  const bool plain = std::none_of(reason.begin(), reason.end(),
                                  [](char c) { return (c >= 0 && c < ' ') || c == 127; });
  if (plain && reason.size() <= kLongestReason) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("reason: expected one line of at most {} bytes", kLongestReason));
}

absl::Status MayAsk(const Caller& caller, const v1::JobSpec& job) {
  RETURN_IF_ERROR(CheckJobSize(job));
  return MayAskPriority(caller, job.resources().priority());
}

}  // namespace

ControlService::ControlService(const ApiRooms& rooms, const Limits& limits)
    : rooms_(rooms),
      limits_(limits),
      rates_(limits.submits, limits.calls),
      watcher_thread_("watchers", watchers_),
      follower_thread_({.name = "log followers",
                        .between =
                            [this](int64_t now_unix_ns) {
                              followers_.LookAll();
                              return now_unix_ns + kFollowNs;
                            }}),
      submissions_(rooms),
      exports_(rooms.rules, rooms.identity.store(), rooms.hanging),
      backups_(*rooms.store) {
  subscription_ = rooms_.table.Subscribe([this] { watcher_thread_.Tell(); });
}

ControlService::~ControlService() { rooms_.table.Unsubscribe(subscription_); }

void ControlService::EndUnknownStreams() {
  for (StreamSet* streams : {&watchers_, &followers_, &readers_, &exporters_}) {
    streams->EndUnknown(rooms_.access);
  }
}

void ControlService::EndStreams() {
  for (StreamSet* streams : {&watchers_, &followers_, &readers_, &exporters_}) streams->End();
  submissions_.End();
}

absl::StatusOr<Caller> ControlService::Admit(const Context& context, Role role, CallKind kind) {
  ASSIGN_OR_RETURN(Caller caller, CallerOf(context, rooms_.access));
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  RETURN_IF_ERROR(rates_.Take(caller.user, kind,
                              std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  RETURN_IF_ERROR(MustBe(caller, role));
  return caller;
}

void ControlService::Touch(const absl::StatusOr<Caller>& caller, uint64_t job_id, Then then) {
  if (!caller.ok()) return then(caller.status());
  rooms_.reads.Ask(
      caller->user,
      [job_id](const JobTable& table, JobStore* store) { return table.Get(job_id, store); },
      [caller = *caller, then = std::move(then)](absl::StatusOr<v1::Job> job) {
        absl::Status may = job.status();
        if (may.ok()) may = MayTouch(caller, job->owner());
        may.ok() ? then(Touched{caller, *std::move(job)}) : then(may);
      });
}

absl::Status ControlService::Add(LiveStream* stream, StreamSet& streams, const Caller& caller) {
  const StreamBounds bounds{static_cast<size_t>(limits_.most_streams),
                            static_cast<size_t>(limits_.most_streams_of_user)};
  RETURN_IF_ERROR(streams.Add(stream, caller, bounds));
  return rooms_.access.StillKnows(caller);
}

Unary* ControlService::Submit(Context* context, const v1::SubmitRequest* request,
                              v1::SubmitResponse* response) {
  const auto caller = Admit(*context, Role::kSubmit, CallKind::kSubmit);
  if (!caller.ok()) return Done(context, caller.status());
  if (const auto id = CheckRequestId(request->request_id()); !id.ok()) return Done(context, id);
  if (const auto may = MayAsk(*caller, request->job()); !may.ok()) return Done(context, may);
  return submissions_.Submit(*caller, *request, response);
}

Unary* ControlService::Get(Context* context, const v1::GetRequest* request, v1::Job* response) {
  Unary* reactor = context->DefaultReactor();
  Touch(*context, request->job_id(), [reactor, response](absl::StatusOr<Touched> touched) {
    if (touched.ok()) *response = std::move(touched->job);
    reactor->Finish(ToGrpc(touched.status()));
  });
  return reactor;
}

Unary* ControlService::List(Context* context, const v1::ListRequest* request,
                            v1::ListResponse* response) {
  const auto caller = Admit(*context, Role::kSubmit);
  if (!caller.ok()) return Done(context, caller.status());
  v1::ListRequest asked = *request;
  if (caller->role != Role::kAdmin) {
    if (!asked.owner().empty() && asked.owner() != caller->user) {
      return Done(context, MayTouch(*caller, asked.owner()));
    }
    asked.set_owner(caller->user);
  }
  Unary* reactor = context->DefaultReactor();
  rooms_.reads.Ask(
      caller->user,
      [asked](const JobTable& table, JobStore* store) { return table.List(asked, store); },
      [reactor, response](absl::StatusOr<v1::ListResponse> listed) {
        const absl::Status status = listed.status();
        if (status.ok()) *response = *std::move(listed);
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchResponse>* ControlService::Watch(
    Context* context, const v1::WatchRequest* request) {
  const absl::StatusOr<Caller> caller = Admit(*context, Role::kSubmit);
  const auto look_again = [this](LiveStream* stream) { watcher_thread_.LookAgain(stream); };
  auto* stream =
      new WatchStream(rooms_, *request, caller.value_or(Caller()), watchers_, look_again);
  const auto check = [after = request->after_sequence(), &table = rooms_.table](const v1::Job&) {
    const uint64_t last = table.last_sequence();
    if (after <= last) return absl::OkStatus();
    return absl::OutOfRangeError(
        fmt::format("after_sequence: {} is yet to come, the newest event is {}. If an older copy "
                    "of the store was put back, begin anew after 0",
                    after, last));
  };
  if (request->job_id() != 0) return OpenOf(caller, request->job_id(), stream, watchers_, check);
  return Open(caller, stream, watchers_, check(v1::Job()));
}

grpc::ServerWriteReactor<v1::LogsResponse>* ControlService::Logs(Context* context,
                                                                 const v1::LogsRequest* request) {
  auto* stream = new LogStream(rooms_, *request, endings_, followers_);
  return OpenOf(Admit(*context, Role::kSubmit), request->job_id(), stream, followers_,
                [stream, asked = *request, store = rooms_.identity.store()](const v1::Job& job) {
                  RETURN_IF_ERROR(CheckLog(job, asked));
                  stream->SetJob(job, store);
                  return absl::OkStatus();
                });
}

// On the reconciler's thread, unless the caller's token was taken back by then.
template <typename Decision, typename Response>
Unary* ControlService::Decide(Unary* reactor, const Caller& caller, Decision decide,
                              Response* response) {
  const absl::Status posted = rooms_.reconciler_thread.Post(
      [this, reactor, caller, decide = std::move(decide), response] {
        const absl::Status known = rooms_.access.StillKnows(caller);
        if (!known.ok()) return reactor->Finish(ToGrpc(known));
        auto result = decide();
        if (result.ok()) *response = std::move(*result);
        reactor->Finish(ToGrpc(result.status()));
      },
      caller.user);
  if (!posted.ok()) reactor->Finish(QueueFull(posted));
  return reactor;
}

Unary* ControlService::Ask(Context* context, uint64_t job_id, double grace_seconds, Request request,
                           v1::Job* response) {
  Unary* reactor = context->DefaultReactor();
  Touch(*context, job_id, [=, this](const absl::StatusOr<Touched>& touched) {
    if (!touched.ok()) return reactor->Finish(ToGrpc(touched.status()));
    if (!(grace_seconds >= 0 && grace_seconds <= 86400)) {  // nor what is no number
      return reactor->Finish(
          ToGrpc(absl::InvalidArgumentError("grace_seconds: expected 0 to 86400")));
    }
    Decide(
        reactor, touched->caller,
        [this, job_id, grace_seconds, request, user = touched->caller.user] {
          return rooms_.reconciler.Ask(job_id, request(user), grace_seconds, NowUnixNs());
        },
        response);
  });
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
  const auto caller = Admit(*context, Role::kSubmit, CallKind::kSubmit);
  if (!caller.ok()) return Done(context, caller.status());
  if (const auto may = MayAsk(*caller, request->job()); !may.ok()) return Done(context, may);
  return submissions_.Preview(*caller, *request, response);
}

Unary* ControlService::Drain(Context* context, const v1::DrainRequest* request,
                             v1::Node* response) {
  return SetUse(context, {request->node(), true, request->reason(), request->gone()}, response);
}

Unary* ControlService::Undrain(Context* context, const v1::UndrainRequest* request,
                               v1::Node* response) {
  return SetUse(context, {request->node()}, response);
}

Unary* ControlService::AdoptNode(Context* context, const v1::AdoptNodeRequest* request,
                                 v1::AdoptNodeResponse* response) {
  const auto caller = Admit(*context, Role::kAdmin);
  if (!caller.ok()) return Done(context, caller.status());
  return Decide(
      context->DefaultReactor(), *caller,
      [this, node = request->node(), by = NameOf(*caller)] {
        return rooms_.reconciler.AdoptNode(node, NowUnixNs(), by);
      },
      response);
}

Unary* ControlService::SetUse(Context* context, NodeUse use, v1::Node* response) {
  const auto caller = Admit(*context, Role::kAdmin);
  if (!caller.ok()) return Done(context, caller.status());
  use.by = NameOf(*caller);
  if (const auto reason = CheckReason(use.reason); !reason.ok()) return Done(context, reason);
  return Decide(
      context->DefaultReactor(), *caller,
      [this, use] { return rooms_.reconciler.SetUse(use, NowUnixNs()); }, response);
}

Unary* ControlService::GetCluster(Context* context, const v1::GetClusterRequest*,
                                  v1::Cluster* response) {
  const auto caller = Admit(*context, Role::kSubmit);
  if (caller.ok()) *response = rooms_.table.cluster();
  return Done(context, caller.status());
}

Unary* ControlService::OpenDashboard(Context* context, const v1::OpenDashboardRequest*,
                                     v1::OpenDashboardResponse* response) {
  const auto caller = Admit(*context, Role::kSubmit);
  if (!caller.ok()) return Done(context, caller.status());
  if (!rooms_.dashboard_link) {
    return Done(context,
                absl::FailedPreconditionError(
                    "this daemon serves no dashboard; start triremed with --http HOST:PORT "
                    "(jobs run on meanwhile)"));
  }
  response->set_url(rooms_.dashboard_link(*caller));
  return Done(context, absl::OkStatus());
}

}  // namespace trireme::coordinator
