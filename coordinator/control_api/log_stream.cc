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

// Threads: those of its disk, one at a time.
class LogReader {
 public:
  LogReader(const v1::LogsRequest& request, const v1::Job& job, const std::string& store)
      : rank_(request.rank()),
        offset_(request.offset()),
        named_attempt_(request.attempt()),
        job_(job),
        store_(store) {}
  ~LogReader() {
    if (fd_ >= 0) close(fd_);
  }
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // `attempt` is the same in all calls.
  absl::StatusOr<LogPiece> Next(uint32_t attempt) {
    if (fd_ < 0) RETURN_IF_ERROR(Open(attempt));
    if (fd_ < 0) return LogPiece{};
    LogPiece piece;
    ASSIGN_OR_RETURN(piece.data, ReadLog(fd_, offset_, kMostLogPieceBytes));
    piece.offset = offset_;
    offset_ += static_cast<int64_t>(piece.data.size());
    return piece;
  }

 private:
  // OK without a descriptor: it is not there yet.
  absl::Status Open(uint32_t attempt) {
    const std::string path = LogPath(job_.run_folder(), attempt, rank_);
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd_ < 0) {
      if (errno != ENOENT) return absl::ErrnoToStatus(errno, "cannot open " + path);
      const bool later = named_attempt_ > job_.status().attempt();
      return later ? CheckLaterAttempt(job_, attempt) : absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckRunOwner(job_, store_));
    struct stat about {};
    if (offset_ < 0 && fstat(fd_, &about) == 0) {
      offset_ = std::max<int64_t>(0, about.st_size + offset_);
    }
    return absl::OkStatus();
  }

  const int rank_;
  int64_t offset_;
  const uint32_t named_attempt_;  // 0: the newest, which may have begun since job_ was read
  const v1::Job job_;
  const std::string store_;
  int fd_ = -1;
};

LogStream::LogStream(const ApiRooms& rooms, const v1::LogsRequest& request, DiskEndings& endings,
                     StreamSet& streams)
    : DiskStream(rooms.disks, streams), table_(rooms.table), request_(request), endings_(endings) {}

LogStream::~LogStream() {
  if (was_read_) endings_.End(where_, std::move(reader_));
}

void LogStream::SetJob(const v1::Job& job, const std::string& store) {
  const absl::MutexLock lock(&mutex_);
  where_ = {job.run_folder(), job.owner()};
  reader_ = std::make_shared<LogReader>(request_, job, store);
  attempt_ = request_.attempt() == 0 ? job.status().attempt() : request_.attempt();
}

bool LogStream::AttemptIsOver() const {
  const auto status = table_.StatusOf(request_.job_id());
  if (!status) return true;
  // The store was put back from a backup: the attempt may be adopted yet, or another be next.
  if (status->attempt() < attempt_) return HasEnded(status->state());
  return status->attempt() > attempt_ ||
         (!status->attempt_live() && status->state() != v1::JOB_PLANNING);
}

bool LogStream::Begun() {
  if (attempt_ > 0) return true;
  const auto status = table_.StatusOf(request_.job_id());
  attempt_ = status ? status->attempt() : 0;
  if (attempt_ == 0 && (!status || HasEnded(status->state()))) Close(absl::OkStatus());
  return attempt_ > 0;
}

void LogStream::Ask() {
  if (!Begun() || closed()) return;
  // Asked before the file is: what is written after the end is not waited for.
  over_ = !request_.follow() || AttemptIsOver();
  AskDisk(where_, [reader = reader_, attempt = attempt_] { return reader->Next(attempt); });
  was_read_ |= !closed();
}

void LogStream::Use(LogPiece piece) {
  if (!piece.data.empty()) {
    response_.set_offset(static_cast<uint64_t>(piece.offset));
    response_.set_attempt(attempt_);
    *response_.mutable_data() = std::move(piece.data);
    Write();
  } else if (over_) {
    Close(absl::OkStatus());
  }
}

}  // namespace trireme::coordinator
