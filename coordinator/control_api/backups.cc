#include "coordinator/control_api/backups.h"

#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "coordinator/calls/rates.h"
#include "runtime/base/durable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// The folder alone: one above it that is missing is a mistake, or a disk that is not mounted.
absl::Status MakeBackupFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) return base::SyncFolderOf(folder);
  const int error = errno;
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) {
    return base::DiskError(folder, "cannot be made, as a folder of the daemon's machine", error);
  }
  if (S_ISDIR(about.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(base::Text("folder: ", folder, " is no folder; name one"));
}

// PermissionDenied would say that the caller may not.
absl::Status OfDaemon(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::FailedPreconditionError(
      base::Text(base::MessageOf(status), "; the daemon must be allowed to write there: its user, ",
                 "and under systemd ReadWritePaths of its unit"));
}

}  // namespace

std::string BackupName(int64_t now_unix_ns) {
  const time_t seconds = now_unix_ns / 1'000'000'000;
  struct tm utc {};
  gmtime_r(&seconds, &utc);
  char text[64];
  strftime(text, sizeof text, "jobs-%Y-%m-%dT%H%M%SZ.db", &utc);
  return text;
}

absl::Status CheckBackupFolder(const std::string& folder) {
  if (!folder.empty() && folder[0] == '/' && folder.find('\0') == std::string::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("folder: expected an absolute path on the daemon's machine");
}

absl::Status Backups::Begin(const v1::BackupRequest& request,
                            const std::shared_ptr<BackupCall>& call) {
  absl::Status posted = thread_.Post([this, request, call] {
    call->End(Run(request, *call));
    call->News();
  });
  if (posted.ok()) return posted;
  return WithRetryAfter(
      absl::ResourceExhaustedError("too many backups wait already; try again when some have ended"),
      kFullForMs);
}

absl::Status Backups::Run(const v1::BackupRequest& request, BackupCall& call) const {
  RETURN_IF_ERROR(call.StillWanted());
  const std::filesystem::path folder =
      std::filesystem::path(request.folder() + "/").lexically_normal().parent_path();
  RETURN_IF_ERROR(OfDaemon(MakeBackupFolder(folder.string())));
  v1::BackupResponse response;
  response.set_file((folder / BackupName(NowUnixNs())).string());
  const BackupProgress progress = [&](uint64_t done, uint64_t total) {
    response.set_bytes_done(done);
    response.set_bytes_total(total);
    call.Tell(response);
    call.News();
    return call.StillWanted();
  };
  const auto report = store_.Backup(response.file(), progress);
  if (!report.ok()) return OfDaemon(report.status());
  response.set_bytes_done(report->bytes);
  response.set_bytes_total(report->bytes);
  response.set_jobs(report->jobs);
  response.set_events(report->events);
  response.set_done(true);
  call.Tell(response);
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
