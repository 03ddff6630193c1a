// What passes by itself: leases, retries, allocations for those that wait, and what is old.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/job_machine/stop_grace.h"
#include "coordinator/job_machine/time_limit.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "coordinator/reconciler/reconciler.h"
#include "coordinator/scheduler/waits.h"
#include "runtime/base/check.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

using base::kNsPerMs;

// Old events, and jobs, that are dropped at a time: a few milliseconds' work.
constexpr uint64_t kEventsDropped = 1000;
constexpr size_t kJobsDropped = 1000;
constexpr size_t kOlderRead = 500;  // likewise, jobs that ended before this start
// Without anything to wait for: leases and the allocations of jobs are looked at so often.
constexpr int64_t kIdleNs = 1000 * kNsPerMs;
// What people are told of reservations is no older; and jobs that run on beyond their end move
// them.
constexpr int64_t kReservedNs = 60000 * kNsPerMs;
// Of a turn, beyond the time that it was asked for: what is less is a busy machine.
constexpr int64_t kLateNs = 2000 * kNsPerMs;
// What agents have said meanwhile is acted on by then; each says more once a second.
constexpr int64_t kHearAnewNs = 2000 * kNsPerMs;
// By then each agent that can has said more, on a busy machine too.
constexpr int64_t kAllHeardNs = 2 * kHearAnewNs;

QueueKey KeyOf(const v1::Job& job) {
  return {-int64_t{job.priority()}, job.submitted_unix_ns(), job.id()};
}

// From now on, at most, with the stop; 0: nobody knows.
int64_t RunsNs(const v1::JobSpec& spec, int64_t used_ns) {
  const int64_t limit_ns = TimeLimitOf(spec).count();
  if (limit_ns == 0) return 0;
  const std::chrono::duration<double> stop(StopGraceSeconds(spec, 0));
  return std::max<int64_t>(0, limit_ns - used_ns) +
         std::chrono::duration_cast<std::chrono::nanoseconds>(stop).count();
}

}  // namespace

// The disk has refused them.
absl::Status Reconciler::HearHellosAgain(int64_t now_unix_ns) {
  while (!hellos_not_stored_.empty()) {
    const KnownHello known = hellos_not_stored_.begin()->second;
    RETURN_IF_ERROR(Hello(known.hello, now_unix_ns, known.holder));
  }
  return absl::OkStatus();
}

std::vector<Holding> Reconciler::HoldingJobs(int64_t now_unix_ns) const {
  std::vector<Holding> holding;
  for (const uint64_t id : holding_) {
    const v1::Job& job = jobs_.at(id).job;
    if (job.allocation().empty()) continue;
    const int64_t runs_ns = RunsNs(job.spec(), UsedNs(job.status(), now_unix_ns));
    holding.push_back({id,
                       job.resources(),
                       {job.allocation().begin(), job.allocation().end()},
                       CappedUserOf(job),
                       runs_ns == 0 ? 0 : now_unix_ns + runs_ns});
  }
  return holding;
}

// Without a cap the scheduler need not tell users apart.
std::string Reconciler::CappedUserOf(const v1::Job& job) const {
  return job.uncapped() || options_.scheduling.user_running_ranks == 0 ? "" : job.owner();
}

Waiting Reconciler::WaitingOf(const v1::Job& job, int64_t since_unix_ns) const {
  const auto& unable = job.status().unable_nodes();
  return {job.id(),
          job.priority(),
          job.submitted_unix_ns(),
          since_unix_ns,
          {job.resources(),
           RunsNs(job.spec(), job.status().used_ns()),
           CappedUserOf(job),
           {unable.begin(), unable.end()},
           TriesInVain(job.status()) >= kUnableAfter}};
}

void Reconciler::File(const v1::Job* before, const v1::Job& job) {
  usage_.File(before, job);
  if (before != nullptr) {
    holding_.erase(job.id());
    queue_.Remove(job.id());
    table_.PutInQueue(KeyOf(job), std::nullopt);
  }
  keeping_off_.erase(job.id());
  const bool ended = HasEnded(job.status().state());
  if (!ended && job.status().unable_nodes_size() > 0) keeping_off_.insert(job.id());
  const Consequences consequences = ConsequencesOf(job.status());
  if (consequences.holds_allocation) holding_.insert(job.id());
  if (!consequences.wants_allocation) return;
  const uint64_t line = queue_.Add(WaitingOf(job, job.status().changed_unix_ns()));
  table_.PutInQueue(KeyOf(job), line);
}

std::string Reconciler::WouldWaitFor(const v1::ResourceRequest& resources, const v1::JobSpec& spec,
                                     int64_t now_unix_ns, const std::string& user) {
  v1::Job job;
  job.set_id(jobs_.empty() ? 1 : jobs_.rbegin()->first + 1);
  job.set_priority(static_cast<int32_t>(spec.resources().priority()));
  job.set_submitted_unix_ns(now_unix_ns);
  job.set_owner(user);
  *job.mutable_resources() = resources;
  *job.mutable_spec() = spec;
  const uint64_t line = queue_.Add(WaitingOf(job, now_unix_ns));
  const Decision decision = Schedule(nodes_.Capacities(), HoldingJobs(now_unix_ns), queue_,
                                     options_.scheduling, now_unix_ns);
  queue_.Remove(job.id());
  if (decision.allocations.contains(job.id())) return "";
  return decision.waits->ReasonOf(job.id(), line, table_.PlaceOf(KeyOf(job)));
}

// What one that has its allocation waits for, as its agents say, or because they say nothing.
std::string Reconciler::WaitOf(const Entry& entry) const {
  for (const v1::NodeAllocation& part : entry.job.allocation()) {
    if (nodes_.Refuses(part.node())) {
      return fmt::format(
          "waits for node {}, whose agent keeps it for another store, or a later state of this "
          "one: "
          "trireme nodes adopt {}",
          part.node(), part.node());
    }
    if (!nodes_.IsLost(part.node())) continue;
    return fmt::format(
        "waits for a report of the agent of node {}; its ranks may run on, and what is known of "
        "them is from its last report{}",
        part.node(), WhenLeft(entry));
  }
  for (const auto& [node, report] : entry.reports) {
    if (!report.stalled().empty()) return report.stalled();
    if (!report.waits_for().empty()) return report.waits_for();
  }
  return "";
}

Decision Reconciler::Decide(const std::vector<Holding>& holding, int64_t now_unix_ns) const {
  SchedulingPolicy policy = options_.scheduling;
  // Reservations are made anew after a start: while agents dial in, one after another, a small job
  // would else start where a large one is to.
  policy.in_order = !awaited_.empty() && now_unix_ns < AgentsDueNs();
  return Schedule(nodes_.Capacities(), holding, queue_, policy, now_unix_ns);
}

absl::Status Reconciler::AllocateNodes(int64_t now_unix_ns) {
  Decision decision = Decide(HoldingJobs(now_unix_ns), now_unix_ns);
  for (const auto& [id, allocation] : decision.allocations) {
    Entry& entry = jobs_.at(id);
    ASSIGN_OR_RETURN(Transition transition,
                     Apply(entry.job.status(), NodesAllocated{}, PolicyOf(entry), now_unix_ns));
    TRIREME_CHECK(transition.changed);
    v1::Event& event = transition.events.emplace_back();
    event.mutable_placed()->mutable_allocation()->Assign(allocation.begin(), allocation.end());
    RETURN_IF_ERROR(Take(entry, std::move(transition), allocation, now_unix_ns));
  }
  queue_.SetReservations(std::move(decision.reservations));
  std::map<uint64_t, std::string> allocated;
  for (const uint64_t id : holding_) {
    std::string wait = WaitOf(jobs_.at(id));
    if (!wait.empty()) allocated.emplace(id, std::move(wait));
  }
  table_.PutWaits(std::move(decision.waits), std::move(allocated));
  PublishCluster();
  return absl::OkStatus();
}

// Those that it holds are neither lost nor drained.
bool Reconciler::AllocationUsable(const v1::Job& job) const {
  return std::all_of(
      job.allocation().begin(), job.allocation().end(), [this](const v1::NodeAllocation& part) {
        const v1::Node node = nodes_.Get(part.node());
        return node.state() == v1::NODE_READY && !node.drained() && node.refuses_for().empty();
      });
}

// After a start of this daemon agents dial in one after another.
bool Reconciler::AllocationMayComeBack(const v1::Job& job, int64_t now_unix_ns) const {
  if (now_unix_ns >= AgentsDueNs()) return false;
  return std::any_of(job.allocation().begin(), job.allocation().end(),
                     [this](const v1::NodeAllocation& part) {
                       return nodes_.IsLost(part.node()) && !nodes_.IsGone(part.node());
                     });
}

int64_t Reconciler::AgentsDueNs() const {
  return listens_since_unix_ns_ + std::chrono::nanoseconds(options_.lease).count();
}

void Reconciler::ClockWasSet(int64_t by_ns, int64_t now_unix_ns) {
  nodes_.ClockWasSet(by_ns, now_unix_ns);
  started_unix_ns_ += by_ns;
  listens_since_unix_ns_ += by_ns;
  if (due_unix_ns_ != 0) due_unix_ns_ += by_ns;
  if (heard_anew_unix_ns_ != 0) heard_anew_unix_ns_ += by_ns;
  cluster_published_unix_ns_ = 0;
  queue_.MoveReservations(by_ns);
  scheduled_unix_ns_ += by_ns;
  for (const uint64_t id : holding_) {
    Entry& entry = jobs_.at(id);
    entry.plan_not_before_unix_ns += by_ns;
    entry.hear_until_unix_ns += by_ns;
    entry.revoke_not_before_unix_ns += by_ns;
    if (entry.alive_unix_ns != 0) {
      entry.alive_unix_ns = std::min(entry.alive_unix_ns + by_ns, now_unix_ns);
    }
    int64_t& revoked = entry.revoked_unix_ns;
    // One that was set back: it may have been written since.
    if (revoked > now_unix_ns || (revoked != 0 && by_ns > 0)) {
      revoked = std::min(revoked + by_ns, now_unix_ns);
    }
    if (entry.job.status().counts_since_unix_ns() == 0) continue;
    FollowClock(by_ns, *entry.job.mutable_status());
    entry.store_again = true;
  }
}

void Reconciler::Listens(int64_t now_unix_ns) {
  const int64_t took_ns = now_unix_ns - listens_since_unix_ns_;
  if (took_ns > kLateNs) StoodStill(took_ns, now_unix_ns);
}

// Nobody was listened to, and nobody was told anything, such as that the claim of his attempt was
// taken: silences and fences are longer by that.
void Reconciler::StoodStill(int64_t for_ns, int64_t now_unix_ns) {
  nodes_.StoodStill(for_ns, now_unix_ns);
  listens_since_unix_ns_ = std::min(listens_since_unix_ns_ + for_ns, now_unix_ns);
  heard_anew_unix_ns_ = now_unix_ns + kHearAnewNs;
  for (const uint64_t id : holding_) {
    Entry& entry = jobs_.at(id);
    int64_t& revoked = entry.revoked_unix_ns;
    if (revoked != 0) revoked = std::min(revoked + for_ns, now_unix_ns);
    entry.hear_until_unix_ns += for_ns;
    ForgetHeard(entry, now_unix_ns);
    // Where one of them has not spoken for long, what the others said meanwhile waits all the same.
    entry.hear_until_unix_ns = std::max(entry.hear_until_unix_ns, now_unix_ns + kAllHeardNs);
  }
  if (ports_.stood_still) ports_.stood_still(for_ns);
}

void Reconciler::ForgetHeard(Entry& entry, int64_t now_unix_ns) const {
  if (entry.unheard.empty()) {
    entry.hear_until_unix_ns = now_unix_ns + std::chrono::nanoseconds(options_.lease).count();
  }
  entry.unheard.clear();
  if (!entry.job.status().attempt_live()) return;
  for (const v1::NodeAllocation& part : entry.job.allocation()) entry.unheard.insert(part.node());
}

// It is back after its lease, and what it had of these jobs may have ended with its machine: the
// turn that comes before its first report knows nothing of that.
void Reconciler::ForgetHeardOf(const std::string& node, int64_t now_unix_ns) {
  const int64_t until = now_unix_ns + std::chrono::nanoseconds(options_.lease).count();
  for (const uint64_t id : holding_) {
    Entry& entry = jobs_.at(id);
    if (!entry.job.status().attempt_live() || !HasPlaceOn(entry.job, node)) continue;
    entry.unheard.insert(node);
    entry.hear_until_unix_ns = std::max(entry.hear_until_unix_ns, until);
  }
}

bool Reconciler::DropEvents() {
  const uint64_t last = table_.last_sequence();
  const uint64_t most = std::max<uint64_t>(1, options_.most_events);
  if (last < first_sequence_ + most) return false;
  // Many at a time, where there are many, so that not every event costs a flush more.
  const uint64_t keep = most > 2 * kEventsDropped ? most - kEventsDropped : most;
  const auto first = store_.DropEvents(keep, kEventsDropped);
  if (!first.ok()) return false;  // the disk; tried again
  first_sequence_ = *first;
  return last >= first_sequence_ + most;
}

bool Reconciler::ReadOlder() {
  if (older_before_ == 0) return false;
  absl::StatusOr<std::vector<v1::Job>> older = store_.JobsBefore(older_before_, kOlderRead);
  if (!older.ok()) return false;  // the disk; tried again
  const bool more = older->size() == kOlderRead;
  older_before_ = more ? older->back().id() : 0;
  for (const v1::Job& job : *older) {
    const auto [entry, added] = jobs_.try_emplace(job.id());
    if (!added) continue;
    entry->second.job = job;
    usage_.File(nullptr, job);
  }
  table_.PublishOlder(*std::move(older), older_before_);
  if (!more) table_.OlderAreHere();
  return more;
}

bool Reconciler::DropEndedJobs() {
  if (older_before_ != 0) return false;  // not all are known
  const size_t ended = jobs_.size() - active_.size();
  const size_t most = options_.most_ended_jobs;
  // Many at a time: not each job that ends is to cost a flush more.
  if (ended < most + std::max<size_t>(1, std::min(kJobsDropped, most / 10))) {
    return DropEndedJobsOfUser();
  }
  const size_t dropped = std::min(ended - most, kJobsDropped);
  return Forget(EndedBefore("", dropped)) && ended - dropped > most;
}

// Whoever submits and cancels again and again keeps no more than others can.
bool Reconciler::DropEndedJobsOfUser() {
  const auto [user, too_many_bytes] = usage_.Beyond();
  if (user.empty()) return false;
  std::vector<uint64_t> ids;
  uint64_t bytes = 0;
  for (const uint64_t id : EndedBefore(user, kJobsDropped)) {
    if (bytes >= too_many_bytes) break;
    bytes += jobs_.at(id).job.spec().ByteSizeLong();
    ids.push_back(id);
  }
  return !ids.empty() && Forget(ids) && !usage_.Beyond().first.empty();
}

// At most `most` jobs that have ended, the first of them first; of `user` those that count, of ""
// all.
std::vector<uint64_t> Reconciler::EndedBefore(const std::string& user, size_t most) const {
  std::vector<std::pair<int64_t, uint64_t>> oldest;
  for (const auto& [id, entry] : jobs_) {
    const bool wanted = user.empty() || (entry.job.owner() == user && !entry.job.uncapped());
    if (wanted && !active_.contains(id)) {
      oldest.emplace_back(entry.job.status().changed_unix_ns(), id);
    }
  }
  most = std::min(most, oldest.size());
  const auto end = oldest.begin() + static_cast<std::ptrdiff_t>(most);
  std::partial_sort(oldest.begin(), end, oldest.end());
  oldest.resize(most);
  std::vector<uint64_t> ids;
  for (const auto& [when, id] : oldest) ids.push_back(id);
  return ids;
}

// False: the disk does not take it; tried again.
bool Reconciler::Forget(const std::vector<uint64_t>& ids) {
  if (!store_.DropJobs(ids).ok()) return false;
  table_.Drop(ids);
  for (const uint64_t id : ids) {
    usage_.Forget(jobs_.at(id).job);
    jobs_.erase(id);
  }
  return true;
}

absl::Status Reconciler::TellAbsentNodes(int64_t now_unix_ns) {
  if (absent_told_ || now_unix_ns < AgentsDueNs()) return absl::OkStatus();
  RETURN_IF_ERROR(TellNodes(nodes_, nodes_.Absent(), now_unix_ns));
  absent_told_ = true;
  return absl::OkStatus();
}

absl::Status Reconciler::ExpireLeases(int64_t now_unix_ns) {
  RETURN_IF_ERROR(TellAbsentNodes(now_unix_ns));
  const int64_t expiry = nodes_.NextExpiry();
  if (expiry == 0 || expiry > now_unix_ns) return absl::OkStatus();
  Nodes after = nodes_;
  std::vector<v1::Event> events = after.Expire(now_unix_ns);
  return TellNodes(std::move(after), std::move(events), now_unix_ns);
}

absl::StatusOr<int64_t> Reconciler::FollowRetry(Entry& entry, int64_t now_unix_ns) {
  // Where a disk holds its plan up, that is for long.
  const v1::JobStatus& status = entry.job.status();
  if (status.state() == v1::JOB_PLANNING && !status.attempt_live()) {
    if (AllocationUsable(entry.job)) return 0;
    if (AllocationMayComeBack(entry.job, now_unix_ns)) return AgentsDueNs();
    entry.plan_asked_for = 0;
    RETURN_IF_ERROR(Feed(entry, RetryDue{.places_usable = false}, now_unix_ns));
    return 0;
  }
  const int64_t due = ConsequencesOf(entry.job.status()).timer_unix_ns;
  if (due == 0) return 0;
  if (!RetryIsDue(entry.job.status(), options_.retry, now_unix_ns)) return due;
  if (AllocationMayComeBack(entry.job, now_unix_ns)) return AgentsDueNs();
  const bool usable = AllocationUsable(entry.job);
  const bool elsewhere = usable && GoesElsewhere(entry, now_unix_ns);
  RETURN_IF_ERROR(Feed(entry, RetryDue{usable, elsewhere}, now_unix_ns));
  return 0;
}

absl::StatusOr<int64_t> Reconciler::FollowTimeLimit(Entry& entry, int64_t now_unix_ns) {
  if (entry.store_again) {
    Change change;
    change.jobs.push_back(entry.job);
    RETURN_IF_ERROR(Commit(change));
    entry.store_again = false;
  }
  const RetryPolicy policy = PolicyOf(entry);
  const int64_t due = TimeIsUpUnixNs(entry.job.status(), policy.time_limit);
  if (due == 0 || now_unix_ns < due) return due;
  // Where nobody says that it lives it may have ended long ago, with time left.
  const auto& allocation = entry.job.allocation();
  const bool all_heard =
      std::none_of(allocation.begin(), allocation.end(),
                   [&](const v1::NodeAllocation& part) { return nodes_.IsLost(part.node()); });
  if (!all_heard) return 0;
  // It has ended where it was launched, and is being ended elsewhere: nothing of it is to stop, and
  // it counts as long as that is heard to live, not until an agent whose disk hangs can say more.
  if (ReportOf(entry, allocation[0].node()).phase() == v1::ATTEMPT_ENDED) return 0;
  // A report of its end may be on its way to who has just been started, or stood still, or from who
  // is just back. Whose agent is there, and cannot say for its disk, is not waited for.
  if (!entry.unheard.empty() && now_unix_ns < entry.hear_until_unix_ns) {
    return entry.hear_until_unix_ns;
  }
  ASSIGN_OR_RETURN(Transition transition,
                   Apply(entry.job.status(), TimeIsUp{}, policy, now_unix_ns));
  if (!transition.changed) return 0;  // it stops for something else
  transition.status.set_stop_grace_seconds(GraceOf(entry, now_unix_ns));
  RETURN_IF_ERROR(Take(entry, std::move(transition), {}, now_unix_ns));
  return 0;
}

// What comes before the turn that notices a standstill, or shortly after, may have waited: it is of
// any time since the turn that was missed.
bool Reconciler::IsHeardInTime(int64_t now_unix_ns) const {
  const bool late = due_unix_ns_ != 0 && now_unix_ns - due_unix_ns_ > kLateNs;
  return !late && now_unix_ns >= heard_anew_unix_ns_;
}

int64_t Reconciler::Tick(int64_t now_unix_ns) {
  const int64_t late_ns = due_unix_ns_ == 0 ? 0 : now_unix_ns - due_unix_ns_;
  if (late_ns > kLateNs) StoodStill(late_ns, now_unix_ns);
  due_unix_ns_ = Turn(now_unix_ns);
  return due_unix_ns_;
}

int64_t Reconciler::Turn(int64_t now_unix_ns) {
  int64_t next = now_unix_ns + kIdleNs;
  if (ReadOlder() || DropEvents() || DropEndedJobs()) next = now_unix_ns + kNsPerMs;
  // The disk; tried again.
  if (!HearHellosAgain(now_unix_ns).ok() || !ExpireLeases(now_unix_ns).ok() ||
      !DrainUnable(now_unix_ns).ok()) {
    return next;
  }
  if (const int64_t expiry = nodes_.NextExpiry(); expiry > 0) next = std::min(next, expiry);
  // Whoever waits, or is paused, has nothing to happen to it here.
  const std::vector<uint64_t> holding(holding_.begin(), holding_.end());
  for (const uint64_t id : holding) {
    Entry& entry = jobs_.at(id);
    if (!LeaveLostNodes(entry, now_unix_ns).ok()) return next;
    for (const auto follow : {&Reconciler::FollowRetry, &Reconciler::FollowTimeLimit}) {
      const absl::StatusOr<int64_t> due = (this->*follow)(entry, now_unix_ns);
      if (!due.ok()) return next;
      if (*due != 0) next = std::min(next, *due);
    }
    // A plan whose answer could not be stored is asked for again.
    const bool wants_plan = ConsequencesOf(entry.job.status()).wants_plan;
    if (wants_plan && entry.plan_asked_for == 0) Follow(entry, now_unix_ns);
  }
  if (allocations_may_have_changed_ ||
      (!queue_.reservations().empty() && now_unix_ns - scheduled_unix_ns_ >= kReservedNs)) {
    scheduled_unix_ns_ = now_unix_ns;
    allocations_may_have_changed_ = !AllocateNodes(now_unix_ns).ok();
  }
  // Jobs that run and nodes that were heard of change its figures between the changes of
  // allocations.
  if (now_unix_ns - cluster_published_unix_ns_ >= kIdleNs) {
    PublishCluster();
    cluster_published_unix_ns_ = now_unix_ns;
  }
  return std::max(next, now_unix_ns + kNsPerMs);
}

void Reconciler::PublishCluster() {
  v1::Cluster cluster;
  for (v1::Node& node : nodes_.List(HoldingJobs(0))) *cluster.add_nodes() = std::move(node);
  const auto pending = static_cast<uint32_t>(queue_.size());
  uint32_t running = 0;
  for (const uint64_t id : holding_) {
    const v1::JobState state = jobs_.at(id).job.status().state();
    if (state == v1::JOB_RUNNING || state == v1::JOB_PAUSING) ++running;
  }
  cluster.set_jobs_pending(pending);
  cluster.set_jobs_running(running);
  cluster.set_version(options_.version);
  cluster.set_started_unix_ns(started_unix_ns_);
  table_.PutCluster(std::move(cluster));
}

}  // namespace trireme::coordinator
