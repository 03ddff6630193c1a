// Attempts whose nodes are lost: when others take their place (docs/adr/0019).
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/reconciler/lost_nodes.h"
#include "coordinator/reconciler/reconciler.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

using std::chrono::milliseconds;

// From an agent's decision to the end of its ranks: a guard that does not obey for ten seconds is
// killed itself, and two looks at /proc find nothing.
constexpr milliseconds kKill(12000);
// Each of two clocks runs at most one percent wrong.
constexpr double kDrift = 1.02;

}  // namespace

std::string GoneText(const v1::Node& node) {
  return fmt::format("node {} is gone: {}", node.name(), node.reason());
}

std::string LostText(const std::string& node) {
  return fmt::format("node {} is lost: its agent is silent", node);
}

bool MayBeReplaced(const v1::Job& job) { return job.spec().resources().on_lost_node() != "wait"; }

LostNodeTimes LostNodeTimesOf(milliseconds lost_node_after) {
  if (lost_node_after.count() == 0) return {};
  // A quarter: a disk and a daemon that stand still together for less end nothing.
  const milliseconds end_after = lost_node_after / 4;
  // Nodes that are told to end take a kill for it, and may step with others to its end.
  const milliseconds fence(
      static_cast<int64_t>(static_cast<double>((kKill + end_after + kKill).count()) * kDrift));
  return {std::max(milliseconds(0), lost_node_after - fence), end_after, fence};
}

std::string WhyNotFenced(const v1::Job& job, milliseconds lost_node_after) {
  if (!MayBeReplaced(job)) return "resources.on_lost_node is wait";
  const LostNodeTimes times = LostNodeTimesOf(lost_node_after);
  if (times.end_after.count() == 0) return "--lost-node-after of this daemon is 0";
  const v1::Fence& fence = job.fence();
  if (fence.attempt() != job.status().attempt()) {
    return "not all of its agents have said that they end it where they are cut off, as they do "
           "where they read claim.json in the run folder";
  }
  if (fence.ends_after_seconds() * 1000 > static_cast<double>(times.end_after.count())) {
    return "it was started under a longer --lost-node-after";
  }
  return "";
}

// Once an attempt, and stored: a daemon that is started anew, and hears no more of a lost node, has
// to know it.
absl::Status Reconciler::NoteFence(Entry& entry) {
  const uint32_t attempt = entry.job.status().attempt();
  if (!MayBeReplaced(entry.job) || entry.job.fence().attempt() == attempt) {
    return absl::OkStatus();
  }
  double longest = 0;
  for (const v1::NodeAllocation& part : entry.job.allocation()) {
    const auto report = entry.reports.find(part.node());
    if (report == entry.reports.end() || report->second.ends_after_seconds() <= 0) {
      return absl::OkStatus();
    }
    longest = std::max(longest, report->second.ends_after_seconds());
  }
  v1::Job job = entry.job;
  job.mutable_fence()->set_attempt(attempt);
  job.mutable_fence()->set_ends_after_seconds(longest);
  Change change;
  change.jobs.push_back(job);
  RETURN_IF_ERROR(Commit(change));
  entry.job = std::move(job);
  return absl::OkStatus();
}

std::string Reconciler::WhenLeft(const Entry& entry) const {
  if (!entry.job.status().attempt_live()) return "";
  const std::string why = WhyNotFenced(entry.job, options_.lost_node_after);
  if (!why.empty()) return fmt::format(". It is not started elsewhere: {}", why);
  return fmt::format(
      ". {} s after the node's last report it goes on elsewhere, if other nodes can hold it",
      std::chrono::duration_cast<std::chrono::seconds>(options_.lost_node_after).count());
}

// On nodes that are there, once they are free: where there are none, nothing is won by its end.
bool Reconciler::FitsElsewhere(const Entry& entry, int64_t now_unix_ns) const {
  Queue alone;
  alone.Add(
      {entry.job.id(), entry.job.priority(), now_unix_ns, now_unix_ns, {entry.job.resources()}});
  return Schedule(nodes_.Capacities(), {}, alone, options_.scheduling, now_unix_ns)
      .allocations.contains(entry.job.id());
}

// Somebody has come to take the place of one of its lost nodes since that one's last word.
bool Reconciler::IsNameWanted(const Entry& entry) const {
  const auto& allocation = entry.job.allocation();
  return std::any_of(allocation.begin(), allocation.end(), [&](const v1::NodeAllocation& part) {
    return names_wanted_.contains(part.node()) && nodes_.IsLost(part.node());
  });
}

// One of its nodes that has been silent for so long that the attempt is to be replaced; empty:
// none.
std::string Reconciler::LongLostNode(const Entry& entry, int64_t now_unix_ns) const {
  const int64_t after =
      std::chrono::nanoseconds(LostNodeTimesOf(options_.lost_node_after).revoke).count();
  for (const v1::NodeAllocation& part : entry.job.allocation()) {
    if (!nodes_.IsLost(part.node()) || nodes_.IsGone(part.node())) continue;
    // Who has not spoken to this daemon may have spoken to the one before it, up to its end.
    const int64_t since = std::max(nodes_.SilentSince(part.node()), listens_since_unix_ns_);
    if (now_unix_ns - since >= after) return part.node();
  }
  return "";
}

// First its claim is taken, so that nothing of it counts any more and whoever reads that ends it.
// Then, when whoever reads nothing has ended it too, its lost nodes are done without.
absl::Status Reconciler::ReplaceLost(Entry& entry, int64_t now_unix_ns) {
  if (entry.revoked_unix_ns == 0) {
    if (entry.revoke_asked || now_unix_ns < entry.revoke_not_before_unix_ns || !ports_.revoke ||
        !WhyNotFenced(entry.job, options_.lost_node_after).empty()) {
      return absl::OkStatus();
    }
    // One that is to stop or to end frees what it holds, wherever it would go on.
    const bool to_go_on = ConsequencesOf(entry.job.status()).attempt == v1::ATTEMPT_RUN;
    if (LongLostNode(entry, now_unix_ns).empty() ||
        (to_go_on && !IsNameWanted(entry) && !FitsElsewhere(entry, now_unix_ns))) {
      return absl::OkStatus();
    }
    entry.revoke_asked = true;
    ports_.revoke(entry.job);
    return absl::OkStatus();
  }
  const int64_t fence =
      std::chrono::nanoseconds(LostNodeTimesOf(options_.lost_node_after).fence).count();
  for (const v1::NodeAllocation& part : entry.job.allocation()) {
    const int64_t since = std::max(entry.revoked_unix_ns, nodes_.SilentSince(part.node()));
    if (nodes_.IsLost(part.node()) && now_unix_ns - since >= fence) entry.left.insert(part.node());
  }
  return entry.left.empty() ? absl::OkStatus() : Evaluate(entry, now_unix_ns);
}

absl::Status Reconciler::Revoked(uint64_t job_id, uint32_t attempt, const absl::Status& outcome,
                                 int64_t now_unix_ns) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return absl::OkStatus();
  Entry& entry = found->second;
  if (entry.job.status().attempt() != attempt) return absl::OkStatus();
  entry.revoke_asked = false;
  // Where the disk or the store does not take it.
  entry.revoke_not_before_unix_ns = now_unix_ns + kTryAgainNs;
  if (!outcome.ok() || !entry.job.status().attempt_live()) return absl::OkStatus();
  const std::string lost = LongLostNode(entry, now_unix_ns);
  const std::string why = lost.empty() ? "a node was lost" : LostText(lost);
  RETURN_IF_ERROR(Feed(entry, AttemptLost{attempt, why}, now_unix_ns));
  entry.revoked_unix_ns = now_unix_ns;
  return absl::OkStatus();
}

// An attempt with ranks on a node that is gone is ended on the others.
absl::Status Reconciler::LeaveLostNodes(Entry& entry, int64_t now_unix_ns) {
  if (!entry.job.status().attempt_live()) return absl::OkStatus();
  for (const v1::NodeAllocation& part : entry.job.allocation()) {
    if (!nodes_.IsGone(part.node())) continue;
    const AttemptLost lost{entry.job.status().attempt(), GoneText(nodes_.Get(part.node()))};
    RETURN_IF_ERROR(Feed(entry, lost, now_unix_ns));
    return Evaluate(entry, now_unix_ns);
  }
  return ReplaceLost(entry, now_unix_ns);
}

}  // namespace trireme::coordinator
