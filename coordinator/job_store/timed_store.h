// A job store whose commits are timed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "coordinator/job_store/job_store.h"

namespace trireme::coordinator {

// All of `store`; `committed` gets how each commit has ended and what it took.
std::unique_ptr<JobStore> TimedStore(
    std::unique_ptr<JobStore> store,
    std::function<void(const absl::Status&, std::chrono::duration<double>)> committed);

}  // namespace trireme::coordinator
