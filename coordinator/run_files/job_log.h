// Where the logs of a job's attempts are, and which of them there are.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// InvalidArgument names the ranks and attempts there are; FailedPrecondition: there is none yet,
// and the request does not follow.
absl::Status CheckLog(const v1::Job& job, const v1::LogsRequest& request);
std::string LogPath(const std::string& run_folder, uint32_t attempt, int rank);

}  // namespace trireme::coordinator
