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
// and the request does not follow. Who follows a later attempt than the job's newest is let
// through: CheckLaterAttempt says whether there is one.
absl::Status CheckLog(const v1::Job& job, const v1::LogsRequest& request);
// A store that was put back from a backup lacks attempts that it began later; the run folder has
// them, and a node that is adopted brings them back. InvalidArgument as of CheckLog: there never
// was such an attempt. Blocks on the disk.
absl::Status CheckLaterAttempt(const v1::Job& job, uint32_t attempt);
// At most `most_bytes` of what is still there from `offset` on, which is moved to the first of
// them: the middle of a log that has become too long is given back to the disk (a hole in the
// file). Empty: no byte is there yet. Blocks on the disk.
absl::StatusOr<std::string> ReadLog(int fd, int64_t& offset, size_t most_bytes);
std::string LogPath(const std::string& run_folder, uint32_t attempt, int rank);

}  // namespace trireme::coordinator
