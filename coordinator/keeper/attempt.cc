// Each turn looks at the folder anew and does the one thing that follows.
#include "coordinator/keeper/attempt.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/keeper/attempt_end.h"
#include "coordinator/launcher/diagnosis.h"
#include "coordinator/launcher/process_guard.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"

namespace trireme::keeper {
namespace {

constexpr int64_t kNsPerSecond = 1000000000;
// The guard itself needs two seconds from TERM to KILL; one that does not obey is killed.
constexpr int64_t kObeyNs = 10 * kNsPerSecond;
constexpr double kLongestGraceSeconds = 1e8;
constexpr int64_t kCheckpointsEveryNs = kNsPerSecond;
// A process may be forked behind the back of one pass over /proc.
constexpr int kCleanSweeps = 2;
constexpr int kKilledCode = 128 + SIGKILL;

Mark MarkOf(const v1::DesiredAttempt& attempt) {
  return {attempt.job_id(), attempt.attempt(), attempt.launch().run_folder()};
}

WatchedRanks RanksOf(const v1::DesiredAttempt& attempt, const std::string& node) {
  WatchedRanks watched{MarkOf(attempt), AttemptFolder(attempt).path() + "/recorder", 0, 0};
  for (const v1::Place& place : attempt.launch().places()) {
    if (place.node() == node) {
      watched.count = place.ranks();
      break;
    }
    watched.first += place.ranks();
  }
  return watched;
}

std::string PlanFileOf(const v1::LaunchSpec& launch) { return launch.run_folder() + "/plan.pb"; }

uint32_t RankCount(const v1::LaunchSpec& launch) {
  uint32_t ranks = 0;
  for (const v1::Place& place : launch.places()) ranks += place.ranks();
  return ranks;
}

launcher::LaunchOptions LaunchOptionsOf(const KeeperOptions& keeper,
                                        const v1::DesiredAttempt& attempt,
                                        const AttemptFolder& folder) {
  const v1::LaunchSpec& launch = attempt.launch();
  launcher::LaunchOptions options;
  options.worker = keeper.worker;
  options.arguments = keeper.worker_arguments;
  const std::string& run = launch.run_folder();
  const auto add = [&](const char* name, const std::string& value) {
    options.arguments.insert(options.arguments.end(), {name, value});
  };
  add("--job", run + "/job.yaml");
  add("--run-dir", run);
  if (launch.resume() != kResumeNone) {
    add("--resume", launch.resume().empty() ? "auto" : launch.resume());
  }
  add("--recorder-dir", folder.path() + "/recorder");
  add("--link", "unix:" + folder.link_socket());
  add("--job-id", std::to_string(attempt.job_id()));
  add("--attempt", std::to_string(attempt.attempt()));
  add("--plan", PlanFileOf(launch));
  options.ranks = 0;
  for (const v1::Place& place : launch.places()) {
    options.ranks += static_cast<int>(place.ranks());
    options.hosts.push_back({place.node(), static_cast<int>(place.ranks())});
  }
  options.log_folder = folder.path() + "/logs";
  options.environment = MarkOf(attempt).Environment();
  options.threads = static_cast<int>(launch.threads_per_rank());
  options.bind_to_cores = keeper.bind_to_cores;
  return options;
}

}  // namespace

bool Launches(const v1::LaunchSpec& launch, const std::string& node) {
  return launch.places_size() > 0 && launch.places(0).node() == node;
}

Attempt::Attempt(const KeeperOptions& options, AttemptRecord record)
    : options_(options),
      record_(std::move(record)),
      folder_(record_.desired),
      launcher_(Launches(record_.desired.launch(), options.node)),
      ranks_(RanksOf(record_.desired, options.node)) {}

void Attempt::SetWish(v1::AttemptWish wish, double grace_seconds) {
  v1::DesiredAttempt& desired = record_.desired;
  if (ended_ || (desired.wish() == wish && desired.grace_seconds() == grace_seconds)) return;
  desired.set_wish(wish);
  desired.set_grace_seconds(grace_seconds);
  // If the disk refuses it, the wish is told again after a restart all the same.
  Save().IgnoreError();
}

void Attempt::Advance(const Turn& turn) {
  if (ended_) return;
  // The guard first: if it has ended, so have its ranks.
  const Seen seen = launcher_ ? folder_.Look() : Seen{};
  ranks_.Look(turn.now_ns);
  launcher_ ? AdvanceLauncher(seen, turn) : AdvanceWatcher();
}

void Attempt::AdvanceLauncher(const Seen& seen, const Turn& turn) {
  switch (seen.sight) {
    case Sight::kUnreadable:
      return;
    case Sight::kLive:
      LookForCheckpoint(turn.now_ns);
      return Steer(seen.guard, turn.now_ns);
    case Sight::kExited:
      return EndWith(seen.exit_code);
    case Sight::kVanished:
      return EndVanished();
    case Sight::kSealed:
      return EndUnstarted("its start was cut off", kKilledCode);
    case Sight::kNothing:
      // Somebody removed the folder; its ranks may run.
      if (record_.begun && !folder_.Exists()) return EndVanished();
      return Begin(turn);
  }
}

// mpirun and its guard are another node's; here are only their ranks.
void Attempt::AdvanceWatcher() {
  const bool over = record_.desired.wish() == v1::ATTEMPT_KILL || !record_.never_started.empty() ||
                    folder_.IsOver();
  if (over && SweptClean()) End(0, std::nullopt);
  // Its ranks may come; they dial there.
  if (!over) (void)folder_.MakeTemporaryFolders();
}

void Attempt::Begin(const Turn& turn) {
  if (!record_.never_started.empty()) return EndUnstarted("", 0);
  if (record_.boot_id != launcher::BootId()) {
    return EndUnstarted("the machine was started anew meanwhile", kKilledCode);
  }
  switch (record_.desired.wish()) {
    case v1::ATTEMPT_STOP:
      return EndUnstarted("stopped before it began", base::kCheckpointed);
    case v1::ATTEMPT_KILL:
      return EndUnstarted("killed before it began", kKilledCode);
    case v1::ATTEMPT_RUN:
      break;
    default:
      return;
  }
  if (!turn.may_start) return;
  const absl::Status started = Start();
  // A guard that is late may come yet; if none does the next turn starts another, and one wins.
  if (started.ok() || absl::IsDeadlineExceeded(started)) return;
  EndUnstarted(base::MessageOf(started), base::ExitCodeOf(started));
}

absl::Status Attempt::Start() {
  const Mark mark = MarkOf(record_.desired);
  // Of attempts that no record speaks of. Not of this one: its guard may claim it this moment.
  const auto of_others = [&](uint32_t attempt) { return attempt != mark.attempt; };
  if (KillMarked(mark, of_others) > 0) return absl::OkStatus();  // again in the next turn
  RETURN_IF_ERROR(folder_.Make());
  record_.begun = true;
  RETURN_IF_ERROR(Save());
  ASSIGN_OR_RETURN(const launcher::TemporaryFolders temporary, folder_.MakeTemporaryFolders());
  ASSIGN_OR_RETURN(
      launcher::GuardedCommand command,
      launcher::CommandFor(LaunchOptionsOf(options_, record_.desired, folder_), temporary));
  command.ends_with_starter = options_.ranks_end_with_us;
  return launcher::StartGuarded(command, folder_.path());
}

void Attempt::Steer(const launcher::ProcessIdentity& guard, int64_t now_ns) {
  const v1::AttemptWish wish = record_.desired.wish();
  if (wish == v1::ATTEMPT_KILL) return Kill(guard, now_ns);
  if (wish != v1::ATTEMPT_STOP) return;
  if (record_.stop_at_ns == 0) {
    record_.stop_at_ns = now_ns;
    // Without it a restart would begin the grace anew.
    Save().IgnoreError();
  }
  // Again after a restart: the guard takes it for the same.
  if (!stop_asked_) stop_asked_ = folder_.Ask(launcher::kGuardStop);
  const double asked = record_.desired.grace_seconds();
  const double grace = std::isfinite(asked) ? std::clamp(asked, 0.0, kLongestGraceSeconds) : 0;
  const double waited = static_cast<double>(now_ns - record_.stop_at_ns) / kNsPerSecond;
  if (waited >= grace) Kill(guard, now_ns);
}

void Attempt::Kill(const launcher::ProcessIdentity& guard, int64_t now_ns) {
  const bool first = kill_asked_ns_ == 0;
  if (first) kill_asked_ns_ = now_ns;
  const bool deaf = first ? !folder_.Ask(launcher::kGuardKill) : now_ns - kill_asked_ns_ > kObeyNs;
  // Its children die with it or are swept.
  if (deaf) launcher::SendSignal(guard, SIGKILL);
}

void Attempt::LookForCheckpoint(int64_t now_ns) {
  if (checkpoints_at_ns_ != 0 && now_ns - checkpoints_at_ns_ < kCheckpointsEveryNs) return;
  checkpoints_at_ns_ = now_ns;
  checkpoint_step_ = NewestCheckpointStep(record_.desired.launch());
}

bool Attempt::SweptClean() {
  const uint32_t attempt = record_.desired.attempt();
  const int left =
      KillMarked(MarkOf(record_.desired), [&](uint32_t found) { return found == attempt; });
  clean_sweeps_ = left == 0 ? clean_sweeps_ + 1 : 0;
  return clean_sweeps_ >= kCleanSweeps;
}

void Attempt::EndWith(int exit_code) {
  const bool stopped = record_.stop_at_ns != 0;
  // A late request ends an mpirun that has no ranks any more; what they said is the end.
  if (stopped && exit_code == 128 + SIGUSR1) {
    exit_code = launcher::ExitCodeSaid(folder_.path()).value_or(exit_code);
  }
  if (exit_code == base::kOk || exit_code == base::kCheckpointed) {
    return End(exit_code, std::nullopt);
  }
  const bool killed = kill_asked_ns_ != 0 || record_.desired.wish() == v1::ATTEMPT_KILL;
  std::optional<v1::RankReport> dead;
  for (const v1::RankReport& rank : ranks_.ranks()) {
    if (ranks_.first_dead() == rank.rank()) dead = rank;
  }
  End(exit_code, DiagnosedFailure(folder_.path(), {exit_code, stopped, killed}, dead));
}

void Attempt::EndVanished() {
  if (SweptClean()) End(kKilledCode, VanishedFailure(folder_.path()));
}

void Attempt::EndUnstarted(const std::string& why, int exit_code) {
  // Before the reason is noted: a guard that was forked by a keeper now dead may claim it yet, and
  // then it has started.
  if (!folder_.Seal().ok()) return;
  if (record_.never_started.empty()) {
    record_.never_started = why;
    record_.exit_code = exit_code;
    Save().IgnoreError();  // a sealed folder tells enough
  }
  const int code = record_.exit_code;
  if (code == base::kOk || code == base::kCheckpointed) return End(code, std::nullopt);
  End(code, UnstartedFailure(record_.desired.attempt(), record_.never_started, code));
}

void Attempt::End(int exit_code, std::optional<v1::Failure> failure) {
  folder_.RemoveTemporaryFolders();
  ended_ = true;
  if (!launcher_) return;
  end_.set_launcher(true);
  end_.set_exit_code(exit_code);
  if (failure) *end_.mutable_failure() = *std::move(failure);
  end_.set_checkpoint_step(NewestCheckpointStep(record_.desired.launch()));
}

std::optional<Seat> Attempt::seat() const {
  if (ended_) return std::nullopt;
  const v1::DesiredAttempt& desired = record_.desired;
  const WatchedRanks here = RanksOf(desired, options_.node);
  Seat seat;
  seat.job_id = desired.job_id();
  seat.attempt = desired.attempt();
  seat.wanted = desired.wish() != v1::ATTEMPT_KILL;
  seat.first_rank = here.first;
  seat.ranks_here = here.count;
  seat.ranks = RankCount(desired.launch());
  seat.plan_file = PlanFileOf(desired.launch());
  seat.socket = folder_.link_socket();
  return seat;
}

v1::AttemptReport Attempt::Report() const {
  v1::AttemptReport report;
  report.set_checkpoint_step(checkpoint_step_);
  if (ended_) report = end_;
  report.set_job_id(record_.desired.job_id());
  report.set_attempt(record_.desired.attempt());
  report.set_phase(ended_                 ? v1::ATTEMPT_ENDED
                   : ranks_.all_at_work() ? v1::ATTEMPT_RUNNING
                                          : v1::ATTEMPT_STARTING);
  if (ranks_.progress()) *report.mutable_progress() = *ranks_.progress();
  for (const v1::RankReport& rank : ranks_.ranks()) *report.add_ranks() = rank;
  return report;
}

}  // namespace trireme::keeper
