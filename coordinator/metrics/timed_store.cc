// Commit is timed on its way.
#include "coordinator/metrics/timed_store.h"

#include <chrono>
#include <utility>

#include "coordinator/job_store/forwarding_store.h"

namespace trireme::coordinator {
namespace {

class Timed : public ForwardingStore {
 public:
  Timed(std::unique_ptr<JobStore> store, DaemonMetrics& metrics)
      : ForwardingStore(std::move(store)), metrics_(metrics) {}

  absl::Status Commit(Change& change) override {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = ForwardingStore::Commit(change);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    metrics_.CommitEnds(status.ok(), took.count());
    return status;
  }

 private:
  DaemonMetrics& metrics_;
};

}  // namespace

std::unique_ptr<JobStore> TimedStore(std::unique_ptr<JobStore> store, DaemonMetrics& metrics) {
  return std::make_unique<Timed>(std::move(store), metrics);
}

}  // namespace trireme::coordinator
