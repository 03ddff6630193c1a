// The messages that the daemon's threads and agents exchange are calls here, in the same order.
#include "coordinator/local_run/local_run.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/local_run/run_links.h"
#include "coordinator/process/task_thread.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr double kAtOnce = 0.001;
constexpr const char* kPerson = "you";
// A process that was stopped for a night (Ctrl-Z) is no lost node.
constexpr std::chrono::hours kLease{24 * 365};
constexpr std::chrono::seconds kCloseLimit{30};
constexpr std::chrono::milliseconds kCloseLook{10};

uint32_t ThreadsOf(const v1::JobSpec& job) {
  return static_cast<uint32_t>(std::max<int64_t>(0, job.runtime().threads()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRun>> LocalRun::Start(const LocalRunOptions& options) {
  std::unique_ptr<LocalRun> run(new LocalRun(options));
  RETURN_IF_ERROR(run->OpenKeeper());
  RETURN_IF_ERROR(run->OpenReconciler());
  RETURN_IF_ERROR(run->Submit());
  return run;
}

LocalRun::LocalRun(const LocalRunOptions& options) : options_(options), node_(base::HostName()) {}

absl::Status LocalRun::OpenKeeper() {
  keeper::KeeperOptions options;
  options.node = node_;
  options.state_folder = options_.run_folder + "/attempts/keeper";
  options.worker = options_.worker;
  options.bind_to_cores = options_.bind_to_cores;
  options.in_allocation = options_.in_allocation;
  options.ranks_end_with_us = true;
  auto opened = keeper::Keeper::Open(options);
  // Its end is all that is missing: no fault of the call.
  if (absl::IsAlreadyExists(opened.status())) {
    return absl::AbortedError(base::MessageOf(opened.status()));
  }
  ASSIGN_OR_RETURN(keeper_, std::move(opened));
  ASSIGN_OR_RETURN(attempts_before_, AttemptsBefore());
  return absl::OkStatus();
}

// By their folders, and by the records of those that were cut off before they had one.
absl::StatusOr<uint32_t> LocalRun::AttemptsBefore() {
  ASSIGN_OR_RETURN(uint32_t newest, keeper::NewestAttemptFolder(options_.run_folder));
  const v1::NodeReport report = keeper_->Poll();
  for (const v1::AttemptReport& known : report.attempts()) {
    newest = std::max(newest, known.attempt());
  }
  return newest;
}

absl::Status LocalRun::OpenReconciler() {
  ASSIGN_OR_RETURN(store_, JobStore::Open(":memory:"));
  ReconcilerOptions options;
  options.retry = options_.retry;
  options.retry.room_comes = false;  // a person is there
  options.lease = kLease;
  // Its one node ends with this process, and is never replaced.
  options.lost_node_after = std::chrono::milliseconds(0);
  ReconcilerPorts ports;
  // The caller has planned, and every attempt runs by that plan.
  ports.make_plan = [this](const v1::Job& job) { plan_wanted_ = job.status().attempt(); };
  ports.desired_changed = [this](const std::string&) { desired_changed_ = true; };
  ASSIGN_OR_RETURN(reconciler_,
                   Reconciler::Open(options, std::move(ports), *store_, table_, NowUnixNs()));
  return absl::OkStatus();
}

absl::Status LocalRun::Submit() {
  // Whether it fits is not ours to judge: a person may run more ranks than there are cores.
  const auto ranks = static_cast<uint32_t>(options_.ranks);
  v1::AgentHello hello;
  hello.set_node(node_);
  hello.set_cpus(ranks * ThreadsOf(options_.job));
  RETURN_IF_ERROR(reconciler_->Hello(hello, NowUnixNs()));
  Submission submission;
  submission.owner = kPerson;
  submission.job = options_.job;
  submission.resources.set_ranks(ranks);
  submission.resources.set_cpus_per_rank(ThreadsOf(options_.job));
  submission.run_folder = options_.run_folder;
  submission.attempts_before = attempts_before_;
  ASSIGN_OR_RETURN(const v1::SubmitResponse submitted,
                   reconciler_->Submit(submission, NowUnixNs()));
  job_id_ = submitted.job().id();
  return absl::OkStatus();
}

absl::Status LocalRun::Turn() {
  const int64_t now_unix_ns = NowUnixNs();
  const std::chrono::nanoseconds steady = steady_clock::now().time_since_epoch();
  if (const int64_t step_ns = clock_watch_.Step(now_unix_ns, steady.count()); step_ns != 0) {
    reconciler_->ClockWasSet(step_ns, now_unix_ns);
  }
  reconciler_->Tick(now_unix_ns);
  if (const auto attempt = std::exchange(plan_wanted_, std::nullopt)) {
    RETURN_IF_ERROR(reconciler_->PlanReady(job_id_, *attempt, absl::OkStatus(), now_unix_ns));
  }
  TellKeeper();
  v1::NodeReport report = keeper_->Poll();
  // Without it the ranks read plan.pb themselves.
  links_.Serve(keeper_->seats()).IgnoreError();
  links_.Freshen(report);
  RETURN_IF_ERROR(reconciler_->Report(node_, report, now_unix_ns));
  return StayStopped(now_unix_ns);
}

void LocalRun::TellKeeper() {
  if (!std::exchange(desired_changed_, false)) return;
  v1::DesiredAttempts desired = reconciler_->DesiredOf(node_);
  for (v1::DesiredAttempt& attempt : *desired.mutable_attempts()) {
    attempt.mutable_launch()->set_resume(ResumePoint());
    // In memory as on the disk: from what is another's only where this run was told to go on.
    const bool goes_on = options_.resume == "auto";
    attempt.mutable_launch()->set_snapshots_since(goes_on ? 0 : attempts_before_ + 1);
    if (attempt.attempt() == linked_) continue;
    linked_ = attempt.attempt();
    LinkAttempt(options_.run_folder, linked_);
  }
  keeper_->SetDesired(desired);
}

// Until an attempt of ours has saved one, the checkpoints that are there are another's
// (checkpoint.directory), or not where this run was told to begin.
std::string LocalRun::ResumePoint() const {
  if (table_.StatusOf(job_id_)->checkpoint_attempt() > 0) return "auto";
  return options_.resume.empty() ? keeper::kResumeNone : options_.resume;
}

// Ranks that somebody else has asked to stop (a signal to all processes of a Slurm job) have done
// so for a reason.
absl::Status LocalRun::StayStopped(int64_t now_unix_ns) {
  const v1::JobStatus status = *table_.StatusOf(job_id_);
  const bool stopped = status.state() == v1::JOB_PENDING && status.attempt() > attempts_before_;
  if (!stopped) return absl::OkStatus();
  return reconciler_->Ask(job_id_, PauseAsked{"a signal to the ranks"}, 0, now_unix_ns).status();
}

absl::Status LocalRun::Stop(double grace_seconds) {
  return reconciler_->Ask(job_id_, PauseAsked{kPerson}, grace_seconds, NowUnixNs()).status();
}

absl::Status LocalRun::Kill() {
  return reconciler_->Ask(job_id_, CancelAsked{kPerson}, kAtOnce, NowUnixNs()).status();
}

void LocalRun::Close() {
  const auto limit = steady_clock::now() + kCloseLimit;
  if (!Over()) Kill().IgnoreError();
  while (!Over() && steady_clock::now() < limit && Turn().ok()) {
    std::this_thread::sleep_for(kCloseLook);
  }
  TellKeeper();
  keeper_->Poll();
}

bool LocalRun::Over() const {
  const v1::JobStatus status = *table_.StatusOf(job_id_);
  return (HasEnded(status.state()) || status.state() == v1::JOB_PAUSED) && !status.attempt_live();
}

v1::Job LocalRun::job() const { return *table_.Get(job_id_); }

std::vector<v1::Event> LocalRun::TakeEvents() {
  constexpr size_t kMost = 1000;
  std::vector<v1::Event> events =
      table_.EventsAfter(sequence_, kMost).value_or(std::vector<v1::Event>());
  if (!events.empty()) sequence_ = events.back().sequence();
  return events;
}

}  // namespace trireme::coordinator
