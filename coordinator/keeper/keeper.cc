// The attempts of a node by job and number; each looks after itself, here is what lies between
// them.
#include "coordinator/keeper/keeper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "coordinator/keeper/attempt_group.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/kept_attempt.h"
#include "runtime/base/file_lock.h"
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
    : options_(std::make_shared<const KeeperOptions>(options)),
      queue_(options.slurm ? std::make_shared<slurm::Queue>() : nullptr),
      lock_fd_(lock_fd),
      turns_(std::make_unique<AttemptTurns>(options.turn_wait)) {}

Keeper::~Keeper() {
  attempts_.clear();  // what is under way starts nothing any more
  turns_.reset();
  close(lock_fd_);
}

Keeper::Key Keeper::KeyOf(const v1::DesiredAttempt& attempt) {
  return {attempt.launch().store().store(), attempt.job_id(), attempt.attempt()};
}

absl::Status Keeper::Adopt() {
  ASSIGN_OR_RETURN(std::vector<AttemptRecord> records, LoadRecords(options_->state_folder));
  RemoveUnknownGroups(*options_, records);
  for (AttemptRecord& record : records) {
    const Key key = KeyOf(record.desired);
    // Named (NameStore), but the nameless file was not removed any more.
    const bool named = key.store.empty() && IsNamedIn(records, record.desired);
    if (named) {
      RemoveRecord(options_->state_folder, record);
      continue;
    }
    attempts_[key] =
        std::make_unique<KeptAttempt>(options_, std::move(record), Heard{.adopted = true}, queue_);
  }
  return absl::OkStatus();
}

uint32_t Keeper::NewestKnown(const Key& wanted) const {
  uint32_t newest = 0;
  for (const auto& [key, known] : attempts_) {
    if (key.IsOfJobOf(wanted)) newest = std::max(newest, key.attempt);
  }
  return newest;
}

void Keeper::Learn(const v1::DesiredAttempt& attempt) {
  AttemptRecord record;
  record.desired = attempt;
  record.boot_id = base::BootId();
  const Key key = KeyOf(attempt);
  const Heard heard{.newest_known = NewestKnown(key)};
  attempts_[key] = std::make_unique<KeptAttempt>(options_, std::move(record), heard, queue_);
}

// One that an agent of before has begun, for a coordinator that had a name already.
void Keeper::NameStore(const v1::DesiredAttempt& attempt) {
  const Key key = KeyOf(attempt);
  Key nameless = key;
  nameless.store.clear();
  const auto known = attempts_.find(nameless);
  if (key == nameless || known == attempts_.end() || attempts_.contains(key)) return;
  const std::string& run_folder = known->second->desired().launch().run_folder();
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
  std::vector<Key> learned;
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    NameStore(attempt);
    const Key key = KeyOf(attempt);
    wanted_.insert(key);
    if (attempts_.count(key) > 0) continue;
    Learn(attempt);
    learned.push_back(key);
  }
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    const Key key = KeyOf(attempt);
    if (IsOutdated(key)) continue;
    attempts_[key]->SetDesiredState(attempt.desired_state(), attempt.grace_seconds());
  }
  for (auto& [key, attempt] : attempts_) {
    if (IsOutdated(key) || wanted_.count(key) == 0) attempt->SetDesiredState(v1::ATTEMPT_KILL, 0);
  }
  if (learned.empty()) return;
  // They are recorded, and start with the next Poll.
  turns_->BeginRound();
  for (const Key& key : learned) attempts_.at(key)->BeginTurn(*turns_, /*may_start=*/false);
  turns_->AwaitRound();
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

void Keeper::StepsSaid(const std::vector<StepNews>& steps) {
  for (const StepNews& news : steps) {
    const auto known = attempts_.find({news.store, news.job_id, news.attempt});
    if (known != attempts_.end()) known->second->Stepped(news);
  }
}

// Ranks that end with us run for nobody else.
void Keeper::LookAtClaims() {
  if (options_->ranks_end_with_us) return;
  for (auto& [key, attempt] : attempts_) {
    if (attempt->ended()) continue;
    const ClaimNews news = claims_.Of(attempt->desired().launch().run_folder(), key.attempt);
    attempt->lifeline().Seen(news.sight, news.asked_ns);
  }
  claims_.DropOthers();
}

// Those that may start only when an older one of their job has ended come after it.
void Keeper::TakeTurns() {
  turns_->BeginRound();
  std::set<Key> later;
  for (auto& [key, attempt] : attempts_) {
    if (OlderLives(key)) {
      later.insert(key);
    } else {
      attempt->BeginTurn(*turns_, told_);
    }
  }
  turns_->AwaitRound();
  for (auto& [key, attempt] : attempts_) attempt->Collect();
  if (later.empty()) return;
  for (const Key& key : later) attempts_.at(key)->BeginTurn(*turns_, told_ && !OlderLives(key));
  turns_->AwaitRound();
  for (const Key& key : later) attempts_.at(key)->Collect();
}

v1::NodeReport Keeper::Poll() {
  v1::NodeReport report;
  report.set_revision(revision_);
  LookAtClaims();
  for (auto& [key, attempt] : attempts_) {
    attempt->Collect();
    attempt->Judge(*turns_);
  }
  TakeTurns();
  for (auto known = attempts_.begin(); known != attempts_.end();) {
    auto& [key, attempt] = *known;
    *report.add_attempts() = attempt->Report(*turns_);
    const bool forget = told_ && attempt->at_rest() && wanted_.count(key) == 0;
    if (forget) RemoveRecord(options_->state_folder, attempt->record());
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
    *attempt.mutable_allocation() = known->second->desired().launch().allocation();
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
