// The power goes at every moment of a store's life: what was acknowledged is there, the one change
// that was under way is there whole or not at all, and the store opens.
#include "coordinator/job_store/job_store.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/coordinator/job_store/samples.h"
#include "tests/power_loss/empty_folder.h"
#include "tests/power_loss/lost_power.h"

namespace trireme::coordinator {
namespace {

using power_loss::AfterEachLoss;
using power_loss::Call;
using power_loss::Loss;
using power_loss::LossOptions;
using power_loss::Mark;

// Number n: job n with its request, job 1 brought up to n, three events.
Change NumberedChange(uint64_t n) {
  Change change;
  change.jobs = {SampleJob(n)};
  change.request_ids = {"request-" + std::to_string(n)};
  if (n > 1) {
    change.jobs.push_back(SampleJob(1));
    change.request_ids.emplace_back();
  }
  change.jobs.back().mutable_status()->set_checkpoint_step(n);
  for (int i = 0; i < 3; ++i) change.events.push_back(SampleEvent(n, std::to_string(i)));
  return change;
}

// A life of `changes` changes, in two sittings.
std::vector<Call> RecordLife(uint64_t changes) {
  const power_loss::EmptyFolder folder;
  return power_loss::Record(folder.path(), [&] {
    std::filesystem::create_directory(folder.path() + "/state");
    uint64_t n = 0;
    for (const uint64_t until : {changes / 2, changes}) {
      const auto store = JobStore::Open(folder.path() + "/state/jobs.db");
      if (!store.ok()) FAIL(store.status().ToString());
      Mark("opened");
      while (n < until) {
        Change change = NumberedChange(++n);
        REQUIRE((*store)->Commit(change).ok());
        Mark(std::to_string(n));
      }
    }
  });
}

std::string Fault(const Loss& loss) {
  const std::string path = loss.folder + "/state/jobs.db";
  if (loss.marks.count("opened") != 0 && !std::filesystem::exists(path)) return "it is gone";
  if (!std::filesystem::exists(loss.folder + "/state")) return "";
  uint64_t acknowledged = 0;
  for (const std::string& mark : loss.marks) {
    if (mark != "opened") acknowledged = std::max<uint64_t>(acknowledged, std::stoull(mark));
  }
  const auto store = JobStore::Open(path);
  if (!store.ok()) return store.status().ToString();
  const auto jobs = (*store)->Jobs();
  const auto events = (*store)->Events({0, 0, size_t{1} << 20});
  if (!jobs.ok() || !events.ok()) return "it cannot be read";
  const uint64_t count = jobs->size();
  if (count != acknowledged && count != acknowledged + 1) {
    return std::to_string(count) + " changes, " + std::to_string(acknowledged) + " acknowledged";
  }
  if (events->size() != 3 * count) return "events of another number of changes";
  if (count > 0 && jobs->front().status().checkpoint_step() != count) return "an older job 1";
  Change next = NumberedChange(count + 1);
  return (*store)->Commit(next).ok() ? "" : "it takes nothing more";
}

std::string FirstFault(const std::vector<Call>& log, const LossOptions& options) {
  std::string fault;
  AfterEachLoss(log, options, [&](const Loss& loss) {
    fault = Fault(loss);
    if (!fault.empty()) fault += ", after " + std::to_string(loss.calls) + " calls, " + loss.how;
    return fault.empty();
  });
  return fault;
}

TEST_CASE("power loss: a store keeps what it has acknowledged") {
  const auto log = RecordLife(6);
  CHECK(FirstFault(log, {.random_disks = 3}) == "");
}

TEST_CASE("power loss: a store that does not flush its log loses what it has acknowledged") {
  const auto log = RecordLife(4);
  const auto without = [&](Call::Kind kind, std::string_view end) {
    LossOptions options{.random_disks = 2};
    options.left_out = [=](const Call& call) {
      return call.kind == kind && call.path.ends_with(end);
    };
    return FirstFault(log, options);
  };
  // What PRAGMA synchronous = NORMAL and OFF leave out.
  CHECK(without(Call::Kind::kSyncFile, "jobs.db-wal") != "");
  CHECK(without(Call::Kind::kSyncFolder, "state") != "");
  CHECK(without(Call::Kind::kSyncFile, "") != "");
}

// After some hundred changes the log is written back into the file.
TEST_CASE("power loss: a store keeps its changes while its log is written back") {
  const auto log = RecordLife(300);
  // The calls around the first flush of the file itself after the log has grown.
  const auto flushed = std::find_if(log.begin() + 300, log.end(), [](const Call& call) {
    return call.kind == Call::Kind::kSyncFile && call.path.ends_with("jobs.db");
  });
  REQUIRE(log.end() - flushed > 20);
  const std::vector<Call> part(log.begin(), flushed + 20);
  const size_t begin = part.size() - 60;
  CHECK(FirstFault(part, {.random_disks = 2, .from = begin}) == "");
}

// A backup of six changes, while the store goes on.
std::vector<Call> RecordBackup() {
  const power_loss::EmptyFolder folder;
  return power_loss::Record(folder.path(), [&] {
    std::filesystem::create_directory(folder.path() + "/state");
    std::filesystem::create_directory(folder.path() + "/backups");
    const auto store = JobStore::Open(folder.path() + "/state/jobs.db");
    if (!store.ok()) FAIL(store.status().ToString());
    for (uint64_t n = 1; n <= 6; ++n) {
      Change change = NumberedChange(n);
      REQUIRE((*store)->Commit(change).ok());
    }
    Mark("begun");
    const auto report = (*store)->Backup(folder.path() + "/backups/copy.db",
                                         [](uint64_t, uint64_t) { return absl::OkStatus(); });
    if (!report.ok()) FAIL(report.status().ToString());
    Mark("backed up");
    Change change = NumberedChange(7);
    REQUIRE((*store)->Commit(change).ok());
  });
}

std::string BackupFault(const Loss& loss) {
  const std::string path = loss.folder + "/backups/copy.db";
  if (!std::filesystem::exists(path)) return loss.marks.count("backed up") != 0 ? "it is gone" : "";
  const auto backup = JobStore::Open(path);
  if (!backup.ok()) return backup.status().ToString();
  const auto jobs = (*backup)->Jobs();
  return jobs.ok() && jobs->size() == 6 ? "" : "it is not what was backed up";
}

// Only from the backup on: what is before it is the store's own affair.
std::string FirstBackupFault(const std::vector<Call>& log, LossOptions options) {
  const auto begun = std::find_if(log.begin(), log.end(), [](const Call& call) {
    return call.kind == Call::Kind::kMark && call.path == "begun";
  });
  options.from = static_cast<size_t>(begun - log.begin());
  std::string fault;
  AfterEachLoss(log, options, [&](const Loss& loss) {
    fault = BackupFault(loss);
    if (!fault.empty()) fault += ", after " + std::to_string(loss.calls) + " calls, " + loss.how;
    return fault.empty();
  });
  return fault;
}

TEST_CASE("power loss: a backup is whole or absent, and there once it was told") {
  const auto log = RecordBackup();
  CHECK(FirstBackupFault(log, {.random_disks = 3}) == "");
  const auto without = [&](Call::Kind kind) {
    LossOptions options{.random_disks = 2};
    options.left_out = [kind](const Call& call) { return call.kind == kind; };
    return FirstBackupFault(log, options);
  };
  CHECK(without(Call::Kind::kSyncFile) != "");
  CHECK(without(Call::Kind::kSyncFolder) != "");
}

}  // namespace
}  // namespace trireme::coordinator
