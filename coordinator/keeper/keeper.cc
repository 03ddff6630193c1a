// The attempts of a node by job and number; each looks after itself, here is what lies between
// them.
#include "coordinator/keeper/keeper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "coordinator/keeper/attempt.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/keeper/attempt_record.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/file_lock.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<int> Lock(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  absl::StatusOr<int> lock = base::LockFile(folder + "/lock");
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::AlreadyExistsError(
      fmt::format("{}: another agent keeps this folder; end it, or give each its own", folder));
}

// Of the same attempt there is a record that says whose it is.
bool IsNamedIn(const std::vector<AttemptRecord>& records, const v1::DesiredAttempt& nameless) {
  return std::any_of(records.begin(), records.end(), [&](const AttemptRecord& record) {
    const v1::DesiredAttempt& one = record.desired;
    return !one.launch().store().store().empty() && one.job_id() == nameless.job_id() &&
           one.attempt() == nameless.attempt() &&
           one.launch().run_folder() == nameless.launch().run_folder();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Keeper>> Keeper::Open(const KeeperOptions& options) {
  ASSIGN_OR_RETURN(const int lock, Lock(options.state_folder));
  std::unique_ptr<Keeper> keeper(new Keeper(options, lock));
  RETURN_IF_ERROR(keeper->Adopt());
  return keeper;
}

Keeper::Keeper(const KeeperOptions& options, int lock_fd)
    : options_(options),
      queue_(options.slurm ? std::make_unique<slurm::Queue>() : nullptr),
      lock_fd_(lock_fd) {}

Keeper::~Keeper() { close(lock_fd_); }

Keeper::Key Keeper::KeyOf(const v1::DesiredAttempt& attempt) {
  return {attempt.launch().store().store(), attempt.job_id(), attempt.attempt()};
}

absl::Status Keeper::Adopt() {
  ASSIGN_OR_RETURN(std::vector<AttemptRecord> records, LoadRecords(options_.state_folder));
  RemoveUnknownGroups(options_, records);
  for (AttemptRecord& record : records) {
    const Key key = KeyOf(record.desired);
    // Named (NameStore), but the nameless file was not removed any more.
    const bool named = key.store.empty() && IsNamedIn(records, record.desired);
    if (named) {
      RemoveRecord(options_.state_folder, record);
      continue;
    }
    attempts_[key] = std::make_unique<Attempt>(options_, std::move(record), queue_.get(),
                                               /*adopted=*/true);
  }
  return absl::OkStatus();
}

uint32_t Keeper::NewestKnown(const v1::DesiredAttempt& attempt) const {
  // Where the disk does not say, by what is known here: its folder is made by mkdir all the same.
  uint32_t newest = NewestAttemptFolder(attempt.launch().run_folder()).value_or(0);
  const Key wanted = KeyOf(attempt);
  for (const auto& [key, known] : attempts_) {
    if (key.IsOfJobOf(wanted)) newest = std::max(newest, key.attempt);
  }
  return newest;
}

void Keeper::Learn(const v1::DesiredAttempt& attempt) {
  AttemptRecord record;
  record.desired = attempt;
  record.boot_id = base::BootId();
  const auto refuse = [&](const std::string& why, int exit_code) {
    if (!record.never_started.empty()) return;
    record.never_started = why;
    record.exit_code = exit_code;
  };
  const AttemptFolder folder(attempt);
  if (const uint32_t newest = NewestKnown(attempt); newest > attempt.attempt()) {
    refuse(fmt::format("attempt {} of the job is known already", newest), base::kJobFailed);
  }
  if (!fs::path(attempt.launch().run_folder()).is_absolute()) {
    refuse(fmt::format("its run folder '{}' is no absolute path", attempt.launch().run_folder()),
           base::kBadInput);
  }
  const bool launches = Launches(attempt.launch(), options_.node);
  if (launches && folder.Exists()) {
    refuse(fmt::format("{} was there before this node heard of it", folder.path()),
           base::kJobFailed);
  }
  // Without a record nothing is started; to watch, none is needed.
  const absl::Status saved = SaveRecord(options_.state_folder, record);
  if (launches && !saved.ok()) refuse(base::MessageOf(saved), base::kJobFailed);
  attempts_[KeyOf(attempt)] = std::make_unique<Attempt>(options_, std::move(record), queue_.get());
}

// One that an agent of before has begun, for a coordinator that had a name already.
void Keeper::NameStore(const v1::DesiredAttempt& attempt) {
  const Key key = KeyOf(attempt);
  Key nameless = key;
  nameless.store.clear();
  const auto known = attempts_.find(nameless);
  if (key == nameless || known == attempts_.end() || attempts_.contains(key)) return;
  const std::string& run_folder = known->second->record().desired.launch().run_folder();
  if (run_folder != attempt.launch().run_folder()) return;
  known->second->NameStore(key.store);
  auto moved = attempts_.extract(known);
  moved.key() = key;
  attempts_.insert(std::move(moved));
}

void Keeper::SetDesired(const v1::DesiredAttempts& desired) {
  told_ = true;
  revision_ = desired.revision();
  wanted_.clear();
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    NameStore(attempt);
    const Key key = KeyOf(attempt);
    wanted_.insert(key);
    if (attempts_.count(key) == 0) Learn(attempt);
  }
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    const Key key = KeyOf(attempt);
    if (IsOutdated(key)) continue;
    attempts_[key]->SetDesiredState(attempt.desired_state(), attempt.grace_seconds());
  }
  for (auto& [key, attempt] : attempts_) {
    if (IsOutdated(key) || wanted_.count(key) == 0) attempt->SetDesiredState(v1::ATTEMPT_KILL, 0);
  }
}

bool Keeper::IsOutdated(const Key& key) const {
  const auto newer = attempts_.upper_bound(key);
  return newer != attempts_.end() && newer->first.IsOfJobOf(key);
}

bool Keeper::OlderLives(const Key& key) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const auto& known) {
    return known.first.IsOfJobOf(key) && known.first.attempt < key.attempt &&
           !known.second->ended();
  });
}

void Keeper::ReportTaken(int64_t sent_ns) {
  for (auto& [key, attempt] : attempts_) attempt->lifeline().Taken(sent_ns);
}

// Ranks that end with us run for nobody else.
void Keeper::LookAtClaims() {
  if (options_.ranks_end_with_us) return;
  for (auto& [key, attempt] : attempts_) {
    if (attempt->ended()) continue;
    const std::string& run_folder = attempt->record().desired.launch().run_folder();
    const ClaimNews news = claims_.Of(run_folder, key.attempt);
    attempt->lifeline().Seen(news.sight, news.asked_ns);
  }
  claims_.DropOthers();
}

v1::NodeReport Keeper::Poll() {
  v1::NodeReport report;
  report.set_revision(revision_);
  LookAtClaims();
  const int64_t now_ns = base::MonotonicNs();
  const int64_t boottime_ns = base::BoottimeNs();
  for (auto known = attempts_.begin(); known != attempts_.end();) {
    auto& [key, attempt] = *known;
    attempt->Advance({now_ns, told_ && !OlderLives(key), boottime_ns});
    *report.add_attempts() = attempt->Report();
    const bool forget = told_ && attempt->ended() && wanted_.count(key) == 0;
    if (forget) RemoveRecord(options_.state_folder, attempt->record());
    known = forget ? attempts_.erase(known) : std::next(known);
  }
  return report;
}

bool Keeper::HoldsLive() const {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [](const auto& known) { return !known.second->ended(); });
}

void Keeper::AddAllocations(v1::NodeReport& report) const {
  for (v1::AttemptReport& attempt : *report.mutable_attempts()) {
    const auto known =
        attempts_.find({attempt.store().store(), attempt.job_id(), attempt.attempt()});
    if (known == attempts_.end()) continue;
    *attempt.mutable_allocation() = known->second->record().desired.launch().allocation();
  }
}

std::vector<Seat> Keeper::seats() const {
  std::vector<Seat> seats;
  for (const auto& [key, attempt] : attempts_) {
    if (const auto seat = attempt->seat()) seats.push_back(*seat);
  }
  return seats;
}

}  // namespace trireme::keeper
