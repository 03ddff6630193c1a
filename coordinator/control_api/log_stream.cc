// A file by offsets; it is opened when it is there.
#include "coordinator/control_api/log_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "coordinator/run_files/job_log.h"
#include "coordinator/run_files/run_owner.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostLogPieceBytes = 64 << 10;

}  // namespace

LogStream::LogStream(const ApiRooms& rooms, const v1::LogsRequest& request, const v1::Job& job,
                     StreamSet& streams)
    : PacedStream(streams),
      table_(rooms.table),
      request_(request),
      store_(rooms.identity.store()),
      job_(job),
      attempt_(request.attempt() == 0 ? job.status().attempt() : request.attempt()),
      offset_(request.offset()) {}

LogStream::~LogStream() {
  if (fd_ >= 0) close(fd_);
}

bool LogStream::AttemptIsOver() const {
  const auto status = table_.StatusOf(request_.job_id());
  return !status || status->attempt() != attempt_ ||
         (!status->attempt_live() && status->state() != v1::JOB_PLANNING);
}

bool LogStream::Begun() {
  if (attempt_ > 0) return true;
  const auto status = table_.StatusOf(request_.job_id());
  if (!status || (status->attempt() == 0 && HasEnded(status->state()))) Close(absl::OkStatus());
  attempt_ = status ? status->attempt() : 0;
  return attempt_ > 0;
}

bool LogStream::Opened() {
  if (fd_ >= 0) return true;
  const std::string path = LogPath(job_.run_folder(), attempt_, request_.rank());
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd_ < 0) {
    if (errno != ENOENT) Close(absl::ErrnoToStatus(errno, "cannot open " + path));
    return false;
  }
  if (const absl::Status owned = CheckRunOwner(job_, store_); !owned.ok()) {
    Close(owned);
    return false;
  }
  struct stat about {};
  if (offset_ < 0 && fstat(fd_, &about) == 0) {
    offset_ = std::max<int64_t>(0, about.st_size + offset_);
  }
  return true;
}

bool LogStream::Read() {
  if (!Opened()) return false;
  absl::StatusOr<std::string> data = ReadLog(fd_, offset_, kMostLogPieceBytes);
  if (!data.ok()) Close(data.status());
  if (!data.ok() || data->empty()) return false;
  response_.set_offset(static_cast<uint64_t>(offset_));
  response_.set_attempt(attempt_);
  offset_ += static_cast<int64_t>(data->size());
  *response_.mutable_data() = *std::move(data);
  return true;
}

void LogStream::SendNext() {
  if (!Begun()) return;
  // Asked before the file is: what is written after the end is not waited for.
  const bool over = !request_.follow() || AttemptIsOver();
  if (Read()) {
    Write();
  } else if (over) {
    Close(absl::OkStatus());
  }
}

}  // namespace trireme::coordinator
