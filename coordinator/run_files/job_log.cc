#include "coordinator/run_files/job_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::coordinator {

absl::Status CheckLog(const v1::Job& job, const v1::LogsRequest& request) {
  if (job.status().attempt() == 0 && !request.follow()) {
    return absl::FailedPreconditionError(
        "the job has not been started yet, so it has no logs (LogsRequest.follow waits for them)");
  }
  if (request.attempt() > job.status().attempt()) {
    return absl::InvalidArgumentError(
        fmt::format("attempt: {} is out of range, expected {} to {}", request.attempt(),
                    std::min(job.status().attempt(), 1u), job.status().attempt()));
  }
  const int rank = request.rank();
  const int ranks = static_cast<int>(job.resources().ranks());
  if (rank < -1 || rank >= ranks) {
    return absl::InvalidArgumentError(fmt::format(
        "rank: {} is out of range, expected 0 to {}, or -1 for the launcher", rank, ranks - 1));
  }
  return absl::OkStatus();
}

std::string LogPath(const std::string& run_folder, uint32_t attempt, int rank) {
  const std::string folder = fmt::format("{}/attempts/{}/logs", run_folder, attempt);
  return rank < 0 ? folder + "/mpirun.log" : fmt::format("{}/rank-{}.log", folder, rank);
}

}  // namespace trireme::coordinator
