// Each turn looks at the folder anew and does the one thing that follows.
#include "coordinator/keeper/attempt.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "coordinator/keeper/attempt_end.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/launcher/diagnosis.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/run_claim/run_claim.h"

namespace trireme::keeper {
namespace {

using base::kNsPerSecond;

constexpr double kLongestGraceSeconds = 1e8;
constexpr int64_t kCheckpointsEveryNs = kNsPerSecond;
// How many times KeeperOptions::stalled_after a folder that errs is read again, after its guard has
// gone, for what it ended with, while nobody wants the attempt to end.
constexpr int kUnaskedPatience = 6;

std::unique_ptr<Launch> MakeLaunch(const KeeperOptions& options, const AttemptRecord& record,
                                   const AttemptFolder& folder, slurm::Queue* queue) {
  if (options.make_launch) return options.make_launch(record, folder);
  if (queue != nullptr) return MakeSlurmLaunch(options, record, folder, *queue);
  return MakeMpirunLaunch(options, record, folder);
}

}  // namespace

bool Launches(const v1::LaunchSpec& launch, const std::string& node) {
  return launch.allocation_size() > 0 && launch.allocation(0).node() == node;
}

WatchedRanks RanksOf(const v1::DesiredAttempt& attempt, const KeeperOptions& options) {
  WatchedRanks watched{MarkOf(attempt), AttemptFolder(attempt).path() + "/recorder", 0, 0,
                       options.slurm.has_value() || options.in_allocation};
  for (const v1::NodeAllocation& part : attempt.launch().allocation()) {
    if (part.node() == options.node) {
      watched.count = part.ranks();
      break;
    }
    watched.first += part.ranks();
  }
  return watched;
}

int64_t StopGraceNs(const v1::DesiredAttempt& attempt) {
  const double asked = attempt.grace_seconds();
  const double grace = std::isfinite(asked) ? std::clamp(asked, 0.0, kLongestGraceSeconds) : 0;
  return static_cast<int64_t>(grace * kNsPerSecond);
}

Attempt::Attempt(std::shared_ptr<const KeeperOptions> options, AttemptRecord record, Heard heard,
                 std::shared_ptr<slurm::Queue> queue, const SharedDesired& desired)
    : options_owner_(std::move(options)),
      queue_(std::move(queue)),
      options_(*options_owner_),
      shared_desired_(desired),
      heard_(heard),
      learned_(heard.adopted),
      recorded_(heard.adopted),
      record_(std::move(record)),
      folder_(record_.desired),
      launcher_(Launches(record_.desired.launch(), options_.node)),
      launch_(MakeLaunch(options_, record_, folder_, queue_.get())),
      ranks_(RanksOf(record_.desired, options_)),
      looked_ns_(base::BoottimeNs()) {}

// The first reason stays.
void Attempt::Refuse(const std::string& why, int exit_code, Doing doing) {
  if (!record_.never_started.empty()) return;
  record_.never_started = why;
  record_.exit_code = exit_code;
  // Ranks that end with us have no other node.
  record_.unable = doing == Doing::kOurs && !options_.ranks_end_with_us;
}

void Attempt::Learn() {
  learned_ = true;
  const std::string& run_folder = record_.desired.launch().run_folder();
  // Where the disk does not say, by what is known here: its folder is made by mkdir all the same.
  const uint32_t newest =
      std::max(heard_.newest_known, NewestAttemptFolder(run_folder).value_or(0));
  if (newest > record_.desired.attempt()) {
    Refuse(fmt::format("attempt {} of the job is known already", newest), base::kJobFailed);
  }
  if (!std::filesystem::path(run_folder).is_absolute()) {
    Refuse(fmt::format("its run folder '{}' is no absolute path", run_folder), base::kBadInput);
  }
  const std::string& key = record_.desired.launch().key();
  if (!key.empty() && !IsLaunchKey(key)) {
    Refuse("LaunchSpec.key names its temporary folders, but is not 16 to 64 hex digits",
           base::kBadInput);
  }
  if (launcher_ && folder_.Exists()) {
    Refuse(fmt::format("{} was there before this node received the attempt", folder_.path()),
           base::kJobFailed);
  }
  // Without a record nothing is started; to watch, none is needed.
  const absl::Status saved = Save();
  recorded_ = saved.ok();
  if (launcher_ && !saved.ok()) Refuse(base::MessageOf(saved), base::kJobFailed, Doing::kOurs);
}

// If the disk refuses the record, the desired state is sent again after a restart all the same.
void Attempt::Heed() {
  const Desired newest = shared_desired_.Newest();
  if (newest.store != record_.desired.launch().store().store()) NameStore(newest.store);
  if (ended_) return;
  v1::DesiredAttempt& desired = record_.desired;
  const bool same = desired.desired_state() == newest.desired_state &&
                    desired.grace_seconds() == newest.grace_seconds &&
                    record_.cut_off == newest.cut_off;
  record_.cut_off = newest.cut_off;
  desired.set_desired_state(newest.desired_state);
  desired.set_grace_seconds(newest.grace_seconds);
  // Before its disk is looked at, which may take its time: its ranks may come, and dial there.
  if (!launcher_ && IsWanted()) (void)folder_.MakeTemporaryFolders();
  if (!learned_) return Learn();
  if (!same) Save().IgnoreError();
}

void Attempt::NameStore(const std::string& store) {
  const AttemptRecord nameless = record_;
  record_.desired.mutable_launch()->mutable_store()->set_store(store);
  // If the disk refuses it, the next keeper names it again.
  if (Save().ok()) RemoveRecord(options_.state_folder, nameless);
}

void Attempt::Advance(const Turn& turn) {
  Heed();
  if (ended_) return;
  // The guard first: if it has ended, so have its ranks.
  Seen seen = launcher_ ? launch_->Look(turn.now_ns) : Seen{};
  seen.words = base::ShowableUtf8(seen.words);  // in part those of other programs
  const int64_t boottime_ns = base::BoottimeNs();
  if (folder_.whose() == Whose::kOurs) ranks_.Look(turn.now_ns);
  looked_ns_ = boottime_ns;
  Heed();
  // The disk may have held the look for long: a grace, or a guard's time to obey, begins now.
  const Turn now{base::MonotonicNs(), turn.may_start};
  launcher_ ? AdvanceLauncher(seen, now) : AdvanceWatcher();
}

// The record of one that runs may have been lost, and its folder may err later.
void Attempt::NoteBegun(const Seen& seen) {
  const bool has = seen.sight == Sight::kLive || seen.sight == Sight::kVanished;
  if (!has || (record_.begun && record_.start_failed.empty())) return;
  record_.begun = true;
  record_.start_failed.clear();
  Save().IgnoreError();
}

// A start that failed has left something running.
void Attempt::NoteRanks() {
  ran_here_ = true;
  if (record_.start_failed.empty()) return;
  record_.start_failed.clear();
  Save().IgnoreError();
}

PlaceSeen Attempt::SeePlace() const {
  // A run of our own has no daemon that claims its folder; nor had attempts without a store.
  return LookForPlace(record_.desired,
                      record_.desired.launch().store().epoch() != 0 && !options_.ranks_end_with_us);
}

// Where nobody has claimed its folder, as far as that can be seen: it is unreadable where it may
// merely be away.
Place Attempt::LookForFolder(Seen& seen) {
  const bool unclaimed = seen.sight == Sight::kNothing || seen.sight == Sight::kQueued ||
                         seen.sight == Sight::kRefused;
  if (!unclaimed) return Place::kThere;
  PlaceSeen found;
  if (record_.begun) {
    found = SeePlace();
  } else if (std::string why = WhyNotThere(record_.desired.launch().run_folder()); !why.empty()) {
    // As far as this keeper remembers.
    const bool runs = ran_here_ || !launch_->RunnerGone() || launch_->HasRanks();
    if (runs) found = {Place::kAway, std::move(why)};
  }
  if (found.place == Place::kAway || found.place == Place::kClaimed) {
    seen.sight = Sight::kUnreadable;
    seen.words = std::move(found.why);
  }
  return found.place;
}

void Attempt::AdvanceLauncher(Seen seen, const Turn& turn) {
  NoteBegun(seen);
  const Place place = LookForFolder(seen);
  if (seen.sight != Sight::kUnreadable) {
    waits_for_.clear();
    unreadable_.clear();
    runner_gone_ns_ = 0;
  }
  switch (seen.sight) {
    case Sight::kUnreadable:
      return AdvanceUnreadable(seen.words, turn.now_ns);
    case Sight::kQueued:
      waits_for_ = seen.words;
      EndedAsDesired();
      return;
    case Sight::kRefused:
      return EndUnstarted(seen.words, seen.exit_code);
    case Sight::kLive:
      LookForCheckpoint(turn.now_ns);
      return Steer(turn.now_ns);
    case Sight::kExited:
      return EndWith(seen.exit_code);
    case Sight::kVanished:
      return EndVanished(seen);
    case Sight::kSealed:
      return EndUnstarted("its start was cut off", base::kKilledCode);
    case Sight::kNothing:
      if (place == Place::kRemoved) return EndRemoved(seen, turn.now_ns);
      return Begin(turn);
  }
}

// Asked for, or by a stop whose grace is over.
bool Attempt::IsKillDue(int64_t now_ns) const {
  const v1::AttemptDesiredState desired = record_.desired.desired_state();
  const int64_t wanted_ns = shared_desired_.Newest().stop_wanted_ns;
  return desired == v1::ATTEMPT_KILL || (desired == v1::ATTEMPT_STOP && wanted_ns > 0 &&
                                         now_ns - wanted_ns >= StopGraceNs(record_.desired));
}

// A stop, its grace and a kill need no folder, and an end needs none where nothing is left that
// could leave a verdict there. The folder has its time to answer all the same: the verdict may say
// more. Of what has not begun, as far as this keeper remembers, nobody knows whose the folder is: a
// kill alone is carried out, and it has not ended either while something of it runs here.
void Attempt::AdvanceUnreadable(const std::string& why, int64_t now_ns) {
  unreadable_ = why;
  const bool acts = record_.begun || IsKillDue(now_ns);
  const bool unsure = !record_.begun || !record_.start_failed.empty();
  const bool has_ranks = unsure && launch_->HasRanks();
  if (has_ranks) NoteRanks();
  if (acts) Steer(now_ns);
  if (acts && kill_asked_) launch_->SweptClean();
  if (!launch_->RunnerGone()) {
    runner_gone_ns_ = 0;
    return;
  }
  if (runner_gone_ns_ == 0) runner_gone_ns_ = now_ns;
  const bool wanted =
      record_.desired.desired_state() == v1::ATTEMPT_RUN && record_.never_started.empty();
  const int64_t patience_ns =
      int64_t{options_.stalled_after.count()} * 1000000 * (wanted ? kUnaskedPatience : 1);
  if (now_ns - runner_gone_ns_ < patience_ns) return;
  if (acts ? launch_->SweptClean() : !has_ranks) EndUnread(why);
}

void Attempt::EndUnread(const std::string& why) {
  if (ran_here_ || (record_.begun && record_.start_failed.empty())) {
    return End(base::kKilledCode, UnreadFailure(options_.node, why, kill_asked_));
  }
  // No guard is left, and none was forked that could come yet, so that none is to be sealed out.
  const v1::AttemptDesiredState desired = record_.desired.desired_state();
  if (desired == v1::ATTEMPT_RUN) {
    const std::string& failed = record_.start_failed;
    return EndNothingStarts(failed.empty() ? "its run folder errs here: " + why : failed,
                            base::kJobFailed, Doing::kOurs);
  }
  const bool stopped = desired == v1::ATTEMPT_STOP;
  EndNothingStarts(stopped ? "stopped before it began" : "killed before it began; " + why,
                   stopped ? base::kCheckpointed : base::kKilledCode, Doing::kOthers);
}

// mpirun and its guard are another node's; here are only their ranks.
void Attempt::AdvanceWatcher() {
  const bool over = !IsWanted() || folder_.IsOver();
  // Of a group without a record the next keeper would not know whose it is, and end it.
  if (!over && recorded_) launch_->AwaitRanks();
  if (over && launch_->SweptClean()) End(0, std::nullopt);
}

bool Attempt::IsWanted() const {
  return record_.desired.desired_state() != v1::ATTEMPT_KILL && record_.never_started.empty();
}

void Attempt::Begin(const Turn& turn) {
  if (!record_.never_started.empty()) return EndUnstarted("", 0);
  if (record_.boot_id != base::BootId()) {
    return EndUnstarted("the machine was started anew meanwhile", base::kKilledCode);
  }
  if (EndedAsDesired() || record_.desired.desired_state() != v1::ATTEMPT_RUN || !turn.may_start)
    return;
  record_.start_failed.clear();
  const absl::Status started = Start();
  // A guard that is late may come yet; if none does the next turn starts another, and one wins.
  if (started.ok() || absl::IsDeadlineExceeded(started) || absl::IsCancelled(started)) return;
  const std::string why = base::MessageOf(started);
  if (options_.ranks_end_with_us || absl::IsInvalidArgument(started)) {
    return EndUnstarted(why, base::ExitCodeOf(started));
  }
  // What one node lacks at one time (a program, room on a disk) is no fault of the job; that
  // another attempt counts is none of the node.
  const bool replaced = absl::IsFailedPrecondition(started);
  if (!replaced) record_.start_failed = why;
  EndUnstarted(why, base::kJobFailed, replaced ? Doing::kOthers : Doing::kOurs);
  // Its folder errs by now, or is away, and the next turns, or the next keeper's, end it.
  if (!ended_) Save().IgnoreError();
}

// Of an attempt that has not begun.
bool Attempt::EndedAsDesired() {
  const v1::AttemptDesiredState desired_state = record_.desired.desired_state();
  if (desired_state == v1::ATTEMPT_STOP)
    EndUnstarted("stopped before it began", base::kCheckpointed);
  if (desired_state == v1::ATTEMPT_KILL) EndUnstarted("killed before it began", base::kKilledCode);
  return desired_state == v1::ATTEMPT_STOP || desired_state == v1::ATTEMPT_KILL;
}

absl::Status Attempt::Start() {
  if (!launch_->Ready()) return absl::OkStatus();  // again in the next turn
  const std::string& run_folder = record_.desired.launch().run_folder();
  const absl::Status counts = run_claim::CheckRunClaim(run_folder, record_.desired.attempt());
  if (absl::IsFailedPrecondition(counts)) return counts;
  // Who wants the attempt has made it. Where its mount is away it would be made on another disk.
  const std::string away = WhyNotThere(run_folder);
  if (!away.empty()) return absl::UnavailableError(away);
  // A disk may have held this turn until others run in its place; the next turn ends it.
  if (IsCalledOff()) return absl::OkStatus();
  RETURN_IF_ERROR(folder_.Make());
  record_.begun = true;
  const absl::Status saved = Save();
  if (IsCalledOff()) return absl::OkStatus();
  RETURN_IF_ERROR(saved);
  return launch_->Start([this] { return IsCalledOff(); });
}

bool Attempt::IsCalledOff() const {
  const Desired newest = shared_desired_.Newest();
  return newest.keeper_left || newest.desired_state != v1::ATTEMPT_RUN;
}

absl::Status Attempt::Save() const {
  if (shared_desired_.Newest().keeper_left) return absl::CancelledError("the keeper has ended");
  return SaveRecord(options_.state_folder, record_);
}

void Attempt::Steer(int64_t now_ns) {
  const v1::AttemptDesiredState desired_state = record_.desired.desired_state();
  const auto kill = [&] {
    kill_asked_ = true;
    launch_->Kill(now_ns);
  };
  if (desired_state == v1::ATTEMPT_KILL) return kill();
  if (desired_state != v1::ATTEMPT_STOP) return;
  // One that is yet to come is of a clock before the machine was started anew, which a Slurm job
  // on other machines outlives.
  if (record_.stop_at_ns == 0 || record_.stop_at_ns > now_ns) {
    // The loop counts the same grace, and kills without us when it is over.
    const int64_t wanted_ns = shared_desired_.Newest().stop_wanted_ns;
    record_.stop_at_ns = wanted_ns > 0 ? std::min(wanted_ns, now_ns) : now_ns;
    // Without it a restart of the keeper would begin the grace anew.
    Save().IgnoreError();
  }
  launch_->AskToStop(now_ns);
  if (now_ns - record_.stop_at_ns >= StopGraceNs(record_.desired)) kill();
}

void Attempt::LookForCheckpoint(int64_t now_ns) {
  if (checkpoints_at_ns_ != 0 && now_ns - checkpoints_at_ns_ < kCheckpointsEveryNs) return;
  checkpoints_at_ns_ = now_ns;
  FindCheckpoint();
}

// What has been saved once stays so, also where a disk does not show it later.
void Attempt::FindCheckpoint() {
  if (launcher_ && folder_.whose() != Whose::kOurs) return;
  SavedSoFar saves = SavesOf(record_.desired.launch(), folder_.path() + "/recorder");
  // A disk that shows nothing, or less than before, does not say that saves go well again.
  if ((saves.step == 0 && saves.fails.empty()) || saves.step < saved_step_) return;
  saved_step_ = saves.step;
  not_saved_ = std::move(saves.fails);
}

// A rank's first act is to make its recording. Where the disk does not say, one may have.
bool Attempt::NoRankCameUp() const {
  const auto names = base::FolderNames(folder_.path() + "/recorder");
  return names.ok() && names->empty();
}

void Attempt::EndWith(int exit_code) {
  const bool stopped = record_.stop_at_ns != 0;
  // A late request ends an mpirun that has no ranks any more; what they said is the end.
  if (stopped && exit_code == 128 + SIGUSR1) {
    exit_code = launcher::ExitCodeSaid(folder_.path()).value_or(exit_code);
  }
  // So does one whose daemons on other nodes are not up yet, by code 0: no rank has run.
  if (stopped && exit_code == base::kOk && !ranks_.all_at_work() && NoRankCameUp()) {
    exit_code = base::kCheckpointed;
  }
  if (exit_code == base::kOk || exit_code == base::kCheckpointed) {
    return End(exit_code, std::nullopt);
  }
  const bool killed = kill_asked_ || record_.desired.desired_state() == v1::ATTEMPT_KILL;
  std::optional<v1::RankReport> dead;
  for (const v1::RankReport& rank : ranks_.ranks()) {
    if (ranks_.first_dead() == rank.rank()) dead = rank;
  }
  End(exit_code, DiagnosedFailure(folder_.path(), record_.desired.launch(),
                                  {exit_code, stopped, killed, BySrun()}, dead));
}

// Somebody removed its folder. A guard that a disk has held may claim that yet and start.
void Attempt::EndRemoved(const Seen& seen, int64_t now_ns) {
  launch_->Kill(now_ns);
  if (launch_->RunnerGone()) return EndVanished(seen);
  launch_->SweptClean();
}

void Attempt::EndVanished(const Seen& seen) {
  if (!launch_->SweptClean()) return;
  const v1::LaunchSpec& launch = record_.desired.launch();
  if (seen.words.empty()) {
    const bool killed = kill_asked_ || record_.desired.desired_state() == v1::ATTEMPT_KILL;
    return End(base::kKilledCode, VanishedFailure(folder_.path(), launch, killed));
  }
  if (seen.exit_code == base::kCheckpointed) return End(seen.exit_code, std::nullopt);
  v1::Failure failure = DiagnosedFailure(
      folder_.path(), launch, {seen.exit_code, record_.stop_at_ns != 0, kill_asked_, BySrun()}, {});
  if (!kill_asked_) {
    failure.set_evidence(failure.headline() + "\n" + failure.evidence());
    failure.set_headline(seen.words);
    failure.set_next_action(seen.next_action);
  }
  End(seen.exit_code, std::move(failure));
}

void Attempt::EndUnstarted(const std::string& why, int exit_code, Doing doing) {
  // Before the reason is noted: a guard that was forked by a keeper now dead may claim it yet, and
  // then it has started. In a folder that is away none can be sealed out.
  if (record_.begun && SeePlace().place == Place::kAway) return;
  if (launch_->Seal().ok()) EndNothingStarts(why, exit_code, doing);
}

void Attempt::EndNothingStarts(const std::string& why, int exit_code, Doing doing) {
  if (record_.never_started.empty()) {
    Refuse(why, exit_code, doing);
    Save().IgnoreError();  // a sealed folder tells enough
  }
  const int code = record_.exit_code;
  end_.set_never_started(record_.unable);
  if (code == base::kOk || code == base::kCheckpointed) return End(code, std::nullopt);
  End(code, UnstartedFailure(record_.desired.attempt(), record_.never_started, code));
}

void Attempt::End(int exit_code, std::optional<v1::Failure> failure) {
  // What another attempt uses has the names that ours would have. One that has begun has made its
  // own folder, whether that can be read or not.
  const Whose whose = folder_.whose();
  const bool ours = whose == Whose::kOurs || (whose == Whose::kUnknown && record_.begun);
  const bool taken = launcher_ && folder_.Exists() && !ours;
  if (!taken) launch_->CleanUp();
  if (failure && !record_.cut_off.empty()) failure->set_headline(record_.cut_off);
  waits_for_.clear();
  ended_ = true;
  if (!launcher_) return;
  end_.set_launcher(true);
  end_.set_exit_code(exit_code);
  if (failure) *end_.mutable_failure() = *std::move(failure);
  FindCheckpoint();
  end_.set_saved_step(saved_step_);
}

Sighting Attempt::Newest() const {
  return {Report(), ended_, record_.desired.launch().store().store(), looked_ns_};
}

v1::AttemptReport Attempt::Report() const {
  v1::AttemptReport report;
  report.set_saved_step(saved_step_);
  if (!not_saved_.empty()) report.mutable_failure()->set_headline(not_saved_);
  if (ended_) report = end_;
  report.set_phase(ended_                 ? v1::ATTEMPT_ENDED
                   : ranks_.all_at_work() ? v1::ATTEMPT_RUNNING
                                          : v1::ATTEMPT_STARTING);
  if (!launcher_) {
    if (auto kill = launch_->MemoryKill()) *report.mutable_failure() = *std::move(kill);
  }
  report.set_waits_for(waits_for_);
  if (!ended_ && !unreadable_.empty()) {
    report.set_stalled(
        fmt::format("its run folder errs on node {}: {}; what is known of its ranks "
                    "there is of before",
                    options_.node, unreadable_));
  }
  if (ranks_.progress()) *report.mutable_progress() = *ranks_.progress();
  for (const v1::RankReport& rank : ranks_.ranks()) *report.add_ranks() = rank;
  return report;
}

}  // namespace trireme::keeper
