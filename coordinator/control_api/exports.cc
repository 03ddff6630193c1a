#include "coordinator/control_api/exports.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/hugging_face/export.h"
#include "coordinator/calls/rates.h"
#include "coordinator/control_api/job_checkpoints.h"
#include "coordinator/run_files/run_owner.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostWaiting = 16;  // for each pair of file systems

absl::StatusOr<checkpoint::Checkpoint> OpenCheckpoint(
    const v1::Job& job, uint64_t step, const SubmissionRules& rules,
    std::vector<checkpoint::Skipped>* passed_over) {
  ASSIGN_OR_RETURN(const CheckpointRoot root, CheckpointRootOf(job, rules));
  if (step != 0) {
    auto opened = checkpoint::Open(root.path + "/" + checkpoint::StepFolderName(step), root.links);
    if (!absl::IsNotFound(opened.status())) return opened;
    return absl::NotFoundError(
        fmt::format("step: job {} has no checkpoint of step {}; trireme checkpoints {} shows those "
                    "that there are",
                    job.id(), step, job.id()));
  }
  const auto newest =
      checkpoint::FindNewestUndamaged(root.path, passed_over, UINT64_MAX, root.links);
  if (newest.ok()) return checkpoint::Open(*newest, root.links);
  if (!absl::IsNotFound(newest.status())) return newest.status();
  return absl::NotFoundError(fmt::format("job {} has no checkpoint yet", job.id()));
}

absl::Status Export(const v1::Job& job, const v1::ExportRequest& request, ExportCall& call,
                    DiskPulse& pulse, const SubmissionRules& rules, const std::string& store) {
  const auto wanted = [&call](bool waited_for) {
    return waited_for ? call.StillWanted() : absl::CancelledError("it was given up");
  };
  const auto go_to = [&](const std::string& path) { return wanted(pulse.BeatAt(path)); };
  const std::string& target = request.folder().empty() ? job.run_folder() : request.folder();
  RETURN_IF_ERROR(go_to(job.run_folder()));
  RETURN_IF_ERROR(CheckRunOwner(job, store));
  // Before it is asked for anything else: a path that may not be is refused as such.
  RETURN_IF_ERROR(go_to(target));
  RETURN_IF_ERROR(ExportFolder(job, request, request.step(), rules).status());
  RETURN_IF_ERROR(go_to(CheckpointFolderOf(job)));
  std::vector<checkpoint::Skipped> passed_over;
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint,
                   OpenCheckpoint(job, request.step(), rules, &passed_over));
  v1::ExportResponse response;
  for (const checkpoint::Skipped& each : passed_over) {
    response.add_passed_over(fmt::format("{}: {}", each.folder, base::MessageOf(each.reason)));
  }
  response.set_step(checkpoint.info().step);
  // At once: whatever follows is of an older one.
  if (!passed_over.empty()) {
    call.Tell(response);
    call.News();
  }
  // Looked at again: links may have changed since it was asked for.
  RETURN_IF_ERROR(go_to(target));
  ASSIGN_OR_RETURN(const std::string folder,
                   ExportFolder(job, request, checkpoint.info().step, rules));
  if (request.folder().empty()) {
    std::error_code error;
    fs::create_directories(fs::path(folder).parent_path(), error);
  }
  response.set_folder(folder);
  checkpoint::ExportOptions options;
  options.folder = folder;
  options.looks_at = [&pulse](const std::string& path) { pulse.BeatAt(path); };
  options.progress = [&](uint64_t done, uint64_t total) {
    response.set_bytes_done(done);
    response.set_bytes_total(total);
    call.Tell(response);
    call.News();
    return wanted(pulse.Beat());
  };
  RETURN_IF_ERROR(checkpoint::ExportCheckpoint(checkpoint, options));
  response.set_done(true);
  call.Tell(response);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ExportFolder(const v1::Job& job, const v1::ExportRequest& request,
                                         uint64_t step, const SubmissionRules& rules) {
  if (request.folder().empty()) return fmt::format("{}/exports/step-{}", job.run_folder(), step);
  RETURN_IF_ERROR(CheckAllowed("folder", request.folder(), rules));
  fs::path path = fs::path(request.folder()).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::error_code error;
  // What was looked at is what is used: links above it are followed once, here.
  const fs::path above = fs::weakly_canonical(path.parent_path(), error);
  if (error || path.filename().empty()) {
    return absl::InvalidArgumentError(fmt::format("folder: '{}' cannot be used: {}",
                                                  request.folder(),
                                                  error ? error.message() : "it names no folder"));
  }
  const std::string real = (above / path.filename()).string();
  RETURN_IF_ERROR(CheckAllowed("folder", real, rules));
  return real;
}

Exports::Exports(SubmissionRules rules, std::string store,
                 std::shared_ptr<std::atomic<size_t>> hanging,
                 std::chrono::milliseconds no_progress_for)
    : rules_(std::move(rules)),
      store_(std::move(store)),
      calls_({.name = "exports",
              .threads = 1,
              .most_waiting = kMostWaiting,
              .most_of_owner = kMostWaiting / 2,
              .deadline = no_progress_for,
              .hangs_after = no_progress_for,  // to flush a large file may take long
              .hanging_of_all = std::move(hanging)}) {}

absl::Status Exports::Begin(const v1::Job& job, const v1::ExportRequest& request,
                            const std::shared_ptr<ExportCall>& call) {
  DiskPath where{CheckpointFolderOf(job), job.owner()};
  where.also = {job.run_folder(), request.folder().empty() ? job.run_folder() : request.folder()};
  where.pulse = std::make_shared<DiskPulse>();
  absl::Status begun = calls_.Begin(
      where,
      [job, request, call, pulse = where.pulse, rules = rules_, store = store_] {
        return Export(job, request, *call, *pulse, rules, store);
      },
      [call](const absl::Status& status) {
        call->End(status);
        call->News();
      });
  if (!absl::IsResourceExhausted(begun)) return begun;
  return WithRetryAfter(
      absl::ResourceExhaustedError("too many exports wait already; try again when some have ended"),
      kFullForMs);
}

}  // namespace trireme::coordinator
