// A reconciler with nodes that exist only here: agents that keep what the protocol asks of them,
// jobs that end as they please, a store on disk, and a daemon that can be killed between any two
// messages. Checks at every step what must always hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {

// Where a store lies, gone with this.
class Folder {
 public:
  Folder();
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string Store() const { return path_ + "/jobs.db"; }

 private:
  std::string path_ = "/tmp/trireme-reconciler-XXXXXX";
};

class SimulatedCluster {
 public:
  // Nodes n1, n2 ... of four CPUs each.
  SimulatedCluster(const std::string& store_path, uint32_t seed, uint32_t nodes = 2);
  ~SimulatedCluster();

  void Open();
  // As by kill -9: what was not committed is gone, so are plans under way and desired states not
  // sent.
  void Kill();
  void Submit(uint32_t ranks, int priority);
  void Ask(uint64_t job_id, const JobEvent& request);
  void SetDrained(const std::string& node, bool drained);
  // From here on its agent can start nothing, which is no job's doing.
  void SetUnable(const std::string& node) { unable_.insert(node); }
  // What may fail by chance does so no more.
  void SetLucky() { failures_ = false; }
  // An agent dials in; all do when the daemon opens.
  void Hello(const std::string& name, int64_t now);
  // It does so no more.
  void SwitchOff(const std::string& name);
  // One message of any kind, chosen at random, some time later.
  void Step();
  // Without failures from here on: steps until every job has ended.
  void Settle(int most_steps);

  Reconciler& reconciler() { return *reconciler_; }
  JobTable& table() { return *table_; }
  JobStore& store() { return *store_; }
  const std::vector<uint64_t>& jobs() const { return jobs_; }
  uint32_t Random(uint32_t below) { return random_() % below; }
  int starts() const { return starts_; }

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // job, attempt
  struct FakeAttempt {
    v1::DesiredAttempt desired;
    v1::AttemptPhase phase = v1::ATTEMPT_STARTING;
    int exit_code = 0;
    bool never_started = false;
  };
  struct FakeNode {
    std::map<Key, FakeAttempt> attempts;
    std::map<uint64_t, uint32_t> newest;  // attempt ever heard of, by job
  };

  void Hear(const std::string& name, const v1::DesiredAttempts& desired);
  void Report(const std::string& name);
  void Progress(const std::string& name);
  void End(const Key& key, int exit_code);
  void CheckWhatAlwaysHolds() const;
  void CheckEvents() const;

  const std::string path_;
  std::mt19937 random_;
  std::vector<std::string> names_;  // also of nodes that are switched off
  int64_t now_ = 1'000'000'000'000;
  bool failures_ = true;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobTable> table_;
  std::unique_ptr<Reconciler> reconciler_;
  std::vector<std::pair<uint64_t, uint32_t>> plans_;  // asked for
  std::set<std::string> changed_;
  std::set<std::string> unable_;
  std::map<std::string, FakeNode> nodes_;
  std::vector<uint64_t> jobs_;
  std::set<uint64_t> cancelled_;
  int starts_ = 0;
};

}  // namespace trireme::coordinator
