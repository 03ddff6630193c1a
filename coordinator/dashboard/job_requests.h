// What people ask of a job through the dashboard, carried to the thread that decides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_machine/job_machine.h"
#include "coordinator/process/task_thread.h"
#include "coordinator/reconciler/reconciler.h"
#include "trireme/v1/job.pb.h"

namespace trireme::dashboard {

// Waits some seconds for the answer; DeadlineExceeded: it is yet to come, and the request stands.
// `user`: who takes turns with others.
using AskJob = std::function<absl::StatusOr<v1::Job>(const std::string& user, uint64_t job_id,
                                                     const coordinator::JobEvent& request,
                                                     double grace_seconds)>;

// Both outlive it.
AskJob AskThrough(coordinator::Reconciler& reconciler, coordinator::TaskThread& thread);

}  // namespace trireme::dashboard
