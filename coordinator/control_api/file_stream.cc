#include "coordinator/control_api/file_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trireme::coordinator {
namespace {

constexpr int64_t kMostFilePieceBytes = 64 << 10;

}  // namespace

FileStream::FileStream(const v1::ReadFileRequest& request, int fd, StreamSet& streams)
    : PacedStream(streams), fd_(fd) {
  struct stat about {};
  const absl::MutexLock lock(&mutex_);
  if (fstat(fd_, &about) == 0) end_ = about.st_size;
  offset_ = request.offset() < 0 ? std::max<int64_t>(0, end_ + request.offset()) : request.offset();
  const int64_t left = std::max<int64_t>(0, end_ - offset_);
  if (request.most_bytes() != 0 && request.most_bytes() < static_cast<uint64_t>(left)) {
    end_ = offset_ + static_cast<int64_t>(request.most_bytes());
  }
}

FileStream::~FileStream() { close(fd_); }

void FileStream::SendNext() {
  std::string& data = *response_.mutable_data();
  data.resize(static_cast<size_t>(std::clamp<int64_t>(end_ - offset_, 0, kMostFilePieceBytes)));
  const ssize_t got = data.empty() ? 0 : pread(fd_, data.data(), data.size(), offset_);
  if (got < 0) return Close(absl::ErrnoToStatus(errno, "cannot read the file"));
  // What has become shorter meanwhile ends where it ends.
  if (got == 0) return Close(absl::OkStatus());
  data.resize(static_cast<size_t>(got));
  response_.set_offset(static_cast<uint64_t>(offset_));
  offset_ += got;
  Write();
}

}  // namespace trireme::coordinator
