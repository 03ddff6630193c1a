// A folder that goes away, changes to commit, and all that a store says of itself, to compare.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/job_store/job_store.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/trireme_job_store_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void Spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::unique_ptr<JobStore> MustOpen(const std::string& path) {
  auto store = JobStore::Open(path);
  if (!store.ok()) FAIL(store.status().ToString());
  return std::move(*store);
}

// With something in each stored field.
inline v1::Job SampleJob(uint64_t id) {
  v1::Job job;
  job.set_id(id);
  job.set_name("job-" + std::to_string(id));
  job.set_owner("ann");
  job.mutable_spec()->set_name("spec");
  job.mutable_spec()->set_seed(id * 1000);
  job.mutable_resources()->set_ranks(4);
  job.mutable_resources()->add_nodes("n1");
  job.set_priority(-7);
  job.set_submitted_unix_ns(1'700'000'000'000'000'000 + static_cast<int64_t>(id));
  job.mutable_status()->set_state(v1::JOB_RECOVERING);
  job.mutable_status()->set_attempt(3);
  job.mutable_status()->set_reason("rank 3 died");
  job.mutable_status()->mutable_failure()->set_rank(-1);
  v1::NodeAllocation* part = job.add_allocation();
  part->set_node("n1");
  part->set_ranks(4);
  job.set_run_folder("/runs/" + std::to_string(id));
  return job;
}

inline v1::Job EndedJob(uint64_t id) {
  v1::Job job = SampleJob(id);
  job.mutable_status()->set_state(v1::JOB_COMPLETED);
  job.clear_allocation();
  return job;
}

inline v1::Event SampleEvent(uint64_t job_id, const std::string& reason) {
  v1::Event event;
  event.set_time_unix_ns(1'700'000'000'000'000'000);
  event.set_job_id(job_id);
  event.set_attempt(3);
  event.mutable_state_changed()->set_to(v1::JOB_RECOVERING);
  event.mutable_state_changed()->set_reason(reason);
  return event;
}

inline v1::Node SampleNode(const std::string& name, const std::string& reason) {
  v1::Node node;
  node.set_name(name);
  node.set_drained(true);
  node.set_reason(reason);
  return node;
}

// Jobs, events and nodes, serialised.
struct Contents {
  std::vector<std::string> jobs, events, nodes;
  friend bool operator==(const Contents&, const Contents&) = default;
};

inline absl::StatusOr<Contents> ContentsOf(JobStore& store) {
  Contents contents;
  ASSIGN_OR_RETURN(const auto jobs, store.Jobs());
  for (const v1::Job& job : jobs) contents.jobs.push_back(job.SerializeAsString());
  ASSIGN_OR_RETURN(const auto events, store.Events({0, 0, size_t{1} << 40}));
  for (const v1::Event& event : events) contents.events.push_back(event.SerializeAsString());
  ASSIGN_OR_RETURN(const auto nodes, store.Nodes());
  for (const v1::Node& node : nodes) contents.nodes.push_back(node.SerializeAsString());
  return contents;
}

// Reopens `path` and reads it all.
inline Contents MustRead(const std::string& path) {
  const auto contents = ContentsOf(*MustOpen(path));
  if (!contents.ok()) FAIL(contents.status().ToString());
  return *contents;
}

}  // namespace trireme::coordinator
