// Everything is passed on; Commit is timed on its way.
#include "coordinator/metrics/timed_store.h"

#include <chrono>
#include <utility>

namespace trireme::coordinator {
namespace {

class Timed : public JobStore {
 public:
  Timed(std::unique_ptr<JobStore> store, DaemonMetrics& metrics)
      : store_(std::move(store)), metrics_(metrics) {}

  absl::Status Commit(Change& change) override {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = store_->Commit(change);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    metrics_.CommitEnds(status.ok(), took.count());
    return status;
  }
  absl::StatusOr<uint64_t> NextJobId() override { return store_->NextJobId(); }
  absl::StatusOr<std::vector<v1::Job>> Jobs() override { return store_->Jobs(); }
  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                      const std::string& request_id) override {
    return store_->FindRequest(owner, request_id);
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) override {
    return store_->Events(query);
  }
  absl::StatusOr<uint64_t> LastSequence() override { return store_->LastSequence(); }
  absl::StatusOr<uint64_t> FirstSequence() override { return store_->FirstSequence(); }
  absl::StatusOr<uint64_t> DropEvents(uint64_t keep, uint64_t most) override {
    return store_->DropEvents(keep, most);
  }
  absl::Status DropJobs(const std::vector<uint64_t>& ids) override { return store_->DropJobs(ids); }
  absl::StatusOr<std::vector<v1::Node>> Nodes() override { return store_->Nodes(); }

 private:
  const std::unique_ptr<JobStore> store_;
  DaemonMetrics& metrics_;
};

}  // namespace

std::unique_ptr<JobStore> TimedStore(std::unique_ptr<JobStore> store, DaemonMetrics& metrics) {
  return std::make_unique<Timed>(std::move(store), metrics);
}

}  // namespace trireme::coordinator
