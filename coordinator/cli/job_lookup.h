// The job that a person means.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/client/client.h"

namespace trireme::cli {

// `job`: a number, or a name, of which the newest is meant. InvalidArgument: several jobs of that
// name have not ended (they are listed); NotFound.
absl::StatusOr<v1::Job> FindJob(client::Client& client, const std::string& job);

// All pages of a list.
absl::StatusOr<v1::ListResponse> ListAll(client::Client& client, v1::ListRequest request);

}  // namespace trireme::cli
