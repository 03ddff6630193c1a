#include "coordinator/dashboard/job_requests.h"

#include <chrono>
#include <future>
#include <memory>

#include "runtime/base/status_macros.h"

namespace trireme::dashboard {
namespace {

constexpr std::chrono::seconds kLongestWait(5);

}  // namespace

AskJob AskThrough(coordinator::Reconciler& reconciler, coordinator::TaskThread& thread) {
  return [&reconciler, &thread](const std::string& user, uint64_t job_id,
                                const coordinator::JobEvent& request,
                                double grace_seconds) -> absl::StatusOr<v1::Job> {
    // Shared: the task may outlive the wait.
    const auto promise = std::make_shared<std::promise<absl::StatusOr<v1::Job>>>();
    auto answer = promise->get_future();
    RETURN_IF_ERROR(thread.Post(
        [&reconciler, promise, job_id, request, grace_seconds] {
          promise->set_value(
              reconciler.Ask(job_id, request, grace_seconds, coordinator::NowUnixNs()));
        },
        user));
    if (answer.wait_for(kLongestWait) != std::future_status::ready) {
      return absl::DeadlineExceededError(
          "the coordinator is busy; it will come to what you have asked for");
    }
    return answer.get();
  };
}

}  // namespace trireme::dashboard
