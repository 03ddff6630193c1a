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
  Unary* reactor = context->DefaultReactor();
  Touch(*context, request->job_id(), [=, this](const absl::StatusOr<Touched>& touched) {
    if (!touched.ok()) return reactor->Finish(ToGrpc(touched.status()));
    const v1::Job& job = touched->job;
    AnswerFromDisk(
        reactor, {job.run_folder(), touched->caller.user}, response,
        [job, store = rooms_.identity.store()]() -> absl::StatusOr<v1::ListFilesResponse> {
          RETURN_IF_ERROR(CheckRunOwner(job, store));
          v1::ListFilesResponse files;
          for (v1::FileInfo& file : ListRunFiles(job.run_folder())) {
            *files.add_files() = std::move(file);
          }
          return files;
        });
  });
  return reactor;
}

// Whose the run folder is and what is in the folder of checkpoints are asked one after the other:
// they may be on different disks.
ControlService::Unary* ControlService::ListCheckpoints(Context* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsResponse* response) {
  Unary* reactor = context->DefaultReactor();
  Touch(*context, request->job_id(), [=, this](const absl::StatusOr<Touched>& touched) {
    if (!touched.ok()) return reactor->Finish(ToGrpc(touched.status()));
    const v1::Job& job = touched->job;
    const std::string& user = touched->caller.user;
    const absl::Status begun = rooms_.disks.Begin(
        {job.run_folder(), user},
        [job, store = rooms_.identity.store()] { return CheckRunOwner(job, store); },
        [=, this](const absl::Status& owned) {
          if (!owned.ok()) return reactor->Finish(ToGrpc(owned));
          AnswerFromDisk(
              reactor, {CheckpointFolderOf(job), user}, response,
              [job, rules = rooms_.rules]() -> absl::StatusOr<v1::ListCheckpointsResponse> {
                ASSIGN_OR_RETURN(const CheckpointRoot root, CheckpointRootOf(job, rules));
                return CheckpointsIn(root);
              });
        });
    if (!begun.ok()) reactor->Finish(NotBegun(begun));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::ReadFileResponse>* ControlService::ReadFile(
    Context* context, const v1::ReadFileRequest* request) {
  auto* stream = new FileStream(*request, rooms_.disks, endings_, readers_);
  return OpenOf(Admit(*context, Role::kSubmit), request->job_id(), stream, readers_,
                [stream, store = rooms_.identity.store()](const v1::Job& job) {
                  stream->SetJob(job, store);
                  return absl::OkStatus();
                });
}

grpc::ServerWriteReactor<v1::ExportResponse>* ControlService::Export(
    Context* context, const v1::ExportRequest* request) {
  const auto call = std::make_shared<ExportCall>();
  auto* stream = new ProgressStream<v1::ExportResponse>(call, exporters_);
  return OpenOf(Admit(*context, Role::kSubmit), request->job_id(), stream, exporters_,
                [this, call, asked = *request](const v1::Job& job) {
                  return exports_.Begin(job, asked, call);
                });
}

grpc::ServerWriteReactor<v1::BackupResponse>* ControlService::Backup(
    Context* context, const v1::BackupRequest* request) {
  const auto caller = Admit(*context, Role::kAdmin);
  const auto call = std::make_shared<BackupCall>();
  auto* stream = new ProgressStream<v1::BackupResponse>(call, exporters_);
  absl::Status may = caller.status();
  if (may.ok()) may = CheckBackupFolder(request->folder());
  if (may.ok()) may = backups_.Begin(*request, call);
  return Open(caller, stream, exporters_, may);
}

}  // namespace trireme::coordinator
