// Where the logs of a job's attempts are, and which of them there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// InvalidArgument names the ranks and attempts there are; FailedPrecondition: there is none yet,
// and the request does not follow.
absl::Status CheckLog(const v1::Job& job, const v1::LogsRequest& request);
// At most `most_bytes` of what is still there from `offset` on, which is moved to the first of
// them: the middle of a log that has become too long is given back to the disk (a hole in the
// file). Empty: no byte is there yet. Blocks on the disk.
absl::StatusOr<std::string> ReadLog(int fd, int64_t& offset, size_t most_bytes);
std::string LogPath(const std::string& run_folder, uint32_t attempt, int rank);

}  // namespace trireme::coordinator
