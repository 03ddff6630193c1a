// The service Control over the rooms of the daemon.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "coordinator/calls/disk_endings.h"
#include "coordinator/calls/news_thread.h"
#include "coordinator/calls/rates.h"
#include "coordinator/calls/stream_set.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/control_api/backups.h"
#include "coordinator/control_api/call.h"
#include "coordinator/control_api/exports.h"
#include "coordinator/control_api/message_stream.h"
#include "coordinator/control_api/submissions.h"
#include "coordinator/job_machine/job_machine.h"
#include "trireme/v1/control.grpc.pb.h"

namespace trireme::coordinator {

class ControlService : public v1::Control::CallbackService {
 public:
  ControlService(const ApiRooms& rooms, const Limits& limits);
  ~ControlService() override;

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  Unary* Submit(Context*, const v1::SubmitRequest*, v1::SubmitResponse*) override;
  Unary* Get(Context*, const v1::GetRequest*, v1::Job*) override;
  Unary* List(Context*, const v1::ListRequest*, v1::ListResponse*) override;
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(Context*, const v1::WatchRequest*) override;
  grpc::ServerWriteReactor<v1::LogsResponse>* Logs(Context*, const v1::LogsRequest*) override;
  Unary* Cancel(Context*, const v1::CancelRequest*, v1::Job*) override;
  Unary* Pause(Context*, const v1::PauseRequest*, v1::Job*) override;
  Unary* Resume(Context*, const v1::ResumeRequest*, v1::Job*) override;
  Unary* PreviewPlan(Context*, const v1::PreviewPlanRequest*, v1::PreviewPlanResponse*) override;
  Unary* ListCheckpoints(Context*, const v1::ListCheckpointsRequest*,
                         v1::ListCheckpointsResponse*) override;
  Unary* Drain(Context*, const v1::DrainRequest*, v1::Node*) override;
  Unary* Undrain(Context*, const v1::UndrainRequest*, v1::Node*) override;
  Unary* AdoptNode(Context*, const v1::AdoptNodeRequest*, v1::AdoptNodeResponse*) override;
  Unary* GetCluster(Context*, const v1::GetClusterRequest*, v1::Cluster*) override;
  Unary* OpenDashboard(Context*, const v1::OpenDashboardRequest*,
                       v1::OpenDashboardResponse*) override;

  Unary* ListFiles(Context*, const v1::ListFilesRequest*, v1::ListFilesResponse*) override;
  grpc::ServerWriteReactor<v1::ReadFileResponse>* ReadFile(Context*,
                                                           const v1::ReadFileRequest*) override;
  grpc::ServerWriteReactor<v1::ExportResponse>* Export(Context*, const v1::ExportRequest*) override;
  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(Context*, const v1::BackupRequest*) override;

  // Streams end whose callers' tokens were taken back.
  void EndUnknownStreams();
  // Streams end, and submissions that wait for a disk; new ones are refused.
  void EndStreams();

 private:
  // Who calls, if he has the role that the call needs and does not call too often.
  absl::StatusOr<Caller> Admit(const Context& context, Role role, CallKind kind = CallKind::kOther);
  struct Touched {
    Caller caller;
    v1::Job job;
  };
  // `then` gets the job, if the caller may touch it: at once, or, if the store is to be asked for
  // it, later and from another thread. So it waits for nothing, and `context` may be gone.
  using Then = std::function<void(absl::StatusOr<Touched> touched)>;
  void Touch(const absl::StatusOr<Caller>& caller, uint64_t job_id, Then then);
  void Touch(const Context& context, uint64_t job_id, Then then) {
    Touch(Admit(context, Role::kSubmit), job_id, std::move(then));
  }
  // OK: the stream is one of those that are open.
  absl::Status Add(LiveStream* stream, StreamSet& streams, const Caller& caller);
  // It begins at once, unless `may` is an error, or too many are open.
  template <typename Stream>
  Stream* Open(const absl::StatusOr<Caller>& caller, Stream* stream, StreamSet& streams,
               absl::Status may) {
    stream->Hold();
    if (!caller.ok()) may = caller.status();
    if (may.ok()) may = Add(stream, streams, *caller);
    streams.Begin(stream, may);
    return stream;
  }
  // Likewise a stream of a job, when that is found; `may` is asked of it then.
  template <typename Stream>
  Stream* OpenOf(const absl::StatusOr<Caller>& caller, uint64_t job_id, Stream* stream,
                 StreamSet& streams, const std::function<absl::Status(const v1::Job& job)>& may) {
    stream->Hold();
    Touch(caller, job_id, [=, this, &streams](const absl::StatusOr<Touched>& touched) {
      absl::Status status = touched.status();
      if (status.ok()) status = may(touched->job);
      if (status.ok()) status = Add(stream, streams, touched->caller);
      streams.Begin(stream, status);
    });
    return stream;
  }
  template <typename Decision, typename Response>
  Unary* Decide(Unary* reactor, const Caller& caller, Decision decide, Response* response);
  using Request = JobEvent (*)(std::string by);
  Unary* Ask(Context* context, uint64_t job_id, double grace_seconds, Request request,
             v1::Job* response);
  // The call ends with what `look` gives, on the disk of `where`: a StatusOr<Response>. It owns all
  // that it touches, as of DiskCalls::Begin.
  template <typename Response, typename Look>
  void AnswerFromDisk(Unary* reactor, const DiskPath& where, Response* response, Look look) {
    const absl::Status begun = rooms_.disks.Begin(
        where, std::move(look), [reactor, response](absl::StatusOr<Response> found) {
          if (!found.ok()) return reactor->Finish(ToGrpc(found.status()));
          *response = *std::move(found);
          reactor->Finish(grpc::Status::OK);
        });
    if (!begun.ok()) reactor->Finish(NotBegun(begun));
  }
  Unary* SetUse(Context* context, NodeUse use, v1::Node* response);

  const ApiRooms rooms_;
  const Limits limits_;
  CallRates rates_;
  StreamSet watchers_;   // look when there is news
  StreamSet followers_;  // of logs: look some times a second
  StreamSet readers_;    // of files: go on by themselves
  StreamSet exporters_;  // and who backs up: look when there is news
  int subscription_ = 0;
  NewsThread watcher_thread_;
  TaskThread follower_thread_;
  Submissions submissions_;
  Exports exports_;
  Backups backups_;
  DiskEndings endings_{rooms_.disks};
};

}  // namespace trireme::coordinator
