// The part of the service Control that is about files: of a job's run folder, and backups.
#include <utility>

#include "coordinator/control_api/control_service.h"
#include "coordinator/control_api/file_stream.h"
#include "coordinator/control_api/job_checkpoints.h"
#include "coordinator/control_api/progress_stream.h"
#include "coordinator/run_files/run_files.h"
#include "coordinator/run_files/run_owner.h"

namespace trireme::coordinator {

ControlService::Unary* ControlService::ListFiles(Context* context,
                                                 const v1::ListFilesRequest* request,
                                                 v1::ListFilesResponse* response) {
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return Done(context, touched.status());
  Unary* reactor = context->DefaultReactor();
  const v1::Job& job = touched->job;
  AnswerFromDisk(reactor, {job.run_folder(), touched->caller.user}, response,
                 [job, store = rooms_.identity.store()]() -> absl::StatusOr<v1::ListFilesResponse> {
                   RETURN_IF_ERROR(CheckRunOwner(job, store));
                   v1::ListFilesResponse files;
                   for (v1::FileInfo& file : ListRunFiles(job.run_folder())) {
                     *files.add_files() = std::move(file);
                   }
                   return files;
                 });
  return reactor;
}

// Whose the run folder is and what is in the folder of checkpoints are asked one after the other:
// they may be on different disks.
ControlService::Unary* ControlService::ListCheckpoints(Context* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsResponse* response) {
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return Done(context, touched.status());
  Unary* reactor = context->DefaultReactor();
  const v1::Job& job = touched->job;
  const std::string& user = touched->caller.user;
  const absl::Status begun = rooms_.disks.Begin(
      {job.run_folder(), user},
      [job, store = rooms_.identity.store()] { return CheckRunOwner(job, store); },
      [this, reactor, response, job, user](const absl::Status& owned) {
        if (!owned.ok()) return reactor->Finish(ToGrpc(owned));
        AnswerFromDisk(
            reactor, {CheckpointFolderOf(job), user}, response,
            [job, rules = rooms_.rules]() -> absl::StatusOr<v1::ListCheckpointsResponse> {
              ASSIGN_OR_RETURN(const CheckpointRoot root, CheckpointRootOf(job, rules));
              return CheckpointsIn(root);
            });
      });
  if (!begun.ok()) reactor->Finish(NotBegun(begun));
  return reactor;
}

grpc::ServerWriteReactor<v1::ReadFileResponse>* ControlService::ReadFile(
    Context* context, const v1::ReadFileRequest* request) {
  using Refused = RefusedStream<v1::ReadFileResponse>;
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return new Refused(ToGrpc(touched.status()));
  return Open(
      new FileStream(*request, touched->job, rooms_.identity.store(), rooms_.disks, readers_),
      readers_, touched->caller);
}

grpc::ServerWriteReactor<v1::ExportResponse>* ControlService::Export(
    Context* context, const v1::ExportRequest* request) {
  using Refused = RefusedStream<v1::ExportResponse>;
  const auto touched = Touch(*context, request->job_id());
  if (!touched.ok()) return new Refused(ToGrpc(touched.status()));
  const auto call = std::make_shared<ExportCall>();
  auto* stream = new ProgressStream<v1::ExportResponse>(call, exporters_);
  if (const auto begun = exports_.Begin(touched->job, *request, call); !begun.ok()) {
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
  if (const auto begun = backups_.Begin(*request, call); !begun.ok()) call->End(begun);
  return Open(stream, exporters_, *caller);
}

}  // namespace trireme::coordinator
