#include "tests/coordinator/reconciler/partitioned_cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace trireme::coordinator {
namespace {

constexpr int64_t kTick = 100'000'000;
constexpr int64_t kSecond = 1'000'000'000;
// From the agent's decision to the end of the last rank, at the longest.
constexpr int64_t kKill = 12 * kSecond;
// What docs/adr/0019 says, and not what the program makes of it: from the taken claim to the next
// start, and from a node's last news to its end.
constexpr int64_t kFence = 39'700'000'000;
constexpr int64_t kEndAfter = 15 * kSecond;
constexpr NameTimes kNameTimes{std::chrono::seconds(10), std::chrono::seconds(60)};

NodeLeases::Clock::time_point SteadyTime(int64_t ns) {
  return NodeLeases::Clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace

PartitionedCluster::PartitionedCluster(uint32_t seed, int nodes, bool twins) : random_(seed) {
  auto store = JobStore::Open(":memory:");
  REQUIRE(store.ok());
  store_ = *std::move(store);
  for (int i = 1; i <= nodes; ++i) {
    const std::string node = "n" + std::to_string(i);
    for (const std::string& machine : {node, node + ".twin"}) {
      if (machine != node && !twins) continue;
      machines_[machine].node = node;
      machines_[machine].drift = 0.99 + 0.0002 * Random(100);
    }
  }
  StartDaemon();
}

void PartitionedCluster::StartDaemon() {
  if (reconciler_) return;
  table_ = std::make_unique<JobTable>();
  ReconcilerPorts ports;
  ports.make_plan = [this](const v1::Job& job) { plans_.push_back(job); };
  ports.desired_changed = [](const std::string&) {};
  ports.revoke = [this](const v1::Job& job) { revocations_.push_back(job); };
  ports.report_taken = [this](const std::string& node, uint64_t sent) {
    for (auto& [name, machine] : machines_) {
      if (machine.node != node || !machine.greeted) continue;
      for (auto& [key, ranks] : machine.ranks) ranks.lifeline.Taken(static_cast<int64_t>(sent));
    }
  };
  auto opened = Reconciler::Open({}, ports, *store_, *table_, now_);
  REQUIRE(opened.ok());
  reconciler_ = *std::move(opened);
  leases_ = std::make_unique<NodeLeases>();
  for (const auto& [node, holder] : holders_) leases_->Recall(node, holder, SteadyTime(now_));
  for (auto& [name, machine] : machines_) machine.greeted = false;
}

void PartitionedCluster::StandStill(int64_t seconds) {
  if (!reconciler_) return;
  still_until_ns_ = now_ + seconds * kSecond;
  deaf_ = Random(2) == 0;
}

void PartitionedCluster::KillDaemon() {
  still_until_ns_ = 0;
  waiting_.clear();
  reconciler_.reset();
  leases_.reset();
  table_.reset();
  plans_.clear();
  revocations_.clear();
}

uint64_t PartitionedCluster::Submit(uint32_t ranks) {
  Submission submission;
  submission.resources.set_ranks(ranks);
  submission.resources.set_cpus_per_rank(1);
  submission.job.mutable_resources()->set_max_failures(1000);
  const auto response = reconciler_->Submit(submission, now_);
  REQUIRE(response.ok());
  files_[response->job().id()];
  return response->job().id();
}

void PartitionedCluster::StartAgent(const std::string& name) {
  Machine& machine = machines_.at(name);
  machine.agent = true;
  machine.greeted = false;
  // What an agent adopts it knows no news of; a decision to end it is in its records.
  for (auto& [key, ranks] : machine.ranks) {
    ranks.lifeline = keeper::Lifeline::Adopted(Local(machine, now_));
    ranks.watched_since_ns = now_;
  }
}

void PartitionedCluster::Heal() {
  for (auto& [name, machine] : machines_) {
    machine.lines = {};
    if (!machine.agent) StartAgent(name);
  }
  daemon_reaches_folder = true;
  still_until_ns_ = 0;
  StartDaemon();
}

absl::Status PartitionedCluster::Claim(uint64_t job, uint32_t attempt) {
  if (!daemon_reaches_folder) return absl::UnavailableError("the folder does not answer");
  CHECK(files_[job].claim <= attempt);
  files_[job].claim = attempt;
  return absl::OkStatus();
}

void PartitionedCluster::Kill(Ranks& ranks) {
  const int64_t takes = slowly_ ? kKill : Random(kKill / kTick) * kTick;
  if (ranks.killed_at_ns == 0) ranks.killed_at_ns = now_ + takes;
}

// The two exceptions of docs/adr/0019. Ranks without an agent, or whose agent has just come, have
// nobody to end them, and publish nothing. Nodes that reach each other and nobody else have news by
// their steps. Who hears of its end, or no more steps, ends in a time that all have.
bool PartitionedCluster::MayLive(const Machine& machine, const Ranks& ranks) const {
  if (!machine.agent || now_ - ranks.watched_since_ns <= kKill + 6 * kSecond) return true;
  if (ranks.desired.launch().allocation_size() == 1) return false;
  const bool told = std::any_of(
      machine.reached_ns.begin(), machine.reached_ns.end(),
      [&](int64_t at) { return at > now_ - kFence && at < now_ - kKill - 2 * kSecond; });
  return !told && now_ - ranks.stepped_ns <= kEndAfter * 102 / 100 + kKill + 2 * kSecond;
}

void PartitionedCluster::CheckStart(const Key& key) const {
  for (const auto& [name, machine] : machines_) {
    for (const auto& [older, ranks] : machine.ranks) {
      if (older.first != key.first || older.second >= key.second || ranks.ended) continue;
      INFO("job " << key.first << " attempt " << key.second << " starts while attempt "
                  << older.second << " lives on " << name);
      CHECK(MayLive(machine, ranks));
      ++overlaps_;
    }
  }
}

void PartitionedCluster::Obey(const std::string& name, Machine& machine) {
  const v1::DesiredAttempts desired = *std::move(machine.heard);
  machine.heard.reset();
  std::set<Key> wanted;
  for (const v1::DesiredAttempt& one : desired.attempts()) {
    const Key key{one.job_id(), one.attempt()};
    wanted.insert(key);
    const bool known = machine.ranks.contains(key);
    Ranks& ranks = machine.ranks[key];
    if (!known) {
      // Where another machine of the name has begun it there is a folder of it, and a guard that
      // this one finds gone.
      const bool run = one.desired_state() == v1::ATTEMPT_RUN;
      ranks.begun = run && begun_on_.try_emplace({key, machine.node}, name).second;
      ranks.ended = !ranks.begun;
      ranks.desired = one;
      ranks.lifeline = keeper::Lifeline(Local(machine, now_));
      if (ranks.begun) CheckStart(key);
    }
    if (one.desired_state() != v1::ATTEMPT_RUN) Kill(ranks);
  }
  for (auto at = machine.ranks.begin(); at != machine.ranks.end();) {
    const bool other = !wanted.contains(at->first);
    if (other && !at->second.ended) Kill(at->second);
    at = other && at->second.ended ? machine.ranks.erase(at) : std::next(at);
  }
}

void PartitionedCluster::Report(Machine& machine) {
  v1::NodeReport report;
  report.set_number(static_cast<uint64_t>(Local(machine, now_)));
  for (const auto& [key, ranks] : machine.ranks) {
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(key.first);
    one.set_attempt(key.second);
    one.set_phase(ranks.ended ? v1::ATTEMPT_ENDED : v1::ATTEMPT_RUNNING);
    one.set_exit_code(ranks.ended ? 137 : 0);
    one.set_saved_step(files_[key.first].attempt == key.second ? files_[key.first].steps : 0);
    const double seconds = ranks.desired.end_after_seconds();
    const auto end_after = static_cast<int64_t>(seconds * 1e9);
    if (ranks.lifeline.claim_read(end_after, Local(machine, now_))) {
      one.set_ends_after_seconds(seconds);
    }
  }
  waiting_.emplace_back(machine.node, report);
  // Each task has a turn after it.
  while (!StandsStill() && !waiting_.empty()) {
    const auto [node, word] = std::move(waiting_.front());
    waiting_.pop_front();
    REQUIRE(reconciler_->Report(node, word, now_).ok());
    if (!waiting_.empty()) reconciler_->Tick(now_);
  }
}

void PartitionedCluster::LookAtRanks(Machine& machine) {
  const int64_t local = Local(machine, now_);
  for (auto& [key, ranks] : machine.ranks) {
    if (machine.lines.folder) {
      const uint32_t claim = files_[key.first].claim;
      const auto sight = claim == key.second  ? keeper::ClaimSight::kOurs
                         : claim > key.second ? keeper::ClaimSight::kReplaced
                                              : keeper::ClaimSight::kUnknown;
      ranks.lifeline.Seen(sight, local);
    }
    const bool several = ranks.desired.launch().allocation_size() > 1;
    ranks.lifeline.Stepped(ranks.steps, several, local);
    const auto end_after = static_cast<int64_t>(ranks.desired.end_after_seconds() * 1e9);
    ranks.cut = ranks.cut || !ranks.lifeline.Cut(end_after, local).empty();
    if (ranks.cut && !ranks.ended) Kill(ranks);
  }
}

// As AgentLink does it.
bool PartitionedCluster::Greet(const std::string& name, Machine& machine) {
  const NameTurn turn = NameTurnOf(*table_, kNameTimes, machine.node, NameAsker::kAnother);
  if (!leases_->Take(machine.node, name, SteadyTime(now_), turn.lease)) {
    if (turn.when_replaced) reconciler_->NameWanted(machine.node);
    return false;
  }
  for (auto& [other, twin] : machines_) {
    if (twin.node == machine.node) twin.greeted = false;
  }
  std::string& holder = holders_[machine.node];
  if (!holder.empty() && holder != name) ++names_taken_;
  holder = name;
  v1::AgentHello hello;
  hello.set_node(machine.node);
  hello.set_cpus(4);
  hello.set_memory_bytes(uint64_t{1} << 40);
  REQUIRE(reconciler_->Hello(hello, now_, name).ok());
  machine.greeted = true;
  return true;
}

void PartitionedCluster::TurnAgent(const std::string& name, Machine& machine) {
  LookAtRanks(machine);
  const bool dials = reconciler_ && machine.lines.daemon && (machine.greeted || !StandsStill());
  const bool speaks = dials && (machine.greeted || Greet(name, machine));
  machine.greeted = speaks;
  while (!machine.reached_ns.empty() && machine.reached_ns.front() < now_ - 60 * kSecond) {
    machine.reached_ns.pop_front();
  }
  const bool is_heard = speaks && !StandsStill();
  if (is_heard || machine.lines.folder) machine.reached_ns.push_back(now_);
  if (!speaks) return;
  if (is_heard || !deaf_) leases_->Renew(machine.node, SteadyTime(now_));
  Report(machine);
  if (!is_heard) return;
  machine.heard = reconciler_->DesiredOf(machine.node);
  Obey(name, machine);
}

bool PartitionedCluster::LivesOn(const std::string& node, const Key& key,
                                 bool reaching_others) const {
  return std::any_of(machines_.begin(), machines_.end(), [&](const auto& named) {
    const Machine& machine = named.second;
    if (machine.node != node || (reaching_others && !machine.lines.nodes)) return false;
    const auto found = machine.ranks.find(key);
    return found != machine.ranks.end() && !found->second.ended;
  });
}

// All its nodes live and reach each other.
bool PartitionedCluster::Connected(const Key& key, const Ranks& ranks) const {
  const auto& allocation = ranks.desired.launch().allocation();
  return std::all_of(allocation.begin(), allocation.end(), [&](const v1::NodeAllocation& part) {
    return LivesOn(part.node(), key, allocation.size() > 1);
  });
}

void PartitionedCluster::TurnRanks() {
  std::set<Key> stepping;
  std::set<Key> broken;
  for (const auto& [name, machine] : machines_) {
    for (const auto& [key, ranks] : machine.ranks) {
      if (!ranks.begun) continue;
      if (ranks.ended) broken.insert(key);
      if (!ranks.ended && Connected(key, ranks)) stepping.insert(key);
    }
  }
  for (auto& [name, machine] : machines_) TurnRanksOf(name, machine, stepping, broken);
}

void PartitionedCluster::TurnRanksOf(const std::string& name, Machine& machine,
                                     const std::set<Key>& stepping, const std::set<Key>& broken) {
  for (auto& [key, ranks] : machine.ranks) {
    if (!ranks.begun) continue;
    // As mpirun does, or the deadlines of those that wait.
    if (broken.contains(key) && machine.lines.nodes && !ranks.ended) Kill(ranks);
    const bool steps = stepping.contains(key);
    if (steps) {
      ++ranks.steps;
      ranks.stepped_ns = now_;
    }
    const bool other_nodes = steps && ranks.desired.launch().allocation_size() > 1;
    const bool speaks = reconciler_ && !StandsStill() && machine.lines.daemon && machine.greeted;
    const bool reaches = machine.lines.folder || other_nodes || speaks;
    if (reaches) ranks.cut_off_since_ns = -1;
    if (!reaches && ranks.cut_off_since_ns < 0) ranks.cut_off_since_ns = now_;
    if (ranks.killed_at_ns != 0 && now_ >= ranks.killed_at_ns) ranks.ended = true;
    const auto& launch = ranks.desired.launch();
    const bool leads = launch.allocation(0).node() == machine.node;
    if (steps && leads) ++files_[key.first].done;
    if (steps && leads && machine.lines.folder) Lead(key);
  }
}

// Rank 0 publishes, where the claim is its attempt's.
void PartitionedCluster::Lead(const Key& key) {
  Files& files = files_[key.first];
  if (files.claim != key.second) return;
  if (files.begun < key.second) {
    files.begun = key.second;
    if (files.commit) ++taken_away_;
    files.commit.reset();
  }
  if (commits_stand_still && !files.commit && Random(20) == 0) {
    files.commit = Commit{key.second, now_ + Random(1200) * kTick};
  } else {
    Publish(files, key.second);
  }
}

void PartitionedCluster::Publish(Files& files, uint32_t attempt) {
  // Nothing of an older one comes after a newer one's.
  if (files.attempt > attempt) FAIL_CHECK("attempt " << attempt << " after " << files.attempt);
  files.attempt = attempt;
  ++files.steps;
}

void PartitionedCluster::TurnCommits() {
  for (auto& [job, files] : files_) {
    if (!files.commit || files.commit->at_ns > now_) continue;
    if (files.commit->attempt < files.claim) ++published_late_;
    Publish(files, files.commit->attempt);
    files.commit.reset();
  }
}

// Whoever reaches nobody ends in the time that it was told, by its own clock, and its kill.
void PartitionedCluster::CheckCutOff() const {
  for (const auto& [name, machine] : machines_) {
    for (const auto& [key, ranks] : machine.ranks) {
      const double seconds = ranks.desired.end_after_seconds();
      if (!machine.agent || ranks.ended || ranks.cut_off_since_ns < 0 || seconds <= 0) continue;
      const auto most = static_cast<int64_t>(seconds * 1e9 * 1.02) + kKill + 2 * kSecond;
      // Most are in time; to say so each tenth of a second would take the longest of all.
      if (now_ - std::max(ranks.cut_off_since_ns, ranks.watched_since_ns) <= most) continue;
      INFO("job " << key.first << " attempt " << key.second << " on " << name);
      CHECK(now_ - std::max(ranks.cut_off_since_ns, ranks.watched_since_ns) <= most);
    }
  }
}

void PartitionedCluster::TurnDaemon() {
  reconciler_->Spoke(leases_->TakeSpoken(), now_);
  reconciler_->Tick(now_);
  // The claim first, then the attempt may be stored as live.
  for (const v1::Job& job : std::exchange(plans_, {})) {
    const uint32_t attempt = job.status().attempt();
    REQUIRE(reconciler_->PlanReady(job.id(), attempt, Claim(job.id(), attempt), now_).ok());
  }
  for (const v1::Job& job : std::exchange(revocations_, {})) {
    const uint32_t attempt = job.status().attempt();
    if (Random(4) == 0) {  // later
      revocations_.push_back(job);
      continue;
    }
    ++revoked_;
    REQUIRE(reconciler_->Revoked(job.id(), attempt, Claim(job.id(), attempt + 1), now_).ok());
  }
}

void PartitionedCluster::Run(int64_t seconds) {
  for (const int64_t end = now_ + seconds * kSecond; now_ < end; now_ += kTick) {
    for (auto& [name, machine] : machines_) {
      const int64_t tick = now_ / kTick % 5;
      if (tick == 0) machine.turns_at = Random(2);
      if (machine.agent && tick == machine.turns_at) TurnAgent(name, machine);
    }
    if (reconciler_ && !StandsStill()) TurnDaemon();
    TurnRanks();
    TurnCommits();
    CheckCutOff();
  }
}

std::vector<std::string> PartitionedCluster::NodesOf(uint64_t job) const {
  std::vector<std::string> nodes;
  const v1::Job found = *table_->Get(job);
  for (const v1::NodeAllocation& part : found.allocation()) {
    nodes.push_back(part.node());
  }
  return nodes;
}

std::vector<std::string> PartitionedCluster::machines() const {
  std::vector<std::string> machines;
  for (const auto& [name, machine] : machines_) machines.push_back(name);
  return machines;
}

uint32_t PartitionedCluster::AttemptOf(uint64_t job) const {
  return table_->Get(job)->status().attempt();
}

std::string PartitionedCluster::StatusText(uint64_t job) const {
  return table_->Get(job)->status().ShortDebugString();
}

std::set<uint32_t> PartitionedCluster::Living(uint64_t job) const {
  std::set<uint32_t> living;
  for (const auto& [name, machine] : machines_) {
    for (const auto& [key, ranks] : machine.ranks) {
      if (key.first == job && !ranks.ended) living.insert(key.second);
    }
  }
  return living;
}

}  // namespace trireme::coordinator
