// The reconciler: every decision of the coordinator, one message at a time. It asks the pure
// machine and scheduler, commits to the store, publishes to the JobTable, and only then tells
// anybody. It has no clock and no thread of its own: callers pass the time, and calls come from one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/reconciler/job_table.h"
#include "coordinator/reconciler/lost_nodes.h"
#include "coordinator/reconciler/nodes.h"
#include "coordinator/reconciler/stall_watch.h"
#include "coordinator/reconciler/user_caps.h"
#include "coordinator/scheduler/queue.h"
#include "coordinator/scheduler/scheduler.h"
#include "runtime/base/monotonic.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

struct ReconcilerOptions {
  std::string jobs_folder;  // run folders are made in it, by job id
  std::string version;      // of the program, for Cluster
  RetryPolicy retry;
  SchedulingPolicy scheduling;
  std::chrono::milliseconds lease{10000};
  // From the last word of a node to the next attempt elsewhere, of jobs that may be replaced
  // (docs/adr/0019); 0: only people say so.
  std::chrono::milliseconds lost_node_after{60000};
  size_t most_waiting_jobs = 100000;
  UserCaps user_caps;
  uint64_t most_events = 1000000;   // kept; older ones are dropped
  size_t most_ended_jobs = 100000;  // likewise; their run folders stay
};

// A job that has been checked and planned once, so that its needs are known.
struct Submission {
  std::string owner;
  std::string request_id;
  v1::JobSpec job;  // resolved
  v1::ResourceRequest resources;
  bool real_paths = false;       // of Job
  bool uncapped = false;         // likewise
  uint64_t id = 0;               // one that NextJobId has given; 0: the next
  std::string run_folder;        // empty: one of its own in jobs_folder
  uint32_t attempts_before = 0;  // their folders are in run_folder already; ours count on
};

// The newest attempt in the run folder of a job, where this store has never started it.
struct UnknownAttempt {
  uint32_t number = 0;
  bool over = false;               // nothing is left of it
  bool done = false;               // over, with exit code 0
  std::vector<std::string> nodes;  // of its ranks; none: not known
};

// What the reconciler asks of others. Called from its thread after the commit; must not block.
struct ReconcilerPorts {
  // To be answered by PlanReady with the same job and attempt, once, or by UnknownAttemptSeen; by
  // PlanHeldUp before that, or instead of it.
  std::function<void(const v1::Job&)> make_plan;
  // DesiredOf(node) is another than before.
  std::function<void(const std::string& node)> desired_changed;
  // Its agent is to serve this store, from DesiredOf(node) of this revision on.
  std::function<void(const std::string& node, uint64_t revision)> adopt = {};
  // Takes the claim of the job's current attempt away, as for the next one. To be answered by
  // Revoked with the same job and attempt, once.
  std::function<void(const v1::Job&)> revoke = {};
  // The agent's report of this number has been acted on.
  std::function<void(const std::string& node, uint64_t number)> report_taken = {};
  // Tick came so late; for the log.
  std::function<void(int64_t ns)> stood_still = {};
};

class Reconciler {
 public:
  // Loads what has not ended; the rest follows with the calls of Tick, and is found in the store
  // until then. `store` and `table` outlive it.
  static absl::StatusOr<std::unique_ptr<Reconciler>> Open(const ReconcilerOptions& options,
                                                          ReconcilerPorts ports, JobStore& store,
                                                          JobTable& table, int64_t now_unix_ns);

  // Requests of people. Errors: those of the job machine and the store; NotFound: no such job.
  absl::StatusOr<v1::SubmitResponse> Submit(const Submission& submission, int64_t now_unix_ns);
  // The job that this owner has submitted by this id before, if any.
  absl::StatusOr<std::optional<v1::Job>> FindSubmitted(const std::string& owner,
                                                       const std::string& request_id);
  // `grace_seconds` 0: by the job's step and deadline (StopGraceSeconds).
  absl::StatusOr<v1::Job> Ask(uint64_t job_id, const JobEvent& request, double grace_seconds,
                              int64_t now_unix_ns);
  // What a job of these resources would wait for if it were submitted now; empty: nothing. `user`:
  // who would submit it; empty: somebody whom no cap holds.
  std::string WouldWaitFor(const v1::ResourceRequest& resources, const v1::JobSpec& spec,
                           int64_t now_unix_ns, const std::string& user = "");
  // Errors: those of Nodes::SetUse and the store.
  absl::StatusOr<v1::Node> SetUse(const NodeUse& use, int64_t now_unix_ns);
  // What its agent holds of our jobs goes on, in our books too; the rest it ends. NotFound: no such
  // node; FailedPrecondition: it does not refuse, or is not heard of. Errors of the store: some
  // jobs may be taken already; ask again. `by`: who has asked for it, told by an event; empty: it
  // is done again.
  absl::StatusOr<v1::AdoptNodeResponse> AdoptNode(const std::string& node, int64_t now_unix_ns,
                                                  const std::string& by = "");

  // What agents and the planner say.
  // `holder`: who it is, to be told after a restart from others of its name.
  absl::Status Hello(const v1::AgentHello& hello, int64_t now_unix_ns,
                     const std::string& holder = "");
  absl::Status Report(const std::string& node, const v1::NodeReport& report, int64_t now_unix_ns);
  // From now on agents can be heard: until now none was silent.
  void Listens(int64_t now_unix_ns);
  // The agents of these have said something that waits to be acted on: they are not silent.
  void Spoke(const std::set<std::string>& nodes, int64_t now_unix_ns);
  // Another agent has asked for the name of this node, and gets it when the attempts there have
  // been replaced: of a lost node they are, also where no other node could hold them.
  void NameWanted(const std::string& node) { names_wanted_.insert(node); }
  // `outcome` Unavailable: the disk of the run folder refuses; the same as PlanHeldUp with `again`.
  absl::Status PlanReady(uint64_t job_id, uint32_t attempt, const absl::Status& outcome,
                         int64_t now_unix_ns);
  // No plan yet: the run folder has an attempt as new as the one that is planned.
  absl::Status UnknownAttemptSeen(uint64_t job_id, uint32_t attempt, const UnknownAttempt& unknown,
                                  int64_t now_unix_ns);

  // The disk of the run folder does not answer, or refuses. `again`: no answer is to come, so it is
  // asked anew some seconds later; else its answer follows when it comes.
  absl::Status PlanHeldUp(uint64_t job_id, uint32_t attempt, const std::string& why, bool again,
                          int64_t now_unix_ns);

  absl::Status Revoked(uint64_t job_id, uint32_t attempt, const absl::Status& outcome,
                       int64_t now_unix_ns);

  // Somebody has set the clock that callers read, forward if positive, to what is now
  // `now_unix_ns`: leases and time limits go on as before.
  void ClockWasSet(int64_t by_ns, int64_t now_unix_ns);
  // Leases, retries, allocations. Returns when it wants to be called again at the latest. One that
  // comes late, as when a disk has held a commit or the process was stopped, counts what it missed
  // as nobody's silence.
  int64_t Tick(int64_t now_unix_ns);

  // All that `node` is to have.
  v1::DesiredAttempts DesiredOf(const std::string& node) const;

 private:
  // Between tries of what a disk, or an attempt that this store has never started, has kept from
  // being done.
  static constexpr int64_t kTryAgainNs = 5 * base::kNsPerSecond;

  struct Entry {
    v1::Job job;
    uint32_t plan_asked_for = 0;  // attempt; 0: none under way
    int64_t plan_not_before_unix_ns = 0;
    bool store_again = false;  // the clock was set, and with it what the status counts by it
    std::map<std::string, v1::AttemptReport> reports;  // of the current attempt, by node
    StallWatch stalls;                                 // of the current attempt
    int64_t alive_unix_ns = 0;  // the newest word that the current attempt lives; 0: none
    // Of the current attempt, whose node is lost.
    bool revoke_asked = false;
    int64_t revoke_not_before_unix_ns = 0;
    int64_t revoked_unix_ns = 0;  // its claim is taken; 0: not so far as we know
    std::set<std::string> left;   // nodes without which it is taken to have ended
    // Its nodes that have not said how it fares since this daemon was started, or stood still, or
    // since they came back after their lease.
    std::set<std::string> unheard;
    int64_t hear_until_unix_ns = 0;  // they are waited for no longer
  };

  Reconciler(const ReconcilerOptions& options, ReconcilerPorts ports, JobStore& store,
             JobTable& table);
  absl::Status RecallStalls(Entry& entry);
  // Commits a transition of one job and acts on it. `launched`: of an attempt that was found; else
  // one that begins is of this epoch.
  absl::Status Take(Entry& entry, Transition transition, std::vector<v1::NodeAllocation> allocation,
                    int64_t now_unix_ns, const v1::StorePosition* launched = nullptr);
  absl::Status Feed(Entry& entry, const JobEvent& event, int64_t now_unix_ns);
  RetryPolicy PolicyOf(const Entry& entry) const;
  // These two return when they want to be called again; 0: not by themselves.
  absl::StatusOr<int64_t> FollowRetry(Entry& entry, int64_t now_unix_ns);
  absl::StatusOr<int64_t> FollowTimeLimit(Entry& entry, int64_t now_unix_ns);
  absl::Status Commit(Change& change);
  // Commits the events and the node `changed`, then has `after` as the nodes; if the disk refuses,
  // nothing has changed.
  absl::Status TellNodes(Nodes after, std::vector<v1::Event> events, int64_t now_unix_ns,
                         const std::string& changed = "");
  absl::Status HearHellosAgain(int64_t now_unix_ns);
  absl::StatusOr<bool> TakeHeld(const std::string& node, const v1::AttemptReport& held,
                                int64_t now_unix_ns);
  bool IsHeardInTime(int64_t now_unix_ns) const;
  void StoodStill(int64_t for_ns, int64_t now_unix_ns);
  void ForgetHeard(Entry& entry, int64_t now_unix_ns) const;
  void ForgetHeardOf(const std::string& node, int64_t now_unix_ns);
  int64_t Turn(int64_t now_unix_ns);
  absl::Status TellAbsentNodes(int64_t now_unix_ns);
  absl::Status ExpireLeases(int64_t now_unix_ns);
  std::string WaitOf(const Entry& entry) const;
  // Files the job as what its status says, and no longer as what it was `before`.
  void File(const v1::Job* before, const v1::Job& job);
  std::string CappedUserOf(const v1::Job& job) const;
  Waiting WaitingOf(const v1::Job& job, int64_t since_unix_ns) const;
  Decision Decide(const std::vector<Holding>& holding, int64_t now_unix_ns) const;
  void Follow(Entry& entry, int64_t now_unix_ns);
  bool IsOurs(const v1::AttemptReport& report) const;
  absl::Status AdoptAgain(const std::string& node, const v1::NodeReport& report,
                          int64_t now_unix_ns);
  void HearRefusal(const std::string& node, const v1::NodeReport& report);
  static bool IsHeardOf(const std::string& node, const v1::JobStatus& status);
  absl::Status HearStart(const Entry& entry, const std::string& node,
                         const v1::AttemptReport& before, const v1::AttemptReport& now,
                         int64_t now_unix_ns);
  absl::Status HasStarted(const std::string& node);
  absl::Status DrainUnable(int64_t now_unix_ns);
  bool GoesElsewhere(const Entry& entry, int64_t now_unix_ns);
  std::vector<v1::Job> JobsLettingBack(const std::string& node,
                                       bool (*let_back)(const std::string&, v1::JobStatus&)) const;
  // What their statuses say now, which is stored.
  void FileAgain(const std::vector<v1::Job>& jobs);
  absl::Status Evaluate(Entry& entry, int64_t now_unix_ns);
  v1::AttemptReport ReportOf(const Entry& entry, const std::string& node) const;
  absl::Status LeaveLostNodes(Entry& entry, int64_t now_unix_ns);
  std::string LongLostNode(const Entry& entry, int64_t now_unix_ns) const;
  absl::Status ReplaceLost(Entry& entry, int64_t now_unix_ns);
  std::string WhenLeft(const Entry& entry) const;
  bool FitsElsewhere(const Entry& entry, int64_t now_unix_ns) const;
  bool IsNameWanted(const Entry& entry) const;
  absl::Status NoteFence(Entry& entry);
  absl::Status TellStalls(Entry& entry, const std::string& node, const v1::AttemptReport& report,
                          int64_t now_unix_ns);
  absl::Status AllocateNodes(int64_t now_unix_ns);
  void TellNodesOf(const Entry& entry);
  bool AllocationUsable(const v1::Job& job) const;
  bool AllocationMayComeBack(const v1::Job& job, int64_t now_unix_ns) const;
  int64_t AgentsDueNs() const;  // Unix; who has not dialled in by then is lost
  absl::StatusOr<Entry*> Find(uint64_t job_id);
  // Some of the jobs that ended before this daemon was started. True: there may be more.
  bool ReadOlder();
  static bool HasPlaceOn(const v1::Job& job, const std::string& node);
  static double GraceOf(const Entry& entry, int64_t now_unix_ns);
  void PublishCluster();
  // Some of the events, or ended jobs, that are too many. True: there are more.
  bool DropEvents();
  bool DropEndedJobs();
  bool DropEndedJobsOfUser();
  std::vector<uint64_t> EndedBefore(const std::string& user, size_t most) const;
  bool Forget(const std::vector<uint64_t>& ids);
  std::vector<Holding> HoldingJobs(int64_t now_unix_ns) const;
  v1::DesiredAttempt DesiredOn(const std::string& node, const Entry& entry) const;

  const ReconcilerOptions options_;
  const ReconcilerPorts ports_;
  JobStore& store_;
  JobTable& table_;
  const StoreIdentity identity_;
  Nodes nodes_;
  std::map<std::string, v1::NodeReport> refusals_;  // the newest, by node
  struct KnownHello {
    v1::AgentHello hello;
    std::string holder;
  };
  std::map<std::string, KnownHello> hellos_not_stored_;  // by node
  std::set<std::string> names_wanted_;  // nodes whose holders have not spoken since
  std::map<uint64_t, Entry> jobs_;
  uint64_t older_before_ = 0;  // those of smaller ids that have ended are still to be read; 0: none
  std::set<uint64_t> active_;  // those that have not ended
  // Of these, kept in step with each commit: those that hold an allocation, which are few, and
  // those that wait for some.
  std::set<uint64_t> holding_;
  std::set<uint64_t> keeping_off_;  // those that some node could not start
  Queue queue_;
  UserUsage usage_{options_.user_caps};  // likewise
  int64_t started_unix_ns_ = 0;
  int64_t listens_since_unix_ns_ = 0;  // likewise, without the time in which it stood still
  int64_t due_unix_ns_ = 0;            // the next Tick, at the latest; 0: none so far
  // From when on reports are no older than when they are acted on, after it stood still; 0: always.
  int64_t heard_anew_unix_ns_ = 0;
  // Nodes that may come back after this start and have not: until then, or AgentsDueNs, nobody
  // passes one that waits.
  std::set<std::string> awaited_;
  bool absent_told_ = false;     // the nodes that have not dialled in since
  uint64_t first_sequence_ = 0;  // of the oldest event in the store; 0: not known
  int64_t cluster_published_unix_ns_ = 0;
  bool allocations_may_have_changed_ = true;
  int64_t scheduled_unix_ns_ = 0;
  uint64_t revision_ = 1;
};

}  // namespace trireme::coordinator
