// What of a job must be the same on all ranks, and in the plan that they interpret.
#pragma once

#include <string>

#include "trireme/v1/job_spec.pb.h"

namespace trireme::worker {

// A line per field: all but the places of files and the threads of a rank.
std::string ComparedJob(v1::JobSpec job);
// Lines in which ComparedJob's texts differ, each led by a line feed; empty: none. `there` names
// the place of the other.
std::string DifferencesOf(const std::string& own, const std::string& other,
                          const std::string& there);

}  // namespace trireme::worker
