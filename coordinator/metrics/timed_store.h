// A job store whose commits are timed.
#pragma once

#include <memory>

#include "coordinator/job_store/job_store.h"
#include "coordinator/metrics/daemon_metrics.h"

namespace trireme::coordinator {

// All of `store`; `metrics` outlives it.
std::unique_ptr<JobStore> TimedStore(std::unique_ptr<JobStore> store, DaemonMetrics& metrics);

}  // namespace trireme::coordinator
