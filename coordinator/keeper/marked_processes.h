// Processes of an attempt, known by two variables of their environment that mpirun, ranks and what
// they start inherit: TRIREME_ATTEMPT=JOB-ATTEMPT and TRIREME_RUN_FOLDER=PATH.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

struct Mark {
  uint64_t job_id = 0;
  uint32_t attempt = 0;
  std::string run_folder;

  // "NAME=value", for a launch.
  std::vector<std::string> Environment() const;
};

Mark MarkOf(const v1::DesiredAttempt& attempt);

// Whether `pid` is a process of the attempt; true too if its environment may not be read, false if
// it has ended.
bool CarriesMark(int pid, const Mark& mark);

// Whether its environment names another attempt.
bool CarriesOtherMark(int pid, const Mark& mark);

// KILL to every process of the job and run folder of `mark` whose attempt `condemns` names. Returns
// how many there were; what they forked meanwhile shows in the next call. Reads all of /proc.
int KillMarked(const Mark& mark, const std::function<bool(uint32_t attempt)>& condemns);

}  // namespace trireme::keeper
