// The daemon: its rooms put together, and taken apart in order.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "coordinator/calls/store_reads.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/daemon/local_agent.h"
#include "coordinator/daemon/while_there.h"
#include "coordinator/dashboard/dashboard.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/http/http_server.h"
#include "coordinator/job_store/damage_watch.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/metrics/daemon_metrics.h"
#include "coordinator/planning/submission.h"
#include "coordinator/process/clock_watch.h"
#include "coordinator/process/systemd_notice.h"
#include "coordinator/process/task_thread.h"
#include "coordinator/reconciler/reconciler.h"
#include "coordinator/retention/retention.h"
#include "coordinator/retention/retention_thread.h"

namespace trireme::coordinator {

struct DaemonOptions {
  std::string state_folder;  // made with mode 0700: store, logs
  std::string jobs_folder;   // likewise: run folders of new jobs
  std::string version;
  ListenOptions listen;
  Limits limits;
  std::string token_file;  // empty: only the unix socket is let in
  SubmissionRules rules;
  RetryPolicy retry;
  uint64_t most_events = 1000000;   // kept in the store
  size_t most_ended_jobs = 100000;  // likewise
  UserCaps user_caps;               // of users with the role submit
  uint64_t user_running_ranks = 0;  // likewise; 0: any number
  std::chrono::milliseconds lease{10000};
  std::chrono::milliseconds lost_node_after{60000};  // of ReconcilerOptions
  LocalAgentOptions agent;                           // program empty: none
  RetentionOptions retention;                        // its days and bytes alone; all 0: none
  HttpOptions http;                                  // address empty: none
  // Called once, by a thread of its own, when the daemon can go on no longer (Daemon::fault).
  std::function<void()> end = {};
};

class Daemon {
 public:
  // Ready to be called when it returns. Errors name the option to change.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options);
  // Answers what was asked, ends streams, leaves ranks and agents running.
  ~Daemon();
  // Reads the token file again and ends the sessions of browsers, and streams whose tokens were
  // taken back; on an error all is as before.
  absl::Status ReloadTokens();
  // Why it is to be ended: the job store was found to be damaged. OK: nothing is known.
  absl::Status fault() const;
  // Of the TCP listener; 0: none.
  int port() const { return server_->port(); }
  // "127.0.0.1:8470"; empty: no HTTP.
  std::string http_address() const { return http_ ? http_->address() : ""; }

 private:
  explicit Daemon(const DaemonOptions& options) : options_(options) {}
  absl::Status Open();
  absl::Status OpenReconciler();
  absl::Status OpenHttp();
  absl::Status MakeJobsFolder();
  void OpenRetention();
  void CheckStore();
  void Damaged(const absl::Status& why);
  absl::StatusOr<SubmissionRules> RulesWithOwnPaths() const;
  std::string LinkFor(const Caller& caller);
  int64_t Between(int64_t now_unix_ns);
  void MakePlan(const v1::Job& job);
  void Revoke(const v1::Job& job);
  void Revoked(uint64_t job, uint32_t attempt, const absl::Status& taken);
  void TakePlan(const v1::Job& job, const absl::StatusOr<std::optional<UnknownAttempt>>& outcome);
  void HoldPlanUp(const v1::Job& job, const absl::Status& why);
  void TakeSenderBack();
  void LogEvents();
  void FollowClock(int64_t now_unix_ns);
  HttpResponse ShowMetrics() const;

  const DaemonOptions options_;
  std::atomic<bool> stopping_{false};
  // The reconciler's thread and the planner's know each other from then on.
  absl::Notification threads_made_;
  const std::shared_ptr<std::atomic<size_t>> hanging_ =
      std::make_shared<std::atomic<size_t>>(0);  // threads, in file systems, of all kinds
  int state_lock_ = -1;                          // held to the end
  DaemonMetrics metrics_;
  // Calls of the store that hang have these as well.
  const std::shared_ptr<WhileThere<Daemon>> if_damaged_ =
      std::make_shared<WhileThere<Daemon>>(*this);
  std::shared_ptr<JobStore> store_;
  const std::shared_ptr<JobTable> table_ = std::make_shared<JobTable>();
  Access access_;
  StoreIdentity identity_;
  std::set<std::string> changed_nodes_;            // the reconciler's thread
  std::map<std::string, uint64_t> adopted_;        // likewise: from which revision on
  std::map<std::string, uint64_t> taken_;          // likewise: which report
  std::map<uint64_t, std::string> revoke_faults_;  // likewise: told last of a job's claim
  uint64_t logged_sequence_ = 0;                   // likewise
  Watchdog watchdog_;                              // likewise
  ClockWatch clock_watch_;                         // likewise
  std::atomic<ApiServer*> sender_{nullptr};
  mutable absl::Mutex fault_mutex_;
  absl::Status fault_ ABSL_GUARDED_BY(fault_mutex_);
  // In the order of their making.
  std::unique_ptr<DiskCalls> disks_;  // the jobs folder, and run folders for callers
  std::unique_ptr<Reconciler> reconciler_;
  // Of attempts: one for each file system that run folders are on, so that a job's plans and claims
  // are written one after the other.
  std::unique_ptr<DiskCalls> planner_;
  std::shared_ptr<WhileThere<TaskThread>> late_plans_;
  std::unique_ptr<TaskThread> checker_;  // of requests: plans jobs whose files were looked at
  std::unique_ptr<StoreReads> reads_;    // the store, for them
  std::unique_ptr<TaskThread> reconciler_thread_;
  std::unique_ptr<RetentionThread> retention_;  // absent: none is asked for
  std::unique_ptr<CheckTurns> check_turns_;
  std::unique_ptr<TaskThread> store_check_;
  std::unique_ptr<dashboard::Dashboard> dashboard_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<LocalAgent> agent_;
};

}  // namespace trireme::coordinator
