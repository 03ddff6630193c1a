// Kills for want of memory on nodes that did not launch the attempt: mpirun knows a signal of them.
#pragma once

#include <map>
#include <string>

#include "trireme/v1/agent.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Makes the failure that `launcher` reports, if any, that of the first kill which another node of
// `reports` (by name) tells. What a rank has said of itself stays the cause, unless ranks were
// killed, and so does the end of an attempt that was to end anyway: kills are evidence there.
void NameMemoryKills(const v1::Job& job, const std::map<std::string, v1::AttemptReport>& reports,
                     v1::AttemptReport& launcher);

}  // namespace trireme::coordinator
