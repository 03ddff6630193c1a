// A reconciler over a store in memory, what it has asked of others, and the words of agents.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/job_store/forwarding_store.h"
#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {

constexpr int64_t kDeskSecond = 1'000'000'000;
constexpr int64_t kDeskHour = 3600 * kDeskSecond;
constexpr int64_t kDeskBegin = 1'000 * kDeskSecond;

// A store whose disk is full when it is told so, and which counts what it was asked to drop.
class DeskStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  bool full = false;
  int drops = 0;

  absl::Status Commit(Change& change) override {
    return full ? NoRoom() : ForwardingStore::Commit(change);
  }
  absl::StatusOr<uint64_t> DropEvents(uint64_t keep, uint64_t most) override {
    ++drops;
    if (full) return NoRoom();
    return ForwardingStore::DropEvents(keep, most);
  }
  absl::Status DropJobs(const std::vector<uint64_t>& ids) override {
    ++drops;
    return full ? NoRoom() : ForwardingStore::DropJobs(ids);
  }

 private:
  static absl::Status NoRoom() { return absl::ResourceExhaustedError("no room"); }
};

struct Desk {
  // `kept`: the store of an earlier one, whose daemon was killed.
  explicit Desk(const ReconcilerOptions& options = {}, std::shared_ptr<DeskStore> kept = nullptr)
      : store(std::move(kept)) {
    if (store == nullptr) {
      auto opened_store = JobStore::Open(":memory:");
      REQUIRE(opened_store.ok());
      store = std::make_shared<DeskStore>(*std::move(opened_store));
    }
    const ReconcilerPorts ports{
        .make_plan = [this](const v1::Job&) { ++plans; },
        .desired_changed = [this](const std::string& node) { told.insert(node); },
        .adopt = [this](const std::string& node, uint64_t from) { adopted[node] = from; },
        .revoke = [this](const v1::Job& job) { revocations.push_back(job); },
        .stood_still = [this](int64_t ns) { stood_still_ns += ns; }};
    auto opened = Reconciler::Open(options, ports, *store, table, kDeskBegin);
    REQUIRE(opened.ok());
    reconciler = *std::move(opened);
  }

  // Nodes of four CPUs each.
  void Dial(const std::string& node, int64_t now = kDeskBegin) {
    v1::AgentHello hello;
    hello.set_node(node);
    hello.set_cpus(4);
    hello.set_memory_bytes(uint64_t{1} << 40);
    hello.set_gpus(4);
    REQUIRE(reconciler->Hello(hello, now).ok());
  }
  // As many ranks of a CPU each; its number.
  uint64_t Submit(uint32_t ranks, int64_t now, Submission submission = {}) {
    submission.owner = "ann";
    submission.request_id = std::to_string(++requests);
    submission.resources.set_ranks(ranks);
    submission.resources.set_cpus_per_rank(1);
    const auto response = reconciler->Submit(submission, now);
    REQUIRE(response.ok());
    return response->job().id();
  }
  // Of one attempt; what is not given is not said.
  static v1::NodeReport Word(uint64_t job, uint32_t attempt, v1::AttemptPhase phase,
                             int exit_code = 0) {
    v1::NodeReport report;
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(job);
    one.set_attempt(attempt);
    one.set_phase(phase);
    one.set_exit_code(exit_code);
    return report;
  }
  void Report(const std::string& node, const v1::NodeReport& report, int64_t now) {
    REQUIRE(reconciler->Report(node, report, now).ok());
  }
  // Of a rank in it.
  static v1::NodeReport RankWord(uint64_t job, uint32_t attempt, uint32_t rank, v1::RankLife life) {
    v1::NodeReport report = Word(job, attempt, v1::ATTEMPT_RUNNING);
    v1::RankReport& one = *report.mutable_attempts(0)->add_ranks();
    one.set_rank(rank);
    one.set_life(life);
    return report;
  }
  // The nodes allocated, the plan made: attempt 1 launches.
  void Launch(uint64_t job, int64_t now) {
    reconciler->Tick(now);
    REQUIRE(reconciler->PlanReady(job, 1, absl::OkStatus(), now).ok());
    REQUIRE(StateOf(job) == v1::JOB_LAUNCHING);
  }
  v1::JobState StateOf(uint64_t job) const { return table.Get(job)->status().state(); }
  v1::AttemptDesiredState DesiredOn(const std::string& node) const {
    const v1::DesiredAttempts desired = reconciler->DesiredOf(node);
    return desired.attempts().empty() ? v1::ATTEMPT_DESIRED_UNSPECIFIED
                                      : desired.attempts(0).desired_state();
  }
  std::vector<v1::Event> Stalls() const {
    std::vector<v1::Event> stalls;
    for (const v1::Event& event : Events()) {
      if (event.has_stalled()) stalls.push_back(event);
    }
    return stalls;
  }
  std::vector<v1::Event> Events() const {
    const auto events = store->Events({.limit = 10000});
    REQUIRE(events.ok());
    return *events;
  }

  std::shared_ptr<DeskStore> store;
  JobTable table;
  std::unique_ptr<Reconciler> reconciler;
  std::vector<v1::Job> revocations;  // asked for
  int64_t stood_still_ns = 0;
  int plans = 0;
  int requests = 0;
  std::set<std::string> told;               // nodes whose desired state has changed
  std::map<std::string, uint64_t> adopted;  // from which revision on
};

}  // namespace trireme::coordinator
