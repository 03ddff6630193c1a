// The part of the service Control that is about files: of a job's run folder, and backups.
#include <utility>

#include "coordinator/control_api/control_service.h"
#include "coordinator/control_api/file_stream.h"
#include "coordinator/control_api/progress_stream.h"
#include "coordinator/run_files/run_files.h"
#include "coordinator/run_files/run_owner.h"

namespace trireme::coordinator {

ControlService::Unary* ControlService::ListFiles(Context* context,
                                                 const v1::ListFilesRequest* request,
                                                 v1::ListFilesResponse* response) {
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return Done(context, touched.status());
  return OnThread(rooms_.lister, touched->caller.user, context,
                  [this, job = touched->job, response](Unary* reactor) {
                    const absl::Status owned = CheckRunOwner(job, rooms_.identity.store());
                    if (!owned.ok()) return reactor->Finish(ToGrpc(owned));
                    for (v1::FileInfo& file : ListRunFiles(job.run_folder())) {
                      *response->add_files() = std::move(file);
                    }
                    reactor->Finish(grpc::Status::OK);
                  });
}

grpc::ServerWriteReactor<v1::ReadFileResponse>* ControlService::ReadFile(
    Context* context, const v1::ReadFileRequest* request) {
  using Refused = RefusedStream<v1::ReadFileResponse>;
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return new Refused(ToGrpc(touched.status()));
  const absl::Status owned = CheckRunOwner(touched->job, rooms_.identity.store());
  if (!owned.ok()) return new Refused(ToGrpc(owned));
  const auto fd = OpenRunFile(touched->job.run_folder(), request->path());
  if (!fd.ok()) return new Refused(ToGrpc(fd.status()));
  return Open(new FileStream(*request, *fd, readers_), readers_, touched->caller);
}

grpc::ServerWriteReactor<v1::ExportResponse>* ControlService::Export(
    Context* context, const v1::ExportRequest* request) {
  using Refused = RefusedStream<v1::ExportResponse>;
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return new Refused(ToGrpc(touched.status()));
  const absl::Status owned = CheckRunOwner(touched->job, rooms_.identity.store());
  if (!owned.ok()) return new Refused(ToGrpc(owned));
  const auto folder = ExportFolder(touched->job, *request, request->step(), rooms_.rules);
  if (!folder.ok()) return new Refused(ToGrpc(folder.status()));
  const auto call = std::make_shared<ExportCall>();
  auto* stream = new ProgressStream<v1::ExportResponse>(call, exporters_);
  const auto news = [this, stream] { exporters_.LookAgain(stream); };
  if (const auto begun = exports_.Begin(touched->job, *request, call, news); !begun.ok()) {
    call->End(begun);
  }
  return Open(stream, exporters_, touched->caller);
}

grpc::ServerWriteReactor<v1::BackupResponse>* ControlService::Backup(
    Context* context, const v1::BackupRequest* request) {
  using Refused = RefusedStream<v1::BackupResponse>;
  const auto caller = Admit(*context, Role::kAdmin);
  if (!caller.ok()) return new Refused(ToGrpc(caller.status()));
  const auto folder = CheckBackupFolder(request->folder());
  if (!folder.ok()) return new Refused(ToGrpc(folder));
  const auto call = std::make_shared<BackupCall>();
  auto* stream = new ProgressStream<v1::BackupResponse>(call, exporters_);
  const auto news = [this, stream] { exporters_.LookAgain(stream); };
  if (const auto begun = backups_.Begin(*request, call, news); !begun.ok()) call->End(begun);
  return Open(stream, exporters_, *caller);
}

}  // namespace trireme::coordinator
