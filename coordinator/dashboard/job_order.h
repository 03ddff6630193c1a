// Jobs in the order in which a person asks of them, page by page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/reconciler/job_table.h"

namespace trireme::dashboard {

struct JobPage {
  std::vector<v1::Job> jobs;  // without specs
  std::string next;           // `token` of the page after it; empty: there is none
};

// As `trireme top` has them: what is at work, what waits by its place in the queue, what has been
// paused, what has ended, there the newest first. `wanted`: owner and states; `token`: empty for
// the first page. InvalidArgument: not a token of ours.
// `store` as of JobTable.
absl::StatusOr<JobPage> OrderedJobs(const coordinator::JobTable& table,
                                    coordinator::JobStore* store, v1::ListRequest wanted,
                                    const std::string& token, uint32_t size);

}  // namespace trireme::dashboard
