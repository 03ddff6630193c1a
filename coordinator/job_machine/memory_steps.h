// The steps in memory (snapshots) that the attempts of a job go on at (JobStatus.memory_step and
// its like): what counts as progress, and which step is not used again.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Whether any attempt of the job has come further than a start.
bool HasTrained(const v1::JobStatus& status);

// The current attempt went on at `step` in memory. Whether that is beyond all that this job has
// saved or gone on at: it gets on.
bool GoesOnInMemory(uint64_t step, v1::JobStatus& status);

// Its current attempt, which went on in memory, has failed by itself after `steps_done` steps.
// Whether it is the second from there, with no later step since: the next ones go on before it.
bool FailsFromMemory(uint64_t steps_done, v1::JobStatus& status);

// The job has done or saved `step`. The step that was not used until now, and may be used again: a
// job that gets beyond it has made another of it. 0: there is none.
uint64_t GetsBeyond(uint64_t step, v1::JobStatus& status);

// "step 12 in memory failed twice, it is not used again"; empty: there is none.
std::string UnusedStepText(const v1::JobStatus& status);

// "without a newer checkpoint", or, where steps in memory count, "without a newer checkpoint or
// step in memory".
std::string WithoutProgress(const v1::JobStatus& status);

}  // namespace trireme::coordinator
