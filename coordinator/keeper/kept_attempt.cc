#include "coordinator/keeper/kept_attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/keeper/launch.h"
#include "coordinator/keeper/marked_processes.h"
#include "runtime/base/monotonic.h"

namespace trireme::keeper {
namespace {

using base::kNsPerSecond;

constexpr int64_t kHeldUpNs = 2 * kNsPerSecond;  // between two looks of the loop
constexpr int64_t kSweepEveryNs = kNsPerSecond;

uint32_t RankCount(const v1::LaunchSpec& launch) {
  uint32_t ranks = 0;
  for (const v1::NodeAllocation& part : launch.allocation()) ranks += part.ranks();
  return ranks;
}

// Coarse, so that the words are not others at each look.
std::string LongFor(int64_t ns) {
  const int64_t seconds = ns / kNsPerSecond;
  if (seconds < 60) return fmt::format("{} s", std::max<int64_t>(seconds / 5 * 5, 1));
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} h", seconds / 3600);
}

}  // namespace

// What a turn that hangs may hold beyond the life of the keeper.
struct KeptAttempt::Shared {
  Shared(std::shared_ptr<const KeeperOptions> options, AttemptRecord record, Heard heard,
         std::shared_ptr<slurm::Queue> queue)
      : attempt(std::move(options), std::move(record), heard, std::move(queue), desired),
        newest(attempt.Newest()) {}

  SharedDesired desired;
  Attempt attempt;  // of the turn that is under way; else of the loop
  absl::Mutex mutex;
  bool under_way ABSL_GUARDED_BY(mutex) = false;
  bool refused ABSL_GUARDED_BY(mutex) = false;  // the newest was never run: all threads hang
  int64_t runs_ns ABSL_GUARDED_BY(mutex) = 0;   // since when one runs, MonotonicNs; 0: none does
  bool is_back ABSL_GUARDED_BY(mutex) = false;  // since the last look of the loop
  Sighting newest ABSL_GUARDED_BY(mutex);
};

struct KeptAttempt::Sweeps {
  std::atomic<bool> under_way{false};
  std::atomic<int> found{-1};  // by the last one; -1: none yet
};

KeptAttempt::KeptAttempt(std::shared_ptr<const KeeperOptions> options, AttemptRecord record,
                         Heard heard, std::shared_ptr<slurm::Queue> queue)
    : options_(std::move(options)),
      desired_(record.desired),
      cut_off_(record.cut_off),
      lifeline_(heard.adopted ? Lifeline::Adopted(base::BoottimeNs())
                              : Lifeline(base::BoottimeNs())),
      judged_ns_(base::BoottimeNs()),
      stop_wanted_ns_(record.stop_at_ns),
      looked_(!heard.adopted),
      shared_(std::make_shared<Shared>(options_, std::move(record), heard, std::move(queue))),
      sweeps_(std::make_shared<Sweeps>()) {
  const absl::MutexLock lock(&shared_->mutex);
  seen_ = shared_->newest;
  NoteDesired();
}

KeptAttempt::~KeptAttempt() {
  Desired newest = shared_->desired.Newest();
  newest.keeper_left = true;
  shared_->desired.Set(std::move(newest));
}

void KeptAttempt::NoteDesired() {
  const int64_t now_ns = base::MonotonicNs();
  if (desired_.desired_state() != v1::ATTEMPT_KILL) kill_wanted_ns_ = 0;
  if (desired_.desired_state() == v1::ATTEMPT_KILL && kill_wanted_ns_ == 0) {
    kill_wanted_ns_ = now_ns;
  }
  // One that is yet to come is of a clock before the machine was started anew.
  const bool asked = stop_wanted_ns_ > 0 && stop_wanted_ns_ <= now_ns;
  if (desired_.desired_state() == v1::ATTEMPT_STOP && !asked) stop_wanted_ns_ = now_ns;
  Desired newest;
  newest.desired_state = desired_.desired_state();
  newest.grace_seconds = desired_.grace_seconds();
  newest.stop_wanted_ns = stop_wanted_ns_;
  newest.store = desired_.launch().store().store();
  newest.cut_off = cut_off_;
  shared_->desired.Set(std::move(newest));
}

void KeptAttempt::SetDesiredState(v1::AttemptDesiredState desired_state, double grace_seconds) {
  // Others may run in its place by now.
  if (!cut_off_.empty()) desired_state = v1::ATTEMPT_KILL;
  desired_.set_desired_state(desired_state);
  desired_.set_grace_seconds(grace_seconds);
  NoteDesired();
}

void KeptAttempt::NameStore(const std::string& store) {
  desired_.mutable_launch()->mutable_store()->set_store(store);
  NoteDesired();
}

AttemptRecord KeptAttempt::record() const {
  AttemptRecord record;
  record.desired = desired_;
  return record;
}

bool KeptAttempt::at_rest() const {
  return seen_.ended && seen_.store == desired_.launch().store().store();
}

int64_t KeptAttempt::UnansweredNs() const {
  return unanswered_ns_ == 0 || seen_.ended ? 0 : base::MonotonicNs() - unanswered_ns_;
}

// One that merely waits for a thread, behind other attempts, says nothing of its disk.
int64_t KeptAttempt::StalledNs() const {
  const int64_t unanswered_ns = UnansweredNs();
  const absl::MutexLock lock(&shared_->mutex);
  if (shared_->refused) return unanswered_ns;
  if (shared_->runs_ns == 0) return 0;
  return std::min(unanswered_ns, base::MonotonicNs() - shared_->runs_ns);
}

// Where ranks have no agent beside them, as those of Slurm's jobs, silence ends nothing.
int64_t KeptAttempt::EndAfterNs() const {
  if (options_->slurm || options_->in_allocation || options_->ranks_end_with_us) return 0;
  const double seconds = desired_.end_after_seconds();
  return std::isfinite(seconds) ? static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) * 1e9) : 0;
}

void KeptAttempt::CutOff(int64_t boottime_ns) {
  const int64_t before_ns = std::exchange(judged_ns_, boottime_ns);
  if (seen_.ended || !cut_off_.empty()) return;
  if (boottime_ns - before_ns > kHeldUpNs) lifeline_.HeldUp(boottime_ns);
  const std::string why = lifeline_.Cut(EndAfterNs(), boottime_ns);
  if (why.empty()) return;
  cut_off_ = why;
  if (options_->warn) {
    options_->warn(fmt::format("job {} attempt {} is ended here: {}", desired_.job_id(),
                               desired_.attempt(), why));
  }
  SetDesiredState(v1::ATTEMPT_KILL, 0);
}

void KeptAttempt::Judge(AttemptTurns& turns) {
  CutOff(base::BoottimeNs());
  if (IsToBeSwept()) Sweep(turns);
}

// A turn that is back kills in order: it asks the guard first. Who was cut off has little time.
bool KeptAttempt::IsToBeSwept() const {
  if (!HasRanksHere() || seen_.ended) return false;
  const int64_t stalled_ns = int64_t{options_->stalled_after.count()} * 1000000;
  const int64_t unanswered_ns = UnansweredNs();
  if (!cut_off_.empty()) return unanswered_ns >= stalled_ns / 2;
  int64_t since_ns = kill_wanted_ns_;
  if (desired_.desired_state() == v1::ATTEMPT_STOP && since_ns == 0) {
    since_ns = stop_wanted_ns_ + StopGraceNs(desired_);
  }
  return since_ns != 0 && unanswered_ns >= stalled_ns &&
         base::MonotonicNs() - since_ns >= stalled_ns;
}

void KeptAttempt::Sweep(AttemptTurns& turns) {
  const int64_t now_ns = base::MonotonicNs();
  if (swept_ns_ != 0 && now_ns - swept_ns_ < kSweepEveryNs) return;
  if (sweeps_->under_way.exchange(true)) return;
  swept_ns_ = now_ns;
  const auto sweep = [sweeps = sweeps_, options = options_, desired = desired_] {
    const Mark mark = MarkOf(desired);
    const bool empty = AttemptGroup(*options, desired).Swept();
    const int left = KillMarked(mark, [&](uint32_t found) { return found == mark.attempt; });
    sweeps->found = left + (empty ? 0 : 1);
  };
  turns.BeginSweep(std::to_string(desired_.job_id()), sweep,
                   [sweeps = sweeps_] { sweeps->under_way = false; });
}

void KeptAttempt::BeginTurn(AttemptTurns& turns, bool may_start) {
  if (at_rest()) return;
  {
    const absl::MutexLock lock(&shared_->mutex);
    if (shared_->under_way) return;
    shared_->under_way = true;
  }
  if (unanswered_ns_ == 0) unanswered_ns_ = base::MonotonicNs();
  const auto advance = [shared = shared_, may_start] {
    {
      const absl::MutexLock lock(&shared->mutex);
      shared->refused = false;
      shared->runs_ns = base::MonotonicNs();
    }
    shared->attempt.Advance({base::MonotonicNs(), may_start});
    Sighting seen = shared->attempt.Newest();
    const absl::MutexLock lock(&shared->mutex);
    shared->newest = std::move(seen);
    shared->is_back = true;
  };
  turns.Begin(desired_.launch().run_folder(), std::to_string(desired_.job_id()), advance,
              [shared = shared_] {
                const absl::MutexLock lock(&shared->mutex);
                shared->under_way = false;
                shared->refused = shared->runs_ns == 0;
                shared->runs_ns = 0;
              });
}

void KeptAttempt::Collect() {
  Sighting seen;
  {
    const absl::MutexLock lock(&shared_->mutex);
    if (!std::exchange(shared_->is_back, false)) return;
    seen = shared_->newest;
  }
  unanswered_ns_ = 0;
  looked_ = true;
  uint64_t step = 0;
  for (const v1::RankReport& rank : seen.report.ranks()) step = std::max(step, rank.step());
  // A step that this look shows and the one before did not was done after that one.
  Stepped({desired_.job_id(), desired_.attempt(), step, seen_.looked_ns});
  seen_ = std::move(seen);
}

void KeptAttempt::Stepped(const StepNews& news) {
  lifeline_.Stepped(news.step, desired_.launch().allocation_size() > 1, news.since_ns);
}

std::string KeptAttempt::StallWords(AttemptTurns& turns) const {
  const int64_t stalled_ns = StalledNs();
  if (stalled_ns < int64_t{options_->stalled_after.count()} * 1000000) return "";
  const std::string& folder = desired_.launch().run_folder();
  const std::string mount = turns.MountOf(folder);
  std::string words = fmt::format(
      "its run folder {} has not answered node {} for {}{}; what is known of its ranks there is of "
      "before",
      folder, options_->node, LongFor(stalled_ns),
      mount.empty() ? "" : fmt::format(" ({})", mount));
  const int found = sweeps_->found;
  if (!IsToBeSwept() || found < 0) return words;
  words += found > 0
               ? "; its processes there are being killed, and those that hang in the folder "
                 "end when it answers"
               : "; its processes there have been killed, and what it ended with is reported when "
                 "the folder answers";
  return words;
}

v1::AttemptReport KeptAttempt::Report(AttemptTurns& turns) const {
  v1::AttemptReport report = looked_ ? seen_.report : v1::AttemptReport();
  report.set_job_id(desired_.job_id());
  *report.mutable_store() = desired_.launch().store();
  report.set_attempt(desired_.attempt());
  if (lifeline_.claim_read(EndAfterNs(), base::BoottimeNs())) {
    report.set_ends_after_seconds(static_cast<double>(EndAfterNs()) / kNsPerSecond);
  }
  const std::string stalled = StallWords(turns);
  if (stalled.empty()) return report;
  report.set_stalled(stalled);
  // So that what the ranks themselves say is known to be newer.
  for (v1::RankReport& rank : *report.mutable_ranks()) {
    if (rank.position().empty()) continue;
    rank.set_still_ms(rank.still_ms() + static_cast<uint64_t>(UnansweredNs() / 1000000));
  }
  return report;
}

std::optional<Seat> KeptAttempt::seat() const {
  // The nodes of a Slurm job have no keeper: their ranks read the plan themselves.
  if (seen_.ended || options_->slurm) return std::nullopt;
  const WatchedRanks here = RanksOf(desired_, *options_);
  Seat seat;
  seat.job_id = desired_.job_id();
  seat.attempt = desired_.attempt();
  seat.wanted = desired_.desired_state() != v1::ATTEMPT_KILL;
  seat.first_rank = here.first;
  seat.ranks_here = here.count;
  seat.ranks = RankCount(desired_.launch());
  seat.plan_file = PlanFileOf(desired_.launch());
  seat.socket = AttemptFolder(desired_).link_socket();
  seat.store = desired_.launch().store().store();
  seat.launches = Launches(desired_.launch(), options_->node);
  seat.control_group = AttemptGroup(*options_, desired_).folder();
  return seat;
}

}  // namespace trireme::keeper
