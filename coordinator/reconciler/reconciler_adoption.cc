// What another store, or another history of this one, has begun: docs/adr/0018.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/reconciler/reconciler.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

std::string UnknownText(const UnknownAttempt& unknown) {
  std::string where = unknown.nodes.empty() ? "" : " on " + absl::StrJoin(unknown.nodes, ", ");
  return fmt::format(
      "attempt {} may run{}: its run folder has it, but this store, put back from a backup, has "
      "never started it; waits until it is over or taken: trireme nodes adopt (where a node is off "
      "for good: trireme drain NODE --gone --reason R)",
      unknown.number, where);
}

}  // namespace

// Agents of before do not say whose it is.
bool Reconciler::IsOurs(const v1::AttemptReport& report) const {
  const std::string& store = report.store().store();
  return store.empty() || store == identity_.store();
}

void Reconciler::HearRefusal(const std::string& node, const v1::NodeReport& report) {
  if (!report.has_refuses_for() && !nodes_.Refuses(node)) return;
  const bool refused = nodes_.Refuses(node);
  const bool news = nodes_.SetRefusal(node, report);
  if (report.has_refuses_for()) {
    refusals_[node] = report;
  } else {
    refusals_.erase(node);
  }
  if (refused != nodes_.Refuses(node)) allocations_may_have_changed_ = true;
  // A whole cluster that refuses says so each second: it is copied for each once, not each time.
  if (news) PublishCluster();
}

// An adoption that its agent has not heard of, as one that was started anew meanwhile, is said
// again, also after a restart of this daemon. One that refuses for another state is another matter:
// this store may have been put back since.
absl::Status Reconciler::AdoptAgain(const std::string& node, const v1::NodeReport& report,
                                    int64_t now_unix_ns) {
  const v1::StorePosition* const from = nodes_.AdoptedFrom(node);
  if (from == nullptr) return absl::OkStatus();
  const bool keeps_it = report.has_refuses_for() &&
                        report.refuses_for().SerializeAsString() == from->SerializeAsString();
  if (keeps_it) return AdoptNode(node, now_unix_ns).status();
  Nodes after = nodes_;
  after.SetAdopted(node, nullptr);
  return TellNodes(std::move(after), {}, now_unix_ns, node);
}

// Whether it goes on, as the job's attempt.
absl::StatusOr<bool> Reconciler::TakeHeld(const std::string& node, const v1::AttemptReport& held,
                                          int64_t now_unix_ns) {
  const auto found = jobs_.find(held.job_id());
  if (found == jobs_.end() || !IsOurs(held)) return false;
  Entry& entry = found->second;
  const auto is_current = [&] {
    const v1::JobStatus& status = entry.job.status();
    return held.attempt() == status.attempt() && status.attempt_live() &&
           HasPlaceOn(entry.job, node);
  };
  if (is_current()) return true;
  const bool here =
      std::any_of(held.allocation().begin(), held.allocation().end(),
                  [&](const v1::NodeAllocation& part) { return part.node() == node; });
  if (!here) return false;
  ASSIGN_OR_RETURN(
      Transition transition,
      Apply(entry.job.status(), AttemptFound{held.attempt(), node}, PolicyOf(entry), now_unix_ns));
  if (!transition.changed) return false;
  entry.plan_asked_for = 0;
  RETURN_IF_ERROR(Take(entry, std::move(transition),
                       {held.allocation().begin(), held.allocation().end()}, now_unix_ns,
                       &held.store()));
  allocations_may_have_changed_ = true;  // also where it waited
  return is_current();
}

absl::StatusOr<v1::AdoptNodeResponse> Reconciler::AdoptNode(const std::string& node,
                                                            int64_t now_unix_ns,
                                                            const std::string& by) {
  const v1::Node known = nodes_.Get(node);
  if (known.name().empty()) {
    return absl::NotFoundError(fmt::format("there is no node {}; trireme nodes shows them", node));
  }
  if (nodes_.IsLost(node)) {
    return absl::FailedPreconditionError(
        fmt::format("node {} cannot be adopted: its agent does not report; start it first", node));
  }
  const auto refusal = refusals_.find(node);
  if (refusal == refusals_.end()) {
    return absl::FailedPreconditionError(
        known.refuses_for().empty()
            ? fmt::format("node {} serves this store already", node)
            : fmt::format("node {} has not said yet what it holds; ask again in a second", node));
  }
  v1::AdoptNodeResponse response;
  for (const v1::AttemptReport& attempt : refusal->second.attempts()) {
    if (attempt.phase() == v1::ATTEMPT_ENDED) continue;
    ASSIGN_OR_RETURN(const bool kept, TakeHeld(node, attempt, now_unix_ns));
    v1::HeldAttempt& held = kept ? *response.add_kept() : *response.add_ended();
    held.set_job_id(attempt.job_id());
    held.set_attempt(attempt.attempt());
    held.set_store(attempt.store().store());
  }
  Nodes after = nodes_;
  const bool anew = after.SetAdopted(node, &refusal->second.refuses_for());
  std::vector<v1::Event> events;
  if (!by.empty()) events.push_back(nodes_.Adopted(node, by));
  if (anew || !events.empty()) {
    RETURN_IF_ERROR(TellNodes(std::move(after), std::move(events), now_unix_ns, node));
  }
  ++revision_;
  ports_.adopt(node, revision_);
  ports_.desired_changed(node);
  *response.mutable_node() = nodes_.Shown(node);
  return response;
}

absl::Status Reconciler::UnknownAttemptSeen(uint64_t job_id, uint32_t attempt,
                                            const UnknownAttempt& unknown, int64_t now_unix_ns) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::OkStatus();
  Entry& entry = found->second;
  if (entry.plan_asked_for == attempt) entry.plan_asked_for = 0;
  entry.plan_not_before_unix_ns = now_unix_ns + kTryAgainNs;
  // So that they can be called gone, should they be.
  std::vector<v1::Node> nodes;
  for (const std::string& name : unknown.nodes) {
    if (nodes_.Get(name).name().empty()) nodes.emplace_back().set_name(name);
  }
  nodes_.Load(nodes);
  const bool gone = !unknown.nodes.empty() &&
                    std::all_of(unknown.nodes.begin(), unknown.nodes.end(),
                                [this](const std::string& name) { return nodes_.IsGone(name); });
  return Feed(entry,
              coordinator::UnknownAttemptSeen{attempt, unknown.number, unknown.over || gone,
                                              unknown.done, UnknownText(unknown)},
              now_unix_ns);
}

absl::Status Reconciler::PlanHeldUp(uint64_t job_id, uint32_t attempt, const std::string& why,
                                    bool again, int64_t now_unix_ns) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::OkStatus();
  Entry& entry = found->second;
  if (again && entry.plan_asked_for == attempt) {
    entry.plan_asked_for = 0;
    entry.plan_not_before_unix_ns = now_unix_ns + kTryAgainNs;
  }
  return Feed(entry, coordinator::PlanHeldUp{attempt, why}, now_unix_ns);
}

}  // namespace trireme::coordinator
