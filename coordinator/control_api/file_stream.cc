#include "coordinator/control_api/file_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "coordinator/run_files/run_files.h"
#include "coordinator/run_files/run_owner.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kMostFilePieceBytes = 64 << 10;

}  // namespace

// Threads: those of its disk, one at a time.
class RunFileReader {
 public:
  RunFileReader(const v1::ReadFileRequest& request, const v1::Job& job, const std::string& store)
      : request_(request), job_(job), store_(store) {}
  ~RunFileReader() {
    if (fd_ >= 0) close(fd_);
  }
  RunFileReader(const RunFileReader&) = delete;
  RunFileReader& operator=(const RunFileReader&) = delete;

  absl::StatusOr<FilePiece> Next() {
    if (fd_ < 0) RETURN_IF_ERROR(Open());
    FilePiece piece{offset_, ""};
    std::string& data = piece.data;
    data.resize(static_cast<size_t>(std::clamp<int64_t>(end_ - offset_, 0, kMostFilePieceBytes)));
    const ssize_t got = data.empty() ? 0 : pread(fd_, data.data(), data.size(), offset_);
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot read the file");
    // What has become shorter meanwhile ends where it ends.
    data.resize(static_cast<size_t>(got));
    offset_ += got;
    return piece;
  }

 private:
  absl::Status Open() {
    RETURN_IF_ERROR(CheckRunOwner(job_, store_));
    ASSIGN_OR_RETURN(fd_, OpenRunFile(job_.run_folder(), request_.path()));
    struct stat about {};
    if (fstat(fd_, &about) == 0) end_ = about.st_size;
    offset_ =
        request_.offset() < 0 ? std::max<int64_t>(0, end_ + request_.offset()) : request_.offset();
    const int64_t left = std::max<int64_t>(0, end_ - offset_);
    if (request_.most_bytes() != 0 && request_.most_bytes() < static_cast<uint64_t>(left)) {
      end_ = offset_ + static_cast<int64_t>(request_.most_bytes());
    }
    return absl::OkStatus();
  }

  const v1::ReadFileRequest request_;
  const v1::Job job_;
  const std::string store_;
  int fd_ = -1;
  int64_t offset_ = 0;
  int64_t end_ = 0;
};

FileStream::FileStream(const v1::ReadFileRequest& request, DiskCalls& disks, DiskEndings& endings,
                       StreamSet& streams)
    : DiskStream(disks, streams), request_(request), endings_(endings) {}

FileStream::~FileStream() {
  if (was_read_) endings_.End(where_, std::move(reader_));
}

void FileStream::SetJob(const v1::Job& job, const std::string& store) {
  const absl::MutexLock lock(&mutex_);
  where_ = {job.run_folder(), job.owner()};
  reader_ = std::make_shared<RunFileReader>(request_, job, store);
}

void FileStream::Ask() {
  AskDisk(where_, [reader = reader_] { return reader->Next(); });
  was_read_ |= !closed();
}

void FileStream::Use(FilePiece piece) {
  if (piece.data.empty()) return Close(absl::OkStatus());
  response_.set_offset(static_cast<uint64_t>(piece.offset));
  *response_.mutable_data() = std::move(piece.data);
  Write();
}

}  // namespace trireme::coordinator
