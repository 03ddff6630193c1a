// RUN/claim.json: which attempt of a job counts (docs/formats/run_folder.md, docs/adr/0019).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::run_claim {

struct RunClaim {
  uint64_t job = 0;
  uint32_t attempt = 0;
  std::string store;  // whose job it is; empty: of before stores had names
};

// Whole and on the disk when it returns. Blocks on the disk; errors are the disk's.
absl::Status WriteRunClaim(const std::string& run_folder, const RunClaim& claim);
// NotFound: there is none, or no such folder. DataLoss: it is no claim. Else the disk. Blocks on
// the disk alone, whatever lies there: links are not followed.
absl::StatusOr<RunClaim> ReadRunClaim(const std::string& run_folder);
// FailedPrecondition: a newer attempt than `attempt` counts, so that this one must publish nothing
// more. OK where it counts, where an older one does, or where there is no claim; else as
// ReadRunClaim.
absl::Status CheckRunClaim(const std::string& run_folder, uint32_t attempt);

}  // namespace trireme::run_claim
