// From a job file to a resolved job and its plan, in the order that finds errors before anything
// starts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/planning/job_planning.h"

namespace trireme::cli {

// Loads and validates; warnings go to stderr; every path is absolute, so that the job may be
// written elsewhere.
absl::StatusOr<v1::JobSpec> LoadResolvedJob(const std::string& path,
                                            const std::vector<std::string>& overrides);

using coordinator::OneLine;
using coordinator::PlannedJob;

enum class TextUse { kNeeded, kOptional };
// kOptional: a text that is not there is only warned of, where the job gives its vocabulary.
absl::StatusOr<PlannedJob> LoadAndPlan(const std::string& path,
                                       const std::vector<std::string>& overrides, int ranks,
                                       TextUse text = TextUse::kNeeded);

}  // namespace trireme::cli
