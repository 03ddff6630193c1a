// The power goes at every moment of what a keeper and its guard write down: records are whole, and
// what they have promised is so.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/launcher/guard_files.h"
#include "tests/power_loss/empty_folder.h"
#include "tests/power_loss/lost_power.h"

namespace trireme::keeper {
namespace {

using power_loss::AfterEachLoss;
using power_loss::Call;
using power_loss::Loss;
using power_loss::LossOptions;
using power_loss::Mark;

AttemptRecord RecordOf(const std::string& root, uint32_t number) {
  AttemptRecord record;
  record.desired.set_job_id(7);
  record.desired.set_attempt(number);
  record.desired.mutable_launch()->set_run_folder(root + "/runs/7");
  record.boot_id = "boot";
  return record;
}

// Attempt 1 runs to its end, attempt 2 is sealed before it starts, and both are forgotten: what the
// keeper (coordinator/keeper/README.md) and a guard do, in their order.
std::vector<Call> RecordLife() {
  const power_loss::EmptyFolder folder;
  return power_loss::Record(folder.path(), [&] {
    const std::string state = folder.path() + "/state";
    REQUIRE(LoadRecords(state).ok());
    std::filesystem::create_directories(folder.path() + "/runs/7");
    AttemptRecord first = RecordOf(folder.path(), 1), second = RecordOf(folder.path(), 2);
    REQUIRE(SaveRecord(state, first).ok());
    Mark("1 told");
    const AttemptFolder attempt(first.desired);
    REQUIRE(attempt.Make().ok());
    first.begun = true;
    REQUIRE(SaveRecord(state, first).ok());
    Mark("1 begun");
    const int fd = open(attempt.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const launcher::ExitFile verdict(fd);
    REQUIRE(launcher::ClaimFolder(fd) == 0);
    Mark("1 claimed");
    verdict.Write(3);
    Mark("1 exited");
    close(fd);
    REQUIRE(SaveRecord(state, second).ok());
    Mark("2 told");
    const AttemptFolder sealed(second.desired);
    REQUIRE(sealed.Make().ok());
    REQUIRE(sealed.Seal().ok());
    Mark("2 sealed");
    second.never_started = "its start was cut off";
    REQUIRE(SaveRecord(state, second).ok());
    Mark("2 noted");
    Mark("removing");
    RemoveRecord(state, first);
    RemoveRecord(state, second);
  });
}

std::string Fault(const Loss& loss) {
  const auto said = [&](const char* mark) { return loss.marks.count(mark) != 0; };
  const auto records = LoadRecords(loss.folder + "/state");
  if (!records.ok()) return records.status().ToString();
  const AttemptRecord* found[3] = {};
  for (const AttemptRecord& record : *records) found[record.desired.attempt()] = &record;
  if (!said("removing")) {
    if (said("1 told") && found[1] == nullptr) return "attempt 1 is forgotten";
    if (said("1 begun") && !found[1]->begun) return "attempt 1 has not begun any more";
    if (said("2 told") && found[2] == nullptr) return "attempt 2 is forgotten";
    if (said("2 noted") && found[2]->never_started.empty()) return "the reason is forgotten";
  }
  // The folders have moved with the disk.
  const AttemptFolder first(RecordOf(loss.folder, 1).desired);
  const AttemptFolder second(RecordOf(loss.folder, 2).desired);
  const Sight sight = first.Look().sight;
  if (said("1 begun") && !first.Exists()) return "the folder of attempt 1 is gone";
  if (sight == Sight::kSealed) return "a claim without a word is a seal";
  if (said("1 claimed") && sight == Sight::kNothing) return "the claim is gone";
  if (first.IsOver() && !said("1 claimed")) return "a verdict before the claim";
  if (said("1 exited") && !first.IsOver()) return "the verdict is gone";
  if (said("2 sealed") && second.Look().sight != Sight::kSealed) return "the seal is gone";
  return "";
}

std::string FirstFault(const std::vector<Call>& log, const LossOptions& options = {}) {
  std::string fault;
  AfterEachLoss(log, options, [&](const Loss& loss) {
    fault = Fault(loss);
    if (!fault.empty()) fault += ", after " + std::to_string(loss.calls) + " calls, " + loss.how;
    return fault.empty();
  });
  return fault;
}

TEST_CASE("power loss: a keeper's records and a guard's files are as promised") {
  const auto log = RecordLife();
  CHECK(log.size() > 40);
  CHECK(FirstFault(log, {.random_disks = 20}) == "");
}

TEST_CASE("power loss: no kind of flush of a keeper and its guard can be left out") {
  const auto log = RecordLife();
  const auto without = [&](Call::Kind kind, std::string_view end) {
    LossOptions options;
    options.left_out = [=](const Call& call) {
      return call.kind == kind && call.path.ends_with(end);
    };
    return FirstFault(log, options);
  };
  using Kind = Call::Kind;
  CHECK(without(Kind::kSyncFile, "7-1.json.partial") != "");
  CHECK(without(Kind::kSyncFolder, "state/attempts") != "");
  CHECK(without(Kind::kSyncFolder, "state") != "");
  CHECK(without(Kind::kSyncFile, "exit.partial") != "");
  CHECK(without(Kind::kSyncFolder, "runs/7/attempts/1") != "");
  CHECK(without(Kind::kSyncFolder, "runs/7/attempts/2") != "");
  CHECK(without(Kind::kSyncFolder, "runs/7/attempts") != "");
  CHECK(without(Kind::kSyncFolder, "runs/7") != "");
  CHECK(without(Kind::kSyncFolder, "runs") != "");
}

}  // namespace
}  // namespace trireme::keeper
