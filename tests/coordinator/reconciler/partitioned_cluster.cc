#include "tests/coordinator/reconciler/partitioned_cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace trireme::coordinator {
namespace {

constexpr int64_t kTick = 100'000'000;
constexpr int64_t kSecond = 1'000'000'000;
// From the agent's decision to the end of the last rank, at the longest.
constexpr int64_t kKill = 12 * kSecond;

}  // namespace

PartitionedCluster::PartitionedCluster(uint32_t seed, int nodes) : random_(seed) {
  auto store = JobStore::Open(":memory:");
  REQUIRE(store.ok());
  store_ = *std::move(store);
  for (int i = 1; i <= nodes; ++i) {
    nodes_["n" + std::to_string(i)].drift = 0.99 + 0.0002 * Random(100);
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
  ports.report_taken = [this](const std::string& name, uint64_t sent) {
    Node& node = nodes_.at(name);
    for (auto& [key, ranks] : node.ranks) ranks.lifeline.Taken(static_cast<int64_t>(sent));
  };
  auto opened = Reconciler::Open({}, ports, *store_, *table_, now_);
  REQUIRE(opened.ok());
  reconciler_ = *std::move(opened);
  for (auto& [name, node] : nodes_) node.greeted = false;
}

void PartitionedCluster::KillDaemon() {
  reconciler_.reset();
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
  Node& node = nodes_.at(name);
  node.agent = true;
  node.greeted = false;
  // What an agent adopts it knows no news of; a decision to end it is in its records.
  for (auto& [key, ranks] : node.ranks) {
    ranks.lifeline = keeper::Lifeline::Adopted(Local(node, now_));
    ranks.watched_since_ns = now_;
  }
}

void PartitionedCluster::Heal() {
  for (auto& [name, node] : nodes_) {
    node.lines = {};
    if (!node.agent) StartAgent(name);
  }
  daemon_reaches_folder = true;
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

// No rank of an older attempt lives where nobody is reached any more.
void PartitionedCluster::CheckStart(const Key& key) const {
  for (const auto& [name, node] : nodes_) {
    for (const auto& [older, ranks] : node.ranks) {
      if (older.first != key.first || older.second >= key.second || ranks.ended) continue;
      INFO("job " << key.first << " attempt " << key.second << " starts while attempt "
                  << older.second << " lives on " << name);
      // One without an agent, or whose agent has just come, has nobody to end it, and publishes
      // nothing. Nor do nodes that reach nobody but each other, and are all that there is of it.
      const bool watched = node.agent && now_ - ranks.watched_since_ns > kKill + 6 * kSecond;
      if (watched) CHECK(Connected(older));
      ++overlaps_;
    }
  }
}

void PartitionedCluster::Obey(Node& node) {
  const v1::DesiredAttempts desired = *std::move(node.heard);
  node.heard.reset();
  std::set<Key> wanted;
  for (const v1::DesiredAttempt& one : desired.attempts()) {
    const Key key{one.job_id(), one.attempt()};
    wanted.insert(key);
    const bool known = node.ranks.contains(key);
    if (!known && one.desired_state() == v1::ATTEMPT_RUN) CheckStart(key);
    Ranks& ranks = node.ranks[key];
    if (!known) {
      ranks.desired = one;
      ranks.lifeline = keeper::Lifeline(Local(node, now_));
      ranks.ended = one.desired_state() != v1::ATTEMPT_RUN;
    }
    if (one.desired_state() != v1::ATTEMPT_RUN) Kill(ranks);
  }
  for (auto at = node.ranks.begin(); at != node.ranks.end();) {
    const bool other = !wanted.contains(at->first);
    if (other && !at->second.ended) Kill(at->second);
    at = other && at->second.ended ? node.ranks.erase(at) : std::next(at);
  }
}

void PartitionedCluster::Report(const std::string& name, Node& node) {
  v1::NodeReport report;
  report.set_number(static_cast<uint64_t>(Local(node, now_)));
  for (const auto& [key, ranks] : node.ranks) {
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(key.first);
    one.set_attempt(key.second);
    one.set_phase(ranks.ended ? v1::ATTEMPT_ENDED : v1::ATTEMPT_RUNNING);
    one.set_exit_code(ranks.ended ? 137 : 0);
    one.set_saved_step(files_[key.first].attempt == key.second ? files_[key.first].steps : 0);
    const double seconds = ranks.desired.end_after_seconds();
    const auto end_after = static_cast<int64_t>(seconds * 1e9);
    if (ranks.lifeline.claim_read(end_after, Local(node, now_))) {
      one.set_ends_after_seconds(seconds);
    }
  }
  REQUIRE(reconciler_->Report(name, report, now_).ok());
}

void PartitionedCluster::TurnAgent(const std::string& name, Node& node) {
  const int64_t local = Local(node, now_);
  for (auto& [key, ranks] : node.ranks) {
    if (node.lines.folder) {
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
  if (!reconciler_ || !node.lines.daemon) {
    node.greeted = false;
    return;
  }
  if (!node.greeted) {
    v1::AgentHello hello;
    hello.set_node(name);
    hello.set_cpus(4);
    hello.set_memory_bytes(uint64_t{1} << 40);
    REQUIRE(reconciler_->Hello(hello, now_).ok());
    node.greeted = true;
  }
  Report(name, node);
  node.heard = reconciler_->DesiredOf(name);
  Obey(node);
}

// All its nodes live and reach each other.
bool PartitionedCluster::Connected(const Key& key) const {
  const Ranks* one = nullptr;
  for (const auto& [name, node] : nodes_) {
    const auto found = node.ranks.find(key);
    if (found != node.ranks.end()) one = &found->second;
  }
  if (one == nullptr) return false;
  const auto& allocation = one->desired.launch().allocation();
  return std::all_of(allocation.begin(), allocation.end(), [&](const v1::NodeAllocation& part) {
    const Node& node = nodes_.at(part.node());
    const auto found = node.ranks.find(key);
    const bool lives = found != node.ranks.end() && !found->second.ended;
    return lives && (allocation.size() == 1 || node.lines.nodes);
  });
}

void PartitionedCluster::TurnRanks() {
  std::set<Key> stepping;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [key, ranks] : node.ranks) {
      if (!ranks.ended && Connected(key)) stepping.insert(key);
    }
  }
  std::set<Key> broken;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [key, ranks] : node.ranks) {
      if (ranks.ended) broken.insert(key);
    }
  }
  for (auto& [name, node] : nodes_) {
    for (auto& [key, ranks] : node.ranks) {
      // As mpirun does, or the deadlines of those that wait.
      if (broken.contains(key) && node.lines.nodes && !ranks.ended) Kill(ranks);
      const bool steps = stepping.contains(key);
      if (steps) ++ranks.steps;
      const bool other_nodes = steps && ranks.desired.launch().allocation_size() > 1;
      const bool reaches = node.lines.folder || other_nodes || (reconciler_ && node.lines.daemon);
      if (reaches) ranks.cut_off_since_ns = -1;
      if (!reaches && ranks.cut_off_since_ns < 0) ranks.cut_off_since_ns = now_;
      if (ranks.killed_at_ns != 0 && now_ >= ranks.killed_at_ns) ranks.ended = true;
      // Rank 0 publishes, where the claim is its attempt's.
      Files& files = files_[key.first];
      const bool leads = ranks.desired.launch().allocation(0).node() == name;
      if (!steps || !leads || !node.lines.folder || files.claim != key.second) continue;
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
  }
}

void PartitionedCluster::Publish(Files& files, uint32_t attempt) {
  CHECK(files.attempt <= attempt);  // nothing of an older one comes after a newer one's
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
  for (const auto& [name, node] : nodes_) {
    for (const auto& [key, ranks] : node.ranks) {
      const double seconds = ranks.desired.end_after_seconds();
      if (!node.agent || ranks.ended || ranks.cut_off_since_ns < 0 || seconds <= 0) continue;
      const auto most = static_cast<int64_t>(seconds * 1e9 * 1.02) + kKill + 2 * kSecond;
      INFO("job " << key.first << " attempt " << key.second << " on " << name);
      CHECK(now_ - std::max(ranks.cut_off_since_ns, ranks.watched_since_ns) <= most);
    }
  }
}

void PartitionedCluster::Run(int64_t seconds) {
  for (const int64_t end = now_ + seconds * kSecond; now_ < end; now_ += kTick) {
    for (auto& [name, node] : nodes_) {
      if (node.agent && (now_ / kTick) % 5 == Random(2)) TurnAgent(name, node);
    }
    if (reconciler_) reconciler_->Tick(now_);
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
      REQUIRE(reconciler_->Revoked(job.id(), attempt, Claim(job.id(), attempt + 1), now_).ok());
    }
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

std::vector<std::string> PartitionedCluster::names() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) names.push_back(name);
  return names;
}

uint32_t PartitionedCluster::AttemptOf(uint64_t job) const {
  return table_->Get(job)->status().attempt();
}

std::string PartitionedCluster::StatusText(uint64_t job) const {
  return table_->Get(job)->status().ShortDebugString();
}

std::set<uint32_t> PartitionedCluster::Living(uint64_t job) const {
  std::set<uint32_t> living;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [key, ranks] : node.ranks) {
      if (key.first == job && !ranks.ended) living.insert(key.second);
    }
  }
  return living;
}

}  // namespace trireme::coordinator
