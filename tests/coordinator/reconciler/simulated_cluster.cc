#include "tests/coordinator/reconciler/simulated_cluster.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

namespace trireme::coordinator {
namespace {

constexpr uint32_t kCpus = 4;

bool IsAlive(v1::AttemptPhase phase) { return phase != v1::ATTEMPT_ENDED; }

}  // namespace

Folder::Folder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }

SimulatedCluster::SimulatedCluster(const std::string& store_path, uint32_t seed, uint32_t nodes)
    : path_(store_path), random_(seed) {
  for (uint32_t node = 1; node <= nodes; ++node) {
    nodes_[names_.emplace_back("n" + std::to_string(node))];
  }
  Open();
}

SimulatedCluster::~SimulatedCluster() = default;

void SimulatedCluster::Open() {
  auto store = JobStore::Open(path_);
  REQUIRE(store.ok());
  store_ = *std::move(store);
  table_ = std::make_unique<JobTable>();
  ReconcilerOptions options;
  options.jobs_folder = "/jobs";
  options.lease = std::chrono::milliseconds(20000);
  ReconcilerPorts ports;
  ports.make_plan = [this](const v1::Job& job) {
    plans_.emplace_back(job.id(), job.status().attempt());
  };
  ports.desired_changed = [this](const std::string& node) { changed_.insert(node); };
  auto opened = Reconciler::Open(options, ports, *store_, *table_, now_);
  REQUIRE(opened.ok());
  reconciler_ = *std::move(opened);
  for (const auto& [name, node] : nodes_) Hello(name, now_);
}

void SimulatedCluster::Hello(const std::string& name, int64_t now) {
  v1::AgentHello hello;
  hello.set_node(name);
  hello.set_cpus(kCpus);
  hello.set_memory_bytes(uint64_t{1} << 40);
  REQUIRE(reconciler_->Hello(hello, now).ok());
}

void SimulatedCluster::SwitchOff(const std::string& name) { nodes_.erase(name); }

void SimulatedCluster::Kill() {
  reconciler_.reset();
  table_.reset();
  store_.reset();
  plans_.clear();
  changed_.clear();
}

void SimulatedCluster::Submit(uint32_t ranks, int priority) {
  Submission submission;
  submission.owner = "ann";
  submission.request_id = "r" + std::to_string(jobs_.size());
  submission.job.set_name("job");
  submission.job.mutable_resources()->set_priority(priority);
  submission.resources.set_ranks(ranks);
  submission.resources.set_cpus_per_rank(1);
  submission.resources.set_memory_bytes_per_rank(1);
  const auto response = reconciler_->Submit(submission, now_);
  REQUIRE(response.ok());
  jobs_.push_back(response->job().id());
  // An answer that is lost on its way is asked for again.
  const auto again = reconciler_->Submit(submission, now_);
  REQUIRE(again.ok());
  CHECK(again->repeated());
  CHECK(again->job().id() == response->job().id());
}

void SimulatedCluster::Ask(uint64_t job_id, const JobEvent& request) {
  const auto answer = reconciler_->Ask(job_id, request, 1, now_);
  if (answer.ok() && std::holds_alternative<CancelAsked>(request)) cancelled_.insert(job_id);
}

void SimulatedCluster::SetDrained(const std::string& node, bool drained) {
  REQUIRE(reconciler_->SetUse({node, drained, "test"}, now_).ok());
}

// As the keeper does, by its README.
void SimulatedCluster::Hear(const std::string& name, const v1::DesiredAttempts& desired) {
  FakeNode& node = nodes_[name];
  std::set<Key> wanted;
  for (const v1::DesiredAttempt& one : desired.attempts()) {
    const Key key{one.job_id(), one.attempt()};
    wanted.insert(key);
    const auto found = node.attempts.find(key);
    if (found != node.attempts.end()) {
      found->second.desired = one;
      if (one.desired_state() == v1::ATTEMPT_KILL) End(key, 137);
      continue;
    }
    FakeAttempt attempt{one, v1::ATTEMPT_STARTING, 0};
    const bool fenced = node.newest[one.job_id()] >= one.attempt();
    INFO("job " << one.job_id() << " attempt " << one.attempt() << " on " << name);
    CHECK_FALSE(fenced);  // it would start what had been, or is older
    if (fenced || one.desired_state() != v1::ATTEMPT_RUN) {
      attempt.phase = v1::ATTEMPT_ENDED;
      attempt.exit_code = 75;
    } else if (unable_.contains(name) && one.launch().allocation(0).node() == name) {
      attempt.phase = v1::ATTEMPT_ENDED;
      attempt.exit_code = 4;
      attempt.never_started = true;
    } else {
      ++starts_;
      CHECK_FALSE(cancelled_.contains(one.job_id()));
    }
    node.newest[one.job_id()] = one.attempt();
    node.attempts[key] = attempt;
  }
  for (auto at = node.attempts.begin(); at != node.attempts.end();) {
    const Key key = at->first;
    const bool forget = !wanted.contains(key) && !IsAlive(at->second.phase);
    if (!wanted.contains(key) && !forget) End(key, 137);
    at = forget ? node.attempts.erase(at) : std::next(at);
  }
}

// mpirun takes all ranks with it.
void SimulatedCluster::End(const Key& key, int exit_code) {
  for (auto& [name, node] : nodes_) {
    const auto found = node.attempts.find(key);
    if (found == node.attempts.end() || !IsAlive(found->second.phase)) continue;
    found->second.phase = v1::ATTEMPT_ENDED;
    found->second.exit_code = exit_code;
  }
}

void SimulatedCluster::Progress(const std::string& name) {
  for (auto& [key, attempt] : nodes_[name].attempts) {
    if (!IsAlive(attempt.phase)) continue;
    if (attempt.desired.desired_state() == v1::ATTEMPT_STOP) {
      End(key, Random(10) == 0 && failures_ ? 137 : 75);
    } else if (attempt.phase == v1::ATTEMPT_STARTING) {
      attempt.phase = v1::ATTEMPT_RUNNING;
    } else if (Random(4) == 0) {
      End(key, failures_ && Random(2) == 0 ? 139 : 0);
    }
  }
}

void SimulatedCluster::Report(const std::string& name) {
  v1::NodeReport report;
  for (const auto& [key, attempt] : nodes_[name].attempts) {
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(key.first);
    one.set_attempt(key.second);
    one.set_phase(attempt.phase);
    one.set_exit_code(attempt.exit_code);
    one.set_never_started(attempt.never_started);
    if (attempt.exit_code == 139) one.mutable_failure()->set_headline("rank 0 died");
  }
  REQUIRE(reconciler_->Report(name, report, now_).ok());
}

void SimulatedCluster::Step() {
  now_ += 100'000'000 + Random(400'000'000);
  const std::string name = names_[Random(static_cast<uint32_t>(names_.size()))];
  switch (Random(5)) {
    case 0:
      reconciler_->Tick(now_);
      break;
    case 1:
      if (!plans_.empty()) {
        const auto [job, attempt] = plans_.back();
        plans_.pop_back();
        const bool refused = failures_ && Random(20) == 0;
        REQUIRE(reconciler_
                    ->PlanReady(job, attempt,
                                refused ? absl::InvalidArgumentError("no") : absl::OkStatus(), now_)
                    .ok());
      }
      break;
    case 2:
      Hear(name, reconciler_->DesiredOf(name));
      break;
    case 3:
      Progress(name);
      break;
    default:
      Report(name);
  }
  CheckWhatAlwaysHolds();
}

void SimulatedCluster::CheckWhatAlwaysHolds() const {
  for (const auto& [name, node] : nodes_) {
    uint32_t cpus = 0;
    std::set<uint64_t> alive;
    for (const auto& [key, attempt] : node.attempts) {
      if (!IsAlive(attempt.phase)) continue;
      CHECK(alive.insert(key.first).second);  // never two attempts of a job at once
      for (const v1::NodeAllocation& part : attempt.desired.launch().allocation()) {
        if (part.node() == name) cpus += part.ranks();
      }
    }
    CHECK(cpus <= kCpus);
  }
}

void SimulatedCluster::Settle(int most_steps) {
  failures_ = false;
  for (const std::string& name : names_) SetDrained(name, false);
  const auto unfinished = [this] {
    size_t count = 0;
    for (const uint64_t id : jobs_) {
      const v1::JobState state = table_->Get(id, store_.get())->status().state();
      if (state == v1::JOB_PAUSED) Ask(id, ResumeAsked{"ann"});
      if (!HasEnded(state)) ++count;
    }
    return count;
  };
  int steps = 0;
  while (unfinished() > 0 && ++steps < most_steps) Step();
  CHECK(unfinished() == 0);
  CheckEvents();
}

// From the first to the last without a hole, and each job's states hang together.
void SimulatedCluster::CheckEvents() const {
  std::map<uint64_t, v1::JobState> states;
  uint64_t sequence = 0;
  while (true) {
    EventQuery query;
    query.after_sequence = sequence;
    const auto events = store_->Events(query);
    REQUIRE(events.ok());
    if (events->empty()) break;
    for (const v1::Event& event : *events) {
      CHECK(event.sequence() == sequence + 1);
      sequence = event.sequence();
      if (event.has_submitted()) states[event.job_id()] = v1::JOB_PENDING;
      if (!event.has_state_changed()) continue;
      CHECK(states[event.job_id()] == event.state_changed().from());
      states[event.job_id()] = event.state_changed().to();
    }
  }
  for (const uint64_t id : jobs_) {
    const v1::JobState state = table_->Get(id, store_.get())->status().state();
    CHECK(states[id] == state);
    if (cancelled_.contains(id)) {
      const bool over =
          state == v1::JOB_CANCELLED || state == v1::JOB_COMPLETED || state == v1::JOB_FAILED;
      CHECK(over);
    }
  }
}

}  // namespace trireme::coordinator
