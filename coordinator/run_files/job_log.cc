#include "coordinator/run_files/job_log.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trireme::coordinator {
namespace {

constexpr int kMostLooks = 10;

std::string AttemptFolder(const std::string& run_folder, uint32_t attempt) {
  return fmt::format("{}/attempts/{}", run_folder, attempt);
}

absl::Status NoSuchAttempt(const v1::Job& job, uint32_t attempt) {
  const uint32_t newest = job.status().attempt();
  return absl::InvalidArgumentError(fmt::format("attempt: {} is out of range, expected {} to {}",
                                                attempt, std::min(newest, 1u), newest));
}

}  // namespace

absl::Status CheckLog(const v1::Job& job, const v1::LogsRequest& request) {
  if (job.status().attempt() == 0 && !request.follow()) {
    return absl::FailedPreconditionError(
        "the job has not been started yet, so it has no logs (LogsRequest.follow waits for them)");
  }
  if (request.attempt() > job.status().attempt() && !request.follow()) {
    return NoSuchAttempt(job, request.attempt());
  }
  const int rank = request.rank();
  const int ranks = static_cast<int>(job.resources().ranks());
  if (rank < -1 || rank >= ranks) {
    return absl::InvalidArgumentError(
        fmt::format("rank: {} is out of range, expected 0 to {} (or the launcher's: -1 in "
                    "LogsRequest, --launcher "
                    "of trireme logs)",
                    rank, ranks - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckLaterAttempt(const v1::Job& job, uint32_t attempt) {
  const std::string folder = AttemptFolder(job.run_folder(), attempt);
  struct stat about {};
  const bool there = stat(folder.c_str(), &about) == 0;
  if (there && S_ISDIR(about.st_mode)) return absl::OkStatus();
  if (there || errno == ENOENT || errno == ENOTDIR) return NoSuchAttempt(job, attempt);
  return absl::ErrnoToStatus(errno, "cannot look at " + folder);
}

absl::StatusOr<std::string> ReadLog(int fd, int64_t& offset, size_t most_bytes) {
  const auto failed = [] { return absl::ErrnoToStatus(errno, "cannot read the log"); };
  std::string data;
  // Again where a hole has been made while it was read.
  for (int look = 0; look < kMostLooks; ++look) {
    const off_t start = lseek(fd, offset, SEEK_DATA);
    if (start < 0 && errno == ENXIO) return "";
    if (start < 0) return failed();
    data.resize(most_bytes);
    const ssize_t got = pread(fd, data.data(), data.size(), start);
    if (got < 0) return failed();
    const off_t hole = lseek(fd, start, SEEK_HOLE);
    if (hole < 0 && errno != ENXIO) return failed();
    if (hole <= start) continue;
    offset = start;
    data.resize(std::min(static_cast<size_t>(got), static_cast<size_t>(hole - start)));
    return data;
  }
  return "";
}

std::string LogPath(const std::string& run_folder, uint32_t attempt, int rank) {
  const std::string folder = AttemptFolder(run_folder, attempt) + "/logs";
  return rank < 0 ? folder + "/mpirun.log" : fmt::format("{}/rank-{}.log", folder, rank);
}

}  // namespace trireme::coordinator
