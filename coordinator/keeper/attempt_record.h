// What this node knows of an attempt, in a file that is there before anything of the attempt is:
// STATE/attempts/JOB-ATTEMPT-STORE.json, whole or absent. The order in which record, folder, guard
// and ranks come to be is in the room's README.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

struct AttemptRecord {
  v1::DesiredAttempt desired;  // as last told
  std::string boot_id;         // of the machine when it was first told
  bool begun = false;          // its folder is made, a guard may have been forked
  // Why it is never started (it may run all the same, begun by others); empty: it may be started.
  std::string never_started;
  int exit_code = 0;    // goes with never_started
  bool unable = false;  // likewise: it is this node that could not start it
  // Why its start has failed here, which its folder may be too sick to be sealed for; empty: it has
  // not, or what it left behind runs.
  std::string start_failed;
  // CLOCK_MONOTONIC of the first request to stop, of the machine's start at that time; 0: none.
  int64_t stop_at_ns = 0;
  std::string cut_off;  // why it is ended, whatever is desired (Lifeline::Cut); empty: it is not
};

// "7-3".
std::string AttemptName(uint64_t job_id, uint32_t attempt);
// On the disk when this returns.
absl::Status SaveRecord(const std::string& state_folder, const AttemptRecord& record);
void RemoveRecord(const std::string& state_folder, const AttemptRecord& record);
// All of them. DataLoss names a file that is no record: nobody but people can say what runs then.
absl::StatusOr<std::vector<AttemptRecord>> LoadRecords(const std::string& state_folder);

}  // namespace trireme::keeper
