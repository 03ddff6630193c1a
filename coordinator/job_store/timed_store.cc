// Commit is timed on its way.
#include "coordinator/job_store/timed_store.h"

#include <utility>

#include "coordinator/job_store/forwarding_store.h"

namespace trireme::coordinator {
namespace {

using Committed = std::function<void(const absl::Status&, std::chrono::duration<double>)>;

class Timed : public ForwardingStore {
 public:
  Timed(std::unique_ptr<JobStore> store, Committed committed)
      : ForwardingStore(std::move(store)), committed_(std::move(committed)) {}

  absl::Status Commit(Change& change) override {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = ForwardingStore::Commit(change);
    committed_(status, std::chrono::steady_clock::now() - begin);
    return status;
  }

 private:
  const Committed committed_;
};

}  // namespace

std::unique_ptr<JobStore> TimedStore(std::unique_ptr<JobStore> store, Committed committed) {
  return std::make_unique<Timed>(std::move(store), std::move(committed));
}

}  // namespace trireme::coordinator
