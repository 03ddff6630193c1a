// Whose a run folder is: RUN/run.json, docs/adr/0018. What another store has left in a folder is
// not taken for a job's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/reconciler/reconciler.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Makes the job's run folder, and makes it the job's: of one that was made before folders were
// claimed, by an attempt that is not the first. InvalidArgument: it is another job's. Unavailable:
// the disk. Blocks on it.
absl::Status ClaimRunFolder(const v1::Job& job, const v1::StorePosition& store);

// This attempt of the job counts from now on, and none before it (docs/adr/0019). Unavailable: the
// disk. Blocks on it.
absl::Status ClaimForAttempt(const v1::Job& job, uint32_t attempt, const std::string& store);

// The attempt that the job has counts no longer: the next one does. FailedPrecondition: a still
// newer one counts, which this store does not know. Unavailable: the disk. Blocks on it.
absl::Status RevokeClaim(const v1::Job& job, const std::string& store);

// The newest attempt in the job's run folder, if it is as new as the one that is planned, which
// nobody has been told of yet. InvalidArgument: no number is left. Blocks on the disk.
absl::StatusOr<std::optional<UnknownAttempt>> FindUnknownAttempt(const v1::Job& job,
                                                                 const std::string& store);

}  // namespace trireme::coordinator
