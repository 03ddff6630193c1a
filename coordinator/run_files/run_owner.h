// Whose a run folder is: RUN/run.json, docs/adr/0018.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct RunOwner {
  uint64_t job = 0;
  std::string store;
};

// NotFound: nobody's, or there is no such folder. InvalidArgument: it does not say. Else the disk.
// Follows no link; blocks on the disk alone, whatever lies there.
absl::StatusOr<RunOwner> ReadRunOwner(const std::string& run_folder);

// NotFound: what lies in the job's run folder is another job's, and nothing of it is to be shown;
// `store` is that of the job. One that is nobody's is the job's, as before folders were claimed.
absl::Status CheckRunOwner(const v1::Job& job, const std::string& store);

}  // namespace trireme::coordinator
