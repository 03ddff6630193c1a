// Order of the end: nobody waits for a disk, no more callers, then the planner, whose answers the
// reconciler still takes, then the reconciler, which asks for no more plans.
#include "coordinator/daemon/daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "coordinator/daemon/health.h"
#include "coordinator/daemon/late_call.h"
#include "coordinator/daemon/new_run_folders.h"
#include "coordinator/daemon/plan_files.h"
#include "coordinator/daemon/run_claim.h"
#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_store/damage_watch.h"
#include "coordinator/job_store/timed_store.h"
#include "coordinator/process/log_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// The node may be back by then: it is asked for anew, if it is not.
constexpr std::chrono::seconds kLateRevocation(5);
// For a folder, at the start; one that hangs for longer is looked for again.
constexpr std::chrono::seconds kAtStart(4);
constexpr size_t kMostQueued = 10000;
// Of one step of a plan; the job is told then, and goes on when the disk does.
constexpr std::chrono::seconds kSlowPlan(10);

// flock, for the locks of SQLite end with whichever of our descriptors of its file is closed first.
absl::StatusOr<int> LockStateFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open the folder " + folder);
  // A file system without locks has those of SQLite still.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  close(fd);
  return absl::FailedPreconditionError(fmt::format(
      "{} is held by another process: a triremed runs there already; end it, or choose another "
      "folder by --state-dir",
      folder));
}

// An attempt: it may run, so there is no plan yet. `step` is called as it gets on.
absl::StatusOr<std::optional<UnknownAttempt>> PreparePlan(const v1::Job& job,
                                                          const StoreIdentity& identity,
                                                          const std::function<void()>& step) {
  RETURN_IF_ERROR(ClaimRunFolder(job, identity.At(0)));
  step();
  ASSIGN_OR_RETURN(std::optional<UnknownAttempt> unknown,
                   FindUnknownAttempt(job, identity.store()));
  if (unknown) return unknown;
  step();
  // Before anybody hears of the attempt: from now on none before it publishes anything.
  RETURN_IF_ERROR(ClaimForAttempt(job, job.status().attempt(), identity.store()));
  step();
  RETURN_IF_ERROR(WritePlanFiles(job, step));
  return std::nullopt;
}

std::string NodeOf(const v1::Event& event) {
  return event.has_stalled() ? event.stalled().node() : event.node_changed().node();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options) {
  std::unique_ptr<Daemon> daemon(new Daemon(options));
  RETURN_IF_ERROR(daemon->Open());
  return daemon;
}

absl::Status Daemon::Open() {
  RETURN_IF_ERROR(MakePrivateFolder(options_.state_folder, "--state-dir"));
  ASSIGN_OR_RETURN(state_lock_, LockStateFolder(options_.state_folder));
  disks_ =
      std::make_unique<DiskCalls>(DiskCallsOptions{.name = "disk", .hanging_of_all = hanging_});
  RETURN_IF_ERROR(MakeJobsFolder());
  if (!options_.token_file.empty()) {
    ASSIGN_OR_RETURN(access_, Access::Load(options_.token_file));
  }
  ASSIGN_OR_RETURN(auto store,
                   JobStore::Open(options_.state_folder + "/jobs.db", StoreCheck::kWhatIsRead));
  RETURN_IF_ERROR(store->BeginEpoch());
  // A call that a disk has held may come back when this daemon is gone.
  store = DamageWatch(std::move(store), [if_damaged = if_damaged_](const absl::Status& why) {
    if_damaged->Do([&](Daemon& daemon) { daemon.Damaged(why); });
  });
  store_ = TimedStore(std::move(store), [this](const absl::Status& end, auto took) {
    metrics_.CommitEnds(end.ok(), took.count());
  });
  RETURN_IF_ERROR(OpenReconciler());
  reconciler_thread_ =
      std::make_unique<TaskThread>(TaskThreadOptions{.name = "reconciler",
                                                     .most_tasks = kMostQueued,
                                                     .most_of_owner = kMostQueued / 2,
                                                     .between = [this](int64_t now_unix_ns) {
                                                       threads_made_.WaitForNotification();
                                                       return Between(now_unix_ns);
                                                     }});
  late_plans_ = std::make_shared<WhileThere<TaskThread>>(*reconciler_thread_);
  threads_made_.Notify();
  // Submissions bound themselves.
  checker_ = std::make_unique<TaskThread>(
      TaskThreadOptions{.name = "checker", .most_tasks = kMostQueued, .between = {}});
  reads_ = std::make_unique<StoreReads>(
      table_, store_, options_.state_folder + "/jobs.db",
      DiskCallsOptions{.name = "store reads", .hanging_of_all = hanging_});
  // Before the API, which gives links to it.
  RETURN_IF_ERROR(OpenHttp());
  const CallObserver calls{
      [this](const std::string& method) { metrics_.CallBegins(method); },
      [this](const std::string& method, const std::string& code, bool stream, double seconds) {
        metrics_.CallEnds(method, code, stream, seconds);
      }};
  ASSIGN_OR_RETURN(const SubmissionRules rules, RulesWithOwnPaths());
  ApiRooms rooms{store_,  *table_, *reconciler_, *reconciler_thread_, *checker_, *disks_,
                 *reads_, access_, rules,        options_.lease,      calls};
  const auto folders = std::make_shared<NewRunFolders>(store_, options_.jobs_folder);
  rooms.run_folders = {[folders] { return folders->Reserve(); },
                       [folders](uint64_t id) { folders->Release(id); }, options_.jobs_folder};
  rooms.state_folder = options_.state_folder;
  rooms.hanging = hanging_;
  rooms.lost_node_after = options_.lost_node_after;
  rooms.identity = identity_;
  ASSIGN_OR_RETURN(const std::vector<v1::Node> nodes, store_->Nodes());
  for (const v1::Node& node : nodes) rooms.holders[node.name()] = node.holder();
  if (http_) rooms.dashboard_link = [this](const Caller& caller) { return LinkFor(caller); };
  ASSIGN_OR_RETURN(server_, ApiServer::Start(options_.listen, options_.limits, rooms));
  sender_ = server_.get();
  RETURN_IF_ERROR(reconciler_thread_->Post([this] { reconciler_->Listens(NowUnixNs()); }));
  OpenRetention();
  CheckStore();
  if (!options_.agent.program.empty()) agent_ = std::make_unique<LocalAgent>(options_.agent);
  return absl::OkStatus();
}

// On a thread of its disk. One that hangs keeps no daemon from starting, for what else it does
// needs none: a job that is submitted waits for it, and makes it.
absl::Status Daemon::MakeJobsFolder() {
  const std::string& jobs = options_.jobs_folder;
  const absl::Status made = disks_->Wait({.path = jobs, .deadline = kAtStart},
                                         [jobs] { return MakePrivateFolder(jobs, "--jobs-dir"); });
  if (!absl::IsDeadlineExceeded(made) && !absl::IsUnavailable(made)) return made;
  spdlog::warn("{}; new jobs wait until it answers", base::MessageOf(made));
  return absl::OkStatus();
}

// Jobs of before keep their run folders where --jobs-dir was then.
absl::StatusOr<SubmissionRules> Daemon::RulesWithOwnPaths() const {
  std::set<std::string> own = {options_.state_folder, options_.jobs_folder, options_.token_file,
                               options_.listen.key_file};
  ASSIGN_OR_RETURN(const std::vector<std::string> parents, store_->RunParents());
  own.insert(parents.begin(), parents.end());
  own.erase("");
  SubmissionRules rules = options_.rules;
  rules.own_paths.insert(rules.own_paths.end(), own.begin(), own.end());
  std::vector<std::string> folders = rules.own_paths;
  folders.insert(folders.end(), rules.allowed_folders.begin(), rules.allowed_folders.end());
  // Of their own, since rules are with calls that hang when all else has ended.
  const auto disks = std::make_shared<DiskCalls>(DiskCallsOptions{.name = "folders"});
  rules.real_folders = std::make_shared<RealFolders>(
      folders, [disks](const std::string& folder, std::function<void()> work) {
        return disks->Begin(
            {folder},
            [work = std::move(work)] {
              work();
              return absl::OkStatus();
            },
            [](const absl::Status&) {});
      });
  rules.real_folders->Wait(kAtStart);
  return rules;
}

absl::Status Daemon::OpenReconciler() {
  planner_ = std::make_unique<DiskCalls>(DiskCallsOptions{.name = "planner",
                                                          .threads = 1,
                                                          .most_waiting = kMostQueued,
                                                          .most_of_owner = 0,
                                                          .deadline = kSlowPlan,
                                                          .hangs_after = kSlowPlan,
                                                          .hanging_of_all = hanging_});
  ReconcilerOptions options;
  options.jobs_folder = options_.jobs_folder;
  options.version = options_.version;
  options.retry = options_.retry;
  options.most_events = options_.most_events;
  options.most_ended_jobs = options_.most_ended_jobs;
  options.lease = options_.lease;
  options.lost_node_after = options_.lost_node_after;
  options.user_caps = options_.user_caps;
  options.scheduling.user_running_ranks = options_.user_running_ranks;
  ReconcilerPorts ports;
  ports.make_plan = [this](const v1::Job& job) { MakePlan(job); };
  ports.desired_changed = [this](const std::string& node) { changed_nodes_.insert(node); };
  ports.adopt = [this](const std::string& node, uint64_t revision) { adopted_[node] = revision; };
  ports.revoke = [this](const v1::Job& job) { Revoke(job); };
  ports.report_taken = [this](const std::string& node, uint64_t number) { taken_[node] = number; };
  ports.stood_still = [](int64_t ns) {
    spdlog::warn(
        "the reconciler stood still for {:.1f} s, as where the disk of --state-dir is slow or this "
        "process was stopped; no node counts as silent for that time",
        static_cast<double>(ns) / 1e9);
  };
  identity_ = store_->identity();
  ASSIGN_OR_RETURN(reconciler_, Reconciler::Open(options, ports, *store_, *table_, NowUnixNs()));
  logged_sequence_ = table_->last_sequence();
  return absl::OkStatus();
}

// All that the start has not read.
void Daemon::CheckStore() {
  check_turns_ = std::make_unique<CheckTurns>(*store_, [](const absl::Status& why) {
    spdlog::warn("the job store could not be checked; it is tried again in an hour: {}",
                 base::MessageOf(why));
  });
  store_check_ = std::make_unique<TaskThread>(TaskThreadOptions{
      .name = "store check",
      .between = [this](int64_t now_unix_ns) { return check_turns_->Turn(now_unix_ns); }});
}

// A damaged store is served no longer than it takes to find out. Any thread.
void Daemon::Damaged(const absl::Status& why) {
  {
    const absl::MutexLock lock(&fault_mutex_);
    if (!fault_.ok()) return;
    fault_ = why;
  }
  spdlog::error("{}", base::MessageOf(why));
  if (options_.end) options_.end();
}

absl::Status Daemon::fault() const {
  const absl::MutexLock lock(&fault_mutex_);
  return fault_;
}

void Daemon::OpenRetention() {
  RetentionOptions options = options_.retention;
  const bool by_age = options.run_days > 0 || options.log_days > 0;
  if (!by_age && options.run_bytes == 0 && options.log_bytes == 0) return;
  options.jobs_folder = options_.jobs_folder;
  options.store = identity_.store();
  const auto retention = std::make_shared<Retention>(
      options, [this](uint64_t id) { return table_->Find(id, store_.get()); });
  retention_ = std::make_unique<RetentionThread>(RetentionWork{
      .turn = [retention](int64_t now_unix_ns) { return retention->Turn(now_unix_ns); },
      .stop = [retention] { retention->Stop(); }});
}

absl::Status Daemon::OpenHttp() {
  if (options_.http.address.empty()) return absl::OkStatus();
  dashboard_ = std::make_unique<dashboard::Dashboard>(
      dashboard::DashboardRooms{*reads_, dashboard::AskThrough(*reconciler_, *reconciler_thread_),
                                *disks_, identity_.store()},
      [this](const Caller& caller) { return access_.StillKnows(caller).ok(); });
  std::vector<HttpRoute> routes = dashboard_->Routes();
  routes.push_back(HealthRoute(*reconciler_thread_));
  routes.push_back({"GET", "/metrics", [this](const HttpRequest&) { return ShowMetrics(); }});
  ASSIGN_OR_RETURN(http_, HttpServer::Start(options_.http, std::move(routes)));
  return absl::OkStatus();
}

HttpResponse Daemon::ShowMetrics() const {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_.Text({.table = *table_,
                                 .reconciler_tasks = reconciler_thread_->waiting(),
                                 .planner_tasks = planner_->waiting(),
                                 .checker_tasks = checker_->waiting(),
                                 .disk_tasks = disks_->waiting(),
                                 .disks_hanging = *hanging_,
                                 .now_unix_ns = NowUnixNs()});
  return response;
}

// By the name that browsers know, where one is given.
std::string Daemon::LinkFor(const Caller& caller) {
  const std::string address = options_.http.names.empty()
                                  ? http_->address()
                                  : fmt::format("{}:{}", options_.http.names[0], http_->port());
  return "http://" + address + dashboard_->MakeLink(caller);
}

Daemon::~Daemon() {
  stopping_ = true;
  if (store_check_) store_->StopCheck();
  agent_.reset();
  retention_.reset();
  if (reconciler_thread_) TakeSenderBack();
  // Whose callers the next two wait for.
  if (disks_) disks_->Stop();
  if (reads_) reads_->Stop();
  server_.reset();
  http_.reset();
  store_check_.reset();
  checker_.reset();
  planner_.reset();
  if (late_plans_) late_plans_->Close();
  reconciler_thread_.reset();
  reconciler_.reset();
  dashboard_.reset();
  if_damaged_->Close();
  reads_.reset();
  store_.reset();
  // The next daemon finds all of it free.
  if (state_lock_ >= 0) close(state_lock_);
}

// Its thread may be sending this moment, or asking for a plan: none of that is left when this
// returns.
void Daemon::TakeSenderBack() {
  absl::Notification taken;
  reconciler_thread_->PostAnswer([&] {
    sender_ = nullptr;
    taken.Notify();
  });
  taken.WaitForNotification();
}

// On the reconciler's thread.
void Daemon::MakePlan(const v1::Job& job) {
  if (stopping_) return;
  DiskPath where{job.run_folder()};
  where.pulse = std::make_shared<DiskPulse>();
  BeginLate(
      *planner_, where, late_plans_,
      [job, identity = identity_, pulse = where.pulse] {
        return PreparePlan(job, identity, [&] { pulse->Beat(); });
      },
      [this, job](const auto& outcome) { TakePlan(job, outcome); },
      [this, job](const absl::Status& why) {
        if (!stopping_) HoldPlanUp(job, why);
      });
}

void Daemon::TakePlan(const v1::Job& job,
                      const absl::StatusOr<std::optional<UnknownAttempt>>& outcome) {
  const uint32_t attempt = job.status().attempt();
  const absl::Status stored =
      outcome.ok() && *outcome
          ? reconciler_->UnknownAttemptSeen(job.id(), attempt, **outcome, NowUnixNs())
          : reconciler_->PlanReady(job.id(), attempt, outcome.status(), NowUnixNs());
  if (!stored.ok()) spdlog::warn("job {}: {}", job.id(), base::MessageOf(stored));
}

void Daemon::HoldPlanUp(const v1::Job& job, const absl::Status& why) {
  const bool again = !absl::IsDeadlineExceeded(why);
  const absl::Status stored = reconciler_->PlanHeldUp(job.id(), job.status().attempt(),
                                                      base::MessageOf(why), again, NowUnixNs());
  if (!stored.ok()) spdlog::warn("job {}: {}", job.id(), base::MessageOf(stored));
}

// Both on the reconciler's thread.
void Daemon::Revoked(uint64_t job, uint32_t attempt, const absl::Status& taken) {
  // It is asked again every few seconds, and may fail for days.
  if (taken.ok()) {
    revoke_faults_.erase(job);
  } else if (std::string text = base::MessageOf(taken); revoke_faults_[job] != text) {
    spdlog::warn("job {}: {}", job, text);
    revoke_faults_[job] = std::move(text);
  }
  const absl::Status stored = reconciler_->Revoked(job, attempt, taken, NowUnixNs());
  if (!stored.ok()) spdlog::warn("job {}: {}", job, base::MessageOf(stored));
}

void Daemon::Revoke(const v1::Job& job) {
  if (stopping_) return;
  const auto answer = [this, id = job.id(),
                       attempt = job.status().attempt()](const absl::Status& taken) {
    reconciler_thread_->PostAnswer([this, id, attempt, taken] { Revoked(id, attempt, taken); });
  };
  const absl::Status begun = planner_->Begin(
      {job.run_folder()},
      [job, store = identity_.store(), asked = std::chrono::steady_clock::now()] {
        const bool late = std::chrono::steady_clock::now() - asked > kLateRevocation;
        return late ? absl::UnavailableError("the planner was busy: asked again")
                    : RevokeClaim(job, store);
      },
      answer);
  if (!begun.ok()) answer(begun);
}

absl::Status Daemon::ReloadTokens() {
  RETURN_IF_ERROR(access_.Reload());
  // A browser's session is as old as its link: all begin anew with what the file says now.
  if (dashboard_) dashboard_->EndSessions();
  server_->EndUnknown();
  return absl::OkStatus();
}

// What operations people look for in the log: states of jobs, and nodes.
void Daemon::LogEvents() {
  const auto events = table_->EventsAfter(logged_sequence_, kMostQueued);
  if (!events) {
    logged_sequence_ = table_->last_sequence();
    return;
  }
  for (const v1::Event& event : *events) {
    logged_sequence_ = event.sequence();
    metrics_.CountEvent(event);
    const LogAbout about({event.job_id(), event.attempt(), NodeOf(event)});
    if (event.has_state_changed()) {
      spdlog::info("job {} attempt {}: {}: {}", event.job_id(), event.attempt(),
                   StateWord(event.state_changed().to()), event.state_changed().reason());
    } else if (event.has_stalled()) {
      spdlog::warn("job {}: {}", event.job_id(), event.stalled().text());
    } else if (event.has_node_changed()) {
      const v1::NodeChanged& node = event.node_changed();
      spdlog::info("node {}: {}{}{}{}{}{}", node.node(),
                   node.state() == v1::NODE_LOST ? "lost" : "ready",
                   node.drained() ? ", drained" : "", node.by().empty() ? "" : " by ", node.by(),
                   node.reason().empty() ? "" : ": ", node.reason());
    }
  }
}

// A clock that somebody sets makes no agent silent and uses up nobody's time.
void Daemon::FollowClock(int64_t now_unix_ns) {
  const int64_t step_ns = clock_watch_.Step(
      now_unix_ns,
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  if (step_ns == 0) return;
  spdlog::warn("the clock of this machine was set {} by {:.1f} s", step_ns > 0 ? "forward" : "back",
               static_cast<double>(std::abs(step_ns)) / 1e9);
  reconciler_->ClockWasSet(step_ns, now_unix_ns);
}

int64_t Daemon::Between(int64_t now_unix_ns) {
  FollowClock(now_unix_ns);
  if (ApiServer* ears = sender_) reconciler_->Spoke(ears->TakeSpoken(), now_unix_ns);
  int64_t next = reconciler_->Tick(now_unix_ns);
  if (const auto notice = watchdog_.Turn()) next = std::min(next, now_unix_ns + notice->count());
  LogEvents();
  if (ApiServer* sender = sender_) {
    for (const auto& [node, revision] : adopted_) sender->SendAdopt(node, revision);
    adopted_.clear();
    for (const std::string& node : changed_nodes_) {
      sender->SendDesired(node, reconciler_->DesiredOf(node));
    }
    changed_nodes_.clear();
    for (const auto& [node, number] : taken_) sender->SendTaken(node, number);
    taken_.clear();
  }
  return next;
}

}  // namespace trireme::coordinator
