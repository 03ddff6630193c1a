// Jobs, events and the cluster as the dashboard's pages read them. Pure.
#pragma once

#include <string>
#include <vector>

#include "coordinator/dashboard/json_text.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::dashboard {

// A row of a list: without the texts of a failure. `stalled`: what is told of ranks that stand
// still.
Json JobRow(const v1::Job& job, const std::vector<std::string>& stalled = {});
// All but the job file.
Json JobDetails(const v1::Job& job, const std::vector<std::string>& stalled = {});

// With a sentence (`text`) and how much it matters (`level`: good, info, warn, bad); of a
// submitted job its name, of a placed one its allocation.
Json EventJson(const v1::Event& event);

// `live`: jobs with an allocation, for the map of nodes.
Json ClusterJson(const v1::Cluster& cluster, const std::vector<v1::Job>& live);

}  // namespace trireme::dashboard
