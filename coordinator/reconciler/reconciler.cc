// What others say, in the order: machine, store, table, others. reconciler_turn.cc: what passes by
// itself; reconciler_adoption.cc: what another store, or another history of this one, has begun;
// reconciler_lost.cc: attempts whose nodes are lost; reconciler_unable.cc: attempts that their
// nodes cannot start.
#include "coordinator/reconciler/reconciler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/job_machine/reasons.h"
#include "coordinator/job_machine/stop_grace.h"
#include "coordinator/job_machine/time_limit.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "coordinator/reconciler/lost_nodes.h"
#include "coordinator/reconciler/memory_kills.h"
#include "runtime/base/check.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/random_hex.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kLaunchKeyDigits = 16;

// Those that attempts may have ranks on, whether their agents come back or not.
std::vector<v1::Node> NodesOf(const std::vector<v1::Job>& jobs) {
  std::vector<v1::Node> nodes;
  for (const v1::Job& job : jobs) {
    for (const v1::NodeAllocation& part : job.allocation())
      nodes.emplace_back().set_name(part.node());
  }
  return nodes;
}

// An agent that was started anew, and has not looked yet, knows less than the one before it; what
// has ended on a node stays so.
v1::AttemptReport Newer(const v1::AttemptReport& known, const v1::AttemptReport& said) {
  const bool says_less = known.has_failure() && !said.has_failure();
  if (known.phase() == v1::ATTEMPT_ENDED && (said.phase() != v1::ATTEMPT_ENDED || says_less)) {
    return known;
  }
  if (said.phase() != v1::ATTEMPT_PHASE_UNSPECIFIED) return said;
  v1::AttemptReport newer = known;
  newer.set_stalled(said.stalled());
  newer.set_ends_after_seconds(said.ends_after_seconds());
  return newer;
}

}  // namespace

bool Reconciler::HasPlaceOn(const v1::Job& job, const std::string& node) {
  return std::any_of(job.allocation().begin(), job.allocation().end(),
                     [&](const v1::NodeAllocation& part) { return part.node() == node; });
}

Reconciler::Reconciler(const ReconcilerOptions& options, ReconcilerPorts ports, JobStore& store,
                       JobTable& table)
    : options_(options),
      ports_(std::move(ports)),
      store_(store),
      table_(table),
      identity_(store.identity()),
      nodes_(options.lease) {}

absl::StatusOr<std::unique_ptr<Reconciler>> Reconciler::Open(const ReconcilerOptions& options,
                                                             ReconcilerPorts ports, JobStore& store,
                                                             JobTable& table, int64_t now_unix_ns) {
  std::unique_ptr<Reconciler> self(new Reconciler(options, std::move(ports), store, table));
  self->started_unix_ns_ = now_unix_ns;
  self->listens_since_unix_ns_ = now_unix_ns;
  ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, store.LiveJobs());
  ASSIGN_OR_RETURN(const std::vector<v1::Node> nodes, store.Nodes());
  self->nodes_.Load(NodesOf(jobs));
  self->nodes_.Load(nodes);
  for (const std::vector<v1::Node>& known : {NodesOf(jobs), nodes}) {
    for (const v1::Node& node : known) self->awaited_.insert(node.name());
  }
  // Nothing is placed there.
  for (const v1::Node& node : nodes) {
    if (node.drained()) self->awaited_.erase(node.name());
  }
  self->older_before_ = UINT64_MAX;
  table.OlderAreAway();
  table.Publish(jobs, {});
  for (v1::Job& job : jobs) {
    const uint64_t id = job.id();
    self->active_.insert(id);
    self->File(nullptr, job);
    self->jobs_[id].job = std::move(job);
    self->ForgetHeard(self->jobs_[id], now_unix_ns);
  }
  ASSIGN_OR_RETURN(const uint64_t last, store.LastSequence());
  ASSIGN_OR_RETURN(self->first_sequence_, store.FirstSequence());
  EventQuery newest;
  newest.after_sequence = last > newest.limit ? last - newest.limit : 0;
  ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store.Events(newest));
  table.Publish({}, events);
  for (const uint64_t id : self->active_) {
    RETURN_IF_ERROR(self->RecallStalls(self->jobs_[id]));
    // Plans are asked for by the first Tick, when whoever makes them is there.
    self->TellNodesOf(self->jobs_[id]);
  }
  self->PublishCluster();
  return self;
}

// So that a stop is not told again, and its end is.
absl::Status Reconciler::RecallStalls(Entry& entry) {
  if (!entry.job.status().attempt_live()) return absl::OkStatus();
  EventQuery query;
  query.job_id = entry.job.id();
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store_.Events(query));
    for (const v1::Event& event : events) {
      if (!event.has_stalled() || event.attempt() != entry.job.status().attempt()) continue;
      entry.stalls.Told(event.stalled(), event.time_unix_ns());
    }
    if (events.size() < query.limit) return absl::OkStatus();
    query.after_sequence = events.back().sequence();
  }
}

absl::StatusOr<Reconciler::Entry*> Reconciler::Find(uint64_t job_id) {
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) return &found->second;
  if (older_before_ != 0) {
    absl::StatusOr<std::optional<v1::Job>> older = store_.FindJob(job_id);
    RETURN_IF_ERROR(OfStore(older.status(), fmt::format("job {} cannot be looked up", job_id)));
    if (*older) {
      Entry& entry = jobs_[job_id];
      entry.job = **older;
      usage_.File(nullptr, **older);
      table_.PublishOlder({**std::move(older)}, 0);
      return &entry;
    }
  }
  return NoSuchJob(job_id);
}

absl::Status Reconciler::Commit(Change& change) {
  const absl::Status stored = store_.Commit(change);
  // These are about what was to be stored, not about the store.
  if (absl::IsAlreadyExists(stored) || absl::IsInvalidArgument(stored)) return stored;
  RETURN_IF_ERROR(OfStore(stored, "it cannot be stored"));
  table_.Publish(change.jobs, change.events);
  return absl::OkStatus();
}

absl::Status Reconciler::Take(Entry& entry, Transition transition,
                              std::vector<v1::NodeAllocation> allocation, int64_t now_unix_ns,
                              const v1::StorePosition* launched) {
  const uint32_t attempt_before = entry.job.status().attempt();
  const std::vector<v1::NodeAllocation> allocation_before(entry.job.allocation().begin(),
                                                          entry.job.allocation().end());
  const bool waited = ConsequencesOf(entry.job.status()).wants_allocation;
  v1::Job job = entry.job;
  *job.mutable_status() = transition.status;
  const bool holds = ConsequencesOf(job.status()).holds_allocation;
  // What is then no longer told by anybody.
  if (entry.job.status().attempt_live() && !job.status().attempt_live()) {
    if (auto progress = table_.ProgressOf(job.id())) *job.mutable_progress() = *std::move(progress);
  }
  if (!holds) job.clear_allocation();
  // Of one that was found, its agents alone know the key.
  if (launched != nullptr || !job.status().attempt_live()) job.clear_launch_key();
  if (launched != nullptr) {
    *job.mutable_launch_store() = *launched;
  } else if (job.status().attempt_live() && !entry.job.status().attempt_live()) {
    *job.mutable_launch_store() = identity_.At(0);
    job.set_launch_key(base::RandomHex(kLaunchKeyDigits));
  }
  if (!allocation.empty()) job.mutable_allocation()->Assign(allocation.begin(), allocation.end());
  Change change;
  for (v1::Event& event : transition.events) {
    event.set_job_id(job.id());
    event.set_attempt(job.status().attempt());
    event.set_time_unix_ns(now_unix_ns);
  }
  change.jobs.push_back(job);
  change.events = std::move(transition.events);
  RETURN_IF_ERROR(Commit(change));
  File(&entry.job, job);
  entry.job = std::move(job);
  entry.store_again = false;
  if (entry.job.status().attempt() != attempt_before) {
    entry.plan_not_before_unix_ns = 0;
    entry.reports.clear();
    entry.stalls = StallWatch();
    entry.alive_unix_ns = 0;
    entry.revoke_asked = false;
    entry.revoke_not_before_unix_ns = 0;
    entry.revoked_unix_ns = 0;
    entry.left.clear();
    entry.unheard.clear();
  }
  // Given up, or found elsewhere: the nodes that it held hear of it.
  if ((!holds || launched != nullptr) && !allocation_before.empty()) {
    allocations_may_have_changed_ = true;
    for (const v1::NodeAllocation& part : allocation_before) ports_.desired_changed(part.node());
  }
  // Also one that has left the queue: it may have kept others off nodes.
  if (waited || ConsequencesOf(entry.job.status()).wants_allocation)
    allocations_may_have_changed_ = true;
  Follow(entry, now_unix_ns);
  return absl::OkStatus();
}

RetryPolicy Reconciler::PolicyOf(const Entry& entry) const {
  RetryPolicy policy = options_.retry;
  const auto asked = entry.job.spec().resources().max_failures();
  if (asked > 0) policy.max_failures = static_cast<uint32_t>(asked);
  policy.time_limit = TimeLimitOf(entry.job.spec());
  return policy;
}

absl::Status Reconciler::Feed(Entry& entry, const JobEvent& event, int64_t now_unix_ns) {
  ASSIGN_OR_RETURN(Transition transition,
                   Apply(entry.job.status(), event, PolicyOf(entry), now_unix_ns));
  if (!transition.changed) return absl::OkStatus();
  return Take(entry, std::move(transition), {}, now_unix_ns);
}

// What follows from the status just committed, or loaded.
void Reconciler::Follow(Entry& entry, int64_t now_unix_ns) {
  const Consequences consequences = ConsequencesOf(entry.job.status());
  const uint32_t attempt = entry.job.status().attempt();
  const bool may_ask = now_unix_ns >= entry.plan_not_before_unix_ns;
  if (consequences.wants_plan && entry.plan_asked_for != attempt && may_ask) {
    entry.plan_asked_for = attempt;
    ports_.make_plan(entry.job);
  }
  if (HasEnded(entry.job.status().state()) && !entry.job.status().attempt_live()) {
    active_.erase(entry.job.id());
  }
  TellNodesOf(entry);
}

void Reconciler::TellNodesOf(const Entry& entry) {
  ++revision_;
  for (const v1::NodeAllocation& part : entry.job.allocation()) ports_.desired_changed(part.node());
}

absl::StatusOr<std::optional<v1::Job>> Reconciler::FindSubmitted(const std::string& owner,
                                                                 const std::string& request_id) {
  const absl::StatusOr<std::optional<uint64_t>> id = store_.FindRequest(owner, request_id);
  RETURN_IF_ERROR(OfStore(id.status(), kRequestUnknown));
  if (!*id) return std::optional<v1::Job>();
  const absl::StatusOr<Entry*> entry = Find(**id);
  if (!entry.ok() && !absl::IsNotFound(entry.status())) return entry.status();
  return table_.Find(**id, &store_);
}

absl::StatusOr<v1::SubmitResponse> Reconciler::Submit(const Submission& submission,
                                                      int64_t now_unix_ns) {
  v1::SubmitResponse response;
  ASSIGN_OR_RETURN(const std::optional<v1::Job> before,
                   FindSubmitted(submission.owner, submission.request_id));
  if (before) {
    *response.mutable_job() = *before;
    response.set_repeated(true);
    return response;
  }
  if (active_.size() >= options_.most_waiting_jobs) {
    return absl::ResourceExhaustedError(
        fmt::format("{} jobs wait or run already; try again when some have ended", active_.size()));
  }
  v1::Job job;
  uint64_t id = submission.id;
  if (id == 0) {
    const absl::StatusOr<uint64_t> next = store_.NextJobId(0);
    RETURN_IF_ERROR(OfStore(next.status(), "the job gets no number"));
    id = *next;
  }
  job.set_id(id);
  job.set_name(submission.job.name());
  job.set_owner(submission.owner);
  *job.mutable_spec() = submission.job;
  *job.mutable_resources() = submission.resources;
  job.set_real_paths(submission.real_paths);
  job.set_priority(static_cast<int32_t>(submission.job.resources().priority()));
  job.set_submitted_unix_ns(now_unix_ns);
  job.set_run_folder(submission.run_folder.empty() ? fmt::format("{}/{}", options_.jobs_folder, id)
                                                   : submission.run_folder);
  job.set_uncapped(submission.uncapped);
  *job.mutable_status() = InitialStatus(now_unix_ns);
  job.mutable_status()->set_attempt(submission.attempts_before);
  RETURN_IF_ERROR(usage_.MayAdd(job));
  Change change;
  change.jobs.push_back(job);
  change.request_ids.push_back(submission.request_id);
  v1::Event& event = change.events.emplace_back();
  event.set_job_id(id);
  event.set_time_unix_ns(now_unix_ns);
  event.mutable_submitted()->set_name(job.name());
  event.mutable_submitted()->set_owner(job.owner());
  RETURN_IF_ERROR(Commit(change));
  jobs_[id].job = job;
  active_.insert(id);
  File(nullptr, job);
  allocations_may_have_changed_ = true;
  *response.mutable_job() = std::move(job);
  return response;
}

double Reconciler::GraceOf(const Entry& entry, int64_t now_unix_ns) {
  double longest_ms = 0;
  for (const auto& [node, report] : entry.reports) {
    for (const v1::RankReport& rank : report.ranks()) {
      longest_ms = std::max(longest_ms, rank.timing().step_ms());
    }
  }
  // In the first step, or before agents have told a daemon that was started anew: no step has
  // taken longer than all there was.
  if (longest_ms == 0 && entry.job.status().attempt_live()) {
    longest_ms = static_cast<double>(now_unix_ns - entry.job.status().changed_unix_ns()) / 1e6;
  }
  return StopGraceSeconds(entry.job.spec(), longest_ms / 1000);
}

absl::StatusOr<v1::Job> Reconciler::Ask(uint64_t job_id, const JobEvent& request,
                                        double grace_seconds, int64_t now_unix_ns) {
  ASSIGN_OR_RETURN(Entry * entry, Find(job_id));
  ASSIGN_OR_RETURN(Transition transition,
                   Apply(entry->job.status(), request, PolicyOf(*entry), now_unix_ns));
  const double grace = grace_seconds > 0 ? grace_seconds : GraceOf(*entry, now_unix_ns);
  // Who cancels again in less time means it.
  const bool sooner = std::holds_alternative<CancelAsked>(request) &&
                      transition.status.attempt_live() &&
                      grace < transition.status.stop_grace_seconds();
  if (transition.changed || sooner) {
    transition.status.set_stop_grace_seconds(grace);
    RETURN_IF_ERROR(Take(*entry, std::move(transition), {}, now_unix_ns));
  }
  return table_.Get(job_id, &store_);
}

absl::StatusOr<v1::Node> Reconciler::SetUse(const NodeUse& use, int64_t now_unix_ns) {
  Nodes after = nodes_;
  Change change;
  ASSIGN_OR_RETURN(v1::Event event, after.SetUse(use, now_unix_ns));
  event.set_time_unix_ns(now_unix_ns);
  change.events.push_back(std::move(event));
  change.nodes.push_back(after.Get(use.node));
  // Whoever says so has mended it.
  if (!use.drained) change.jobs = JobsLettingBack(use.node, LetBack);
  RETURN_IF_ERROR(Commit(change));
  FileAgain(change.jobs);
  nodes_ = std::move(after);
  allocations_may_have_changed_ = true;
  PublishCluster();
  return nodes_.Shown(use.node);
}

absl::Status Reconciler::TellNodes(Nodes after, std::vector<v1::Event> events, int64_t now_unix_ns,
                                   const std::string& changed) {
  Change change;
  if (!changed.empty()) change.nodes.push_back(after.Get(changed));
  change.events = std::move(events);
  for (v1::Event& event : change.events) {
    event.set_time_unix_ns(now_unix_ns);
    // Whoever was gone is so no longer once it speaks.
    const v1::Node node = after.Get(event.node_changed().node());
    if (node.drained()) change.nodes.push_back(node);
  }
  if (!change.events.empty() || !changed.empty()) RETURN_IF_ERROR(Commit(change));
  for (const v1::Event& event : change.events) {
    const std::string& node = event.node_changed().node();
    if (nodes_.IsLost(node) && !after.IsLost(node)) ForgetHeardOf(node, now_unix_ns);
  }
  nodes_ = std::move(after);
  allocations_may_have_changed_ = true;
  return absl::OkStatus();
}

absl::Status Reconciler::Hello(const v1::AgentHello& hello, int64_t now_unix_ns,
                               const std::string& holder) {
  Nodes after = nodes_;
  const bool other_holder = after.SetHolder(hello.node(), holder);
  const bool continues =
      !hello.has_served() || identity_.Continues(hello.served(), table_.last_sequence());
  std::vector<v1::Event> events = after.Hello(hello, continues, now_unix_ns);
  refusals_.erase(hello.node());
  const absl::Status stored =
      TellNodes(std::move(after), std::move(events), now_unix_ns, other_holder ? hello.node() : "");
  if (!stored.ok()) {
    hellos_not_stored_[hello.node()] = {hello, holder};  // it is said once a connection
    return stored;
  }
  hellos_not_stored_.erase(hello.node());
  awaited_.erase(hello.node());
  names_wanted_.erase(hello.node());
  PublishCluster();
  ports_.desired_changed(hello.node());
  return absl::OkStatus();
}

void Reconciler::Spoke(const std::set<std::string>& nodes, int64_t now_unix_ns) {
  for (const std::string& node : nodes) nodes_.Spoke(node, now_unix_ns);
}

absl::Status Reconciler::Report(const std::string& node, const v1::NodeReport& report,
                                int64_t now_unix_ns) {
  names_wanted_.erase(node);
  if (nodes_.IsLost(node)) {
    Nodes after = nodes_;
    std::vector<v1::Event> events = after.Heard(node, now_unix_ns);
    RETURN_IF_ERROR(TellNodes(std::move(after), std::move(events), now_unix_ns));
  } else {
    nodes_.Heard(node, now_unix_ns);  // nothing new
  }
  HearRefusal(node, report);
  RETURN_IF_ERROR(AdoptAgain(node, report, now_unix_ns));
  bool progress = false;
  for (const v1::AttemptReport& one : report.attempts()) {
    const auto found = jobs_.find(one.job_id());
    if (found == jobs_.end() || !IsOurs(one)) continue;
    Entry& entry = found->second;
    const v1::JobStatus& status = entry.job.status();
    if (one.attempt() != status.attempt() || !status.attempt_live()) continue;
    if (!HasPlaceOn(entry.job, node)) continue;
    if (one.has_progress()) {
      table_.PutProgress(one.job_id(), one.progress());
      progress = true;
    }
    RETURN_IF_ERROR(TellStalls(entry, node, one, now_unix_ns));
    v1::AttemptReport& known = entry.reports[node];
    // Shown beside the reasons of the jobs that wait for resources.
    if (known.waits_for() != one.waits_for() || known.stalled() != one.stalled()) {
      allocations_may_have_changed_ = true;
    }
    RETURN_IF_ERROR(HearStart(entry, node, known, one, now_unix_ns));
    known = Newer(known, one);
    const bool seen = one.phase() != v1::ATTEMPT_PHASE_UNSPECIFIED;
    if (seen && IsHeardInTime(now_unix_ns)) {
      entry.unheard.erase(node);
      if (known.phase() != v1::ATTEMPT_ENDED) entry.alive_unix_ns = now_unix_ns;
    }
    if (seen) entry.left.erase(node);  // it says itself how it fares
    RETURN_IF_ERROR(NoteFence(entry));
    RETURN_IF_ERROR(Evaluate(entry, now_unix_ns));
  }
  if (progress) table_.Announce();
  if (ports_.report_taken) ports_.report_taken(node, report.number());
  return absl::OkStatus();
}

// Stops, deaths and stalls of ranks are told once each, and when they are over.
absl::Status Reconciler::TellStalls(Entry& entry, const std::string& node,
                                    const v1::AttemptReport& report, int64_t now_unix_ns) {
  entry.stalls.Hear(node, report, now_unix_ns);
  const bool deaths_are_meant = ConsequencesOf(entry.job.status()).attempt != v1::ATTEMPT_RUN;
  Change change;
  for (v1::RankStalled& news : entry.stalls.News(deaths_are_meant)) {
    v1::Event& event = change.events.emplace_back();
    event.set_job_id(entry.job.id());
    event.set_attempt(report.attempt());
    event.set_time_unix_ns(now_unix_ns);
    *event.mutable_stalled() = std::move(news);
  }
  if (change.events.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Commit(change));
  for (const v1::Event& event : change.events) entry.stalls.Told(event.stalled(), now_unix_ns);
  return absl::OkStatus();
}

// The newest of a node, which one that is gone can no longer say. STARTING: none so far.
v1::AttemptReport Reconciler::ReportOf(const Entry& entry, const std::string& node) const {
  v1::AttemptReport report;
  const auto found = entry.reports.find(node);
  if (found != entry.reports.end()) report = found->second;
  if (report.phase() == v1::ATTEMPT_PHASE_UNSPECIFIED) report.set_phase(v1::ATTEMPT_STARTING);
  if (report.phase() == v1::ATTEMPT_ENDED) return report;
  const bool gone = nodes_.IsGone(node);
  if (!gone && !entry.left.contains(node)) return report;
  report.set_phase(v1::ATTEMPT_ENDED);
  report.set_exit_code(base::kKilledCode);
  report.mutable_failure()->set_rank(-1);
  report.mutable_failure()->set_exit_code(base::kKilledCode);
  report.mutable_failure()->set_headline(gone ? GoneText(nodes_.Get(node)) : LostText(node));
  return report;
}

// What the reports of all its nodes together say of an attempt.
absl::Status Reconciler::Evaluate(Entry& entry, int64_t now_unix_ns) {
  const uint32_t attempt = entry.job.status().attempt();
  bool all_run = true;
  bool all_ended = true;
  bool queued = false;
  v1::AttemptReport launcher;
  uint64_t checkpoint_step = 0;
  v1::Progress progress;
  for (int i = 0; i < entry.job.allocation_size(); ++i) {
    v1::AttemptReport report = ReportOf(entry, entry.job.allocation(i).node());
    all_run = all_run && report.phase() == v1::ATTEMPT_RUNNING;
    all_ended = all_ended && report.phase() == v1::ATTEMPT_ENDED;
    queued = queued || !report.waits_for().empty();
    checkpoint_step = std::max(checkpoint_step, report.saved_step());
    if (report.has_progress()) progress = report.progress();  // of one node, that of rank 0
    if (i == 0) launcher = std::move(report);
  }
  if (all_ended) {
    NameMemoryKills(entry.job, entry.reports, launcher);
    const int rank = launcher.exit_code() == base::kNoRoomHere ? launcher.failure().rank() : 0;
    AttemptEnded ended{attempt,
                       launcher.exit_code(),
                       launcher.failure(),
                       checkpoint_step,
                       entry.alive_unix_ns,
                       launcher.never_started(),
                       NodeOfRank(entry.job, rank),
                       progress.memory_step(),
                       progress.steps_done()};
    ended.no_other_node = ended.never_started && nodes_.IsLastAndUnable(ended.node);
    return Feed(entry, ended, now_unix_ns);
  }
  // The desired state of the other nodes is now to kill.
  if (launcher.phase() == v1::ATTEMPT_ENDED) TellNodesOf(entry);
  if (all_run) RETURN_IF_ERROR(Feed(entry, AllRanksRun{attempt}, now_unix_ns));
  if (queued) RETURN_IF_ERROR(Feed(entry, LaunchQueued{attempt}, now_unix_ns));
  const StepsSeen steps{attempt, progress.memory_step(), progress.steps_done()};
  RETURN_IF_ERROR(Feed(entry, steps, now_unix_ns));
  CheckpointSeen saved{attempt, checkpoint_step};
  saved.alive_unix_ns = entry.alive_unix_ns;
  if (launcher.phase() == v1::ATTEMPT_RUNNING) saved.fails = launcher.failure().headline();
  return Feed(entry, saved, now_unix_ns);
}

absl::Status Reconciler::PlanReady(uint64_t job_id, uint32_t attempt, const absl::Status& outcome,
                                   int64_t now_unix_ns) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::OkStatus();
  // Its disk: the attempt has not begun, so that waiting costs it nothing.
  if (absl::IsUnavailable(outcome)) {
    return PlanHeldUp(job_id, attempt, base::MessageOf(outcome), /*again=*/true, now_unix_ns);
  }
  Entry& entry = found->second;
  if (entry.plan_asked_for == attempt) entry.plan_asked_for = 0;
  const absl::Status stored =
      outcome.ok()
          ? Feed(entry, PlanMade{attempt}, now_unix_ns)
          : Feed(entry, PlanRefused{attempt, base::ExitCodeOf(outcome), base::MessageOf(outcome)},
                 now_unix_ns);
  // The plan is made again, and its files are written.
  if (!stored.ok()) entry.plan_not_before_unix_ns = now_unix_ns + kTryAgainNs;
  return stored;
}

}  // namespace trireme::coordinator
