// A store that hands every call on to another: what those build on that change one of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job_store/job_store.h"

namespace trireme::coordinator {

class ForwardingStore : public JobStore {
 public:
  explicit ForwardingStore(std::unique_ptr<JobStore> store) : store_(std::move(store)) {}

  absl::Status CheckAll() override { return store_->CheckAll(); }
  void StopCheck() override { store_->StopCheck(); }
  absl::Status NoteDamage(absl::Status damage) override {
    return store_->NoteDamage(std::move(damage));
  }
  absl::Status Commit(Change& change) override { return store_->Commit(change); }
  absl::Status BeginEpoch() override { return store_->BeginEpoch(); }
  StoreIdentity identity() override { return store_->identity(); }
  absl::StatusOr<uint64_t> NextJobId(uint64_t after) override { return store_->NextJobId(after); }
  absl::StatusOr<std::vector<v1::Job>> Jobs() override { return store_->Jobs(); }
  absl::StatusOr<std::vector<v1::Job>> LiveJobs() override { return store_->LiveJobs(); }
  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    return store_->JobsBefore(id, limit);
  }
  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    return store_->FindJob(id);
  }
  absl::StatusOr<std::vector<std::string>> RunParents() override { return store_->RunParents(); }
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
  absl::StatusOr<BackupReport> Backup(const std::string& path,
                                      const BackupProgress& progress) override {
    return store_->Backup(path, progress);
  }

 private:
  std::unique_ptr<JobStore> store_;
};

}  // namespace trireme::coordinator
