// The power goes at every moment of what a keeper and its guard write down: records are whole, and
// what they have promised is so.
#include "coordinator/keeper/keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/launch.h"
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

v1::DesiredAttempt Desired(const std::string& root, uint32_t number) {
  v1::DesiredAttempt desired;
  desired.set_job_id(7);
  desired.set_attempt(number);
  desired.set_desired_state(v1::ATTEMPT_RUN);
  desired.mutable_launch()->set_run_folder(root + "/runs/7");
  v1::NodeAllocation& place = *desired.mutable_launch()->add_allocation();
  place.set_node("here");
  place.set_ranks(1);
  return desired;
}

std::string Name(uint32_t attempt, const char* what) {
  return std::to_string(attempt) + " " + what;
}

// A guard that is no process: attempt 1 is claimed in Start and ends when it is told to, and of
// attempt 2 the program is missing.
class FakeLaunch : public Launch {
 public:
  FakeLaunch(const AttemptRecord& record, const AttemptFolder& folder, const bool* ended)
      : attempt_(record.desired.attempt()), folder_(folder), ended_(ended) {}
  FakeLaunch(const FakeLaunch&) = delete;
  ~FakeLaunch() override {
    if (fd_ >= 0) close(fd_);
  }

  Seen Look(int64_t) override {
    Seen seen = folder_.Look();
    if (seen.sight != Sight::kLive || !*ended_) return seen;
    if (!told_) verdict_->Write(3);
    if (!told_) Mark(Name(attempt_, "exited"));
    told_ = true;
    seen.sight = Sight::kExited;
    seen.exit_code = 3;
    return seen;
  }
  bool Ready() override { return true; }
  absl::Status Start(const std::function<bool()>&) override {
    // From here on ranks may run.
    Mark(Name(attempt_, "launched"));
    if (attempt_ == 2) return absl::InvalidArgumentError("no such program");
    fd_ = open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    verdict_.emplace(fd_);
    if (launcher::ClaimFolder(fd_) != 0) return absl::InternalError("not claimed");
    Mark(Name(attempt_, "claimed"));
    return absl::OkStatus();
  }
  void AskToStop(int64_t) override {}
  void Kill(int64_t) override {}
  absl::Status Seal() override {
    const absl::Status sealed = folder_.Seal();
    if (sealed.ok()) Mark(Name(attempt_, "sealed"));
    return sealed;
  }
  bool SweptClean() override { return true; }
  bool RunnerGone() override { return true; }
  void CleanUp() override {}

 private:
  const uint32_t attempt_;
  const AttemptFolder& folder_;
  const bool* ended_;
  bool told_ = false;
  int fd_ = -1;
  std::optional<launcher::ExitFile> verdict_;
};

// A keeper starts attempt 1, which runs to its end, cannot start attempt 2, and forgets both.
std::vector<Call> RecordLife() {
  const power_loss::EmptyFolder folder;
  return power_loss::Record(folder.path(), [&] {
    std::filesystem::create_directories(folder.path() + "/runs/7");
    bool first_ended = false;
    KeeperOptions options;
    options.node = "here";
    options.state_folder = folder.path() + "/state";
    options.turn_wait = std::chrono::seconds(30);
    options.make_launch = [&](const AttemptRecord& record, const AttemptFolder& at) {
      return std::make_unique<FakeLaunch>(record, at, &first_ended);
    };
    const auto keeper = Keeper::Open(options);
    REQUIRE(keeper.ok());
    v1::DesiredAttempts desired;
    *desired.add_attempts() = Desired(folder.path(), 1);
    (*keeper)->SetDesired(desired);
    Mark("1 told");
    (*keeper)->Poll();
    first_ended = true;
    v1::NodeReport report = (*keeper)->Poll();
    REQUIRE(report.attempts_size() == 1);
    REQUIRE(report.attempts(0).phase() == v1::ATTEMPT_ENDED);
    REQUIRE(report.attempts(0).exit_code() == 3);
    *desired.add_attempts() = Desired(folder.path(), 2);
    (*keeper)->SetDesired(desired);
    Mark("2 told");
    report = (*keeper)->Poll();
    REQUIRE(report.attempts_size() == 2);
    REQUIRE(report.attempts(1).phase() == v1::ATTEMPT_ENDED);
    Mark("2 noted");
    Mark("removing");
    (*keeper)->SetDesired({});
    (*keeper)->Poll();
    REQUIRE((*keeper)->Poll().attempts_size() == 0);
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
    // Else it would be started anew beside its own ranks.
    if (said("1 launched") && !found[1]->begun) return "attempt 1 runs and has not begun";
    if (said("2 told") && found[2] == nullptr) return "attempt 2 is forgotten";
    if (said("2 launched") && !found[2]->begun) return "attempt 2 may run and has not begun";
    if (said("2 noted") && found[2]->never_started.empty()) return "the reason is forgotten";
  }
  // The folders have moved with the disk.
  const AttemptFolder first(Desired(loss.folder, 1)), second(Desired(loss.folder, 2));
  const Sight sight = first.Look().sight;
  if (found[2] != nullptr && !found[2]->never_started.empty() &&
      second.Look().sight != Sight::kSealed) {
    return "a reason before the seal";
  }
  if (said("1 launched") && !first.Exists()) return "the folder of attempt 1 is gone";
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
