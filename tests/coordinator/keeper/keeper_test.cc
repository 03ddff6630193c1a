// What a keeper starts, it starts once; what ends, it hears of, also of what ended while no keeper
// lived; of what has ended nothing is left.
#include "coordinator/keeper/keeper.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "coordinator/keeper/launch.h"
#include "runtime/base/exit_code.h"
#include "runtime/recorder/save_log.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

const std::string kUntilEnd = "while [ ! -e $run/end ]; do sleep 0.01; done\n";
// Obeys a stop as a worker does.
const std::string kObedient = "trap 'exit 75' USR1\necho up >> $run/up\n" + kUntilEnd;
// Obeys nothing that can be disobeyed, and has a child in a session of its own.
const std::string kStubborn =
    "trap '' USR1 TERM HUP INT\nsetsid sh -c \"trap '' USR1 TERM HUP; sleep 300\" &\n"
    "echo up >> $run/up\n" +
    kUntilEnd;

void PutCheckpoint(const std::string& folder) {
  fs::create_directories(folder);
  std::ofstream(folder + "/manifest.json") << "{}";
}

TEST_CASE("an attempt runs to its end with its arguments and is told until it is forgotten") {
  KeeperBench bench(
      "for each in \"$@\"; do echo \"$each\" >> $run/arguments; done\n"
      "echo $OMP_NUM_THREADS; exit 0\n");
  // What was there before is not what the attempt has saved.
  PutCheckpoint(bench.run + "/checkpoints/step-00000012");
  const auto keeper = bench.Open();
  CHECK(keeper->Poll().attempts_size() == 0);
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK((end.launcher() && end.exit_code() == 0 && !end.has_failure()));
  CHECK(end.saved_step() == 0);
  CHECK(Slurp(bench.run + "/arguments") ==
        "own argument\n--job\n" + bench.run + "/job.yaml\n--run-dir\n" + bench.run +
            "\n--resume\nauto\n--recorder-dir\n" + bench.Folder(1) + "/recorder\n--plan\n" +
            bench.run + "/plan.pb\n--set\nruntime.threads=1\n--link\nunix:" +
            AttemptFolder(bench.Attempt(1)).link_socket() + "\n--job-id\n7\n--attempt\n1\n");
  CHECK(Slurp(bench.Folder(1) + "/logs/rank-0.log") == "1\n");
  bench.CheckNothingLeft(1);
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  v1::NodeReport report = keeper->Poll();
  CHECK(report.revision() == 42);
  REQUIRE(report.attempts_size() == 1);
  CHECK(report.attempts(0).phase() == v1::ATTEMPT_ENDED);
  CHECK(bench.HasRecord(1));
  keeper->SetDesired(bench.Desired({}));
  keeper->Poll();
  CHECK(keeper->Poll().attempts_size() == 0);
  CHECK_FALSE(bench.HasRecord(1));
  CHECK(fs::exists(bench.Folder(1) + "/exit"));
}

TEST_CASE("ranks begin where they are told") {
  for (const char* resume : {"", "auto", "/there/step-00000007", kResumeNone}) {
    KeeperBench bench("echo \"$@\" > $run/arguments; exit 0\n");
    const auto keeper = bench.Open();
    v1::DesiredAttempt attempt = bench.Attempt(1);
    attempt.mutable_launch()->set_resume(resume);
    keeper->SetDesired(bench.Desired({attempt}));
    CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
    const std::string arguments = Slurp(bench.run + "/arguments");
    const std::string text = resume;
    const bool none = text == kResumeNone;
    CHECK((arguments.find("--resume") == std::string::npos) == none);
    const std::string expected = " --resume " + (text.empty() ? "auto" : text) + " ";
    CHECK((arguments.find(expected) != std::string::npos) == !none);
  }
}

TEST_CASE("ranks are told which steps in memory they may go on at") {
  KeeperBench bench("echo \"$@\" > $run/arguments; exit 0\n");
  const auto keeper = bench.Open();
  v1::DesiredAttempt attempt = bench.Attempt(1);
  attempt.mutable_launch()->set_snapshots_since(3);
  attempt.mutable_launch()->set_snapshots_before(uint64_t{1} << 40);
  keeper->SetDesired(bench.Desired({attempt}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  const std::string arguments = Slurp(bench.run + "/arguments");
  CHECK(arguments.find(" --snapshots-since 3 --snapshots-before 1099511627776 ") !=
        std::string::npos);
}

TEST_CASE("ranks end with their keeper where that is asked") {
  KeeperBench bench(kStubborn);
  bench.options.ranks_end_with_us = true;
  const pid_t child = fork();
  if (child == 0) {
    auto keeper = Keeper::Open(bench.options);
    if (!keeper.ok()) _exit(1);
    (*keeper)->SetDesired(bench.Desired({bench.Attempt(1)}));
    while (true) {
      (*keeper)->Poll();
      usleep(5000);
    }
  }
  bench.AwaitFile("up", "up");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto keeper = bench.Open();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 128 + SIGKILL);
  CHECK(Slurp(bench.Folder(1) + "/exit").find("137") != std::string::npos);
  bench.CheckNothingLeft(1);
}

TEST_CASE("a full disk at the start of an attempt may have room for the next") {
  KeeperBench bench("exit 0\n");
  bench.options.ranks_end_with_us = true;
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  fs::create_symlink("/dev/full", bench.options.state_folder + "/attempts/7-1.json.partial");
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kJobFailed);
  CHECK_THAT(end.failure().headline(), Catch::Contains("is full"));
}

TEST_CASE("a checkpoint is told while the ranks run") {
  KeeperBench bench(kObedient);
  const auto keeper = bench.Open();
  // Of an attempt that was there before it, and is of no interest.
  PutCheckpoint(bench.run + "/checkpoints/step-00000040");
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  const std::string saves = recorder::SaveLogPath(bench.Folder(1) + "/recorder");
  for (const int step : {5, 10}) {
    const std::string name = fmt::format("step-{:08d}", step);
    REQUIRE(recorder::NoteSave(saves, name).ok());
    PutCheckpoint(bench.run + "/checkpoints/" + name);
    bench.Await(*keeper, 1, [&](const v1::AttemptReport& report) {
      CHECK(report.phase() != v1::ATTEMPT_ENDED);
      return report.saved_step() == static_cast<uint64_t>(step);
    });
  }
  // Begun, and never finished.
  REQUIRE(recorder::NoteSave(saves, "step-00000015").ok());
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP)}));
  CHECK(bench.AwaitEnd(*keeper, 1).saved_step() == 10);
}

TEST_CASE("saves that fail are told while the ranks run, until one is whole") {
  KeeperBench bench(kObedient);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  const std::string saves = recorder::SaveLogPath(bench.Folder(1) + "/recorder");
  const auto await = [&](uint64_t step, const std::string& why) {
    bench.Await(*keeper, 1, [&](const v1::AttemptReport& report) {
      return report.saved_step() == step && report.failure().headline() == why;
    });
  };
  REQUIRE(recorder::NoteFailedSave(saves, "step 5 was not written").ok());
  await(0, "step 5 was not written");
  REQUIRE(recorder::NoteSave(saves, "step-00000010").ok());
  PutCheckpoint(bench.run + "/checkpoints/step-00000010");
  await(10, "");
  // Named, and then not given its name.
  REQUIRE(recorder::NoteFailedSave(saves, "step 15 was not written").ok());
  REQUIRE(recorder::NoteSave(saves, "step-00000020").ok());
  await(10, "step 15 was not written");
  // A disk that shows nothing for a while says nothing of saves.
  std::filesystem::rename(saves, saves + "~");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // it looks each second
  await(10, "step 15 was not written");
  std::filesystem::rename(saves + "~", saves);
  std::ofstream(saves, std::ios::app) << "!of a rank: \xff\n";
  await(10, "of a rank: \xef\xbf\xbd");
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP)}));
  CHECK_FALSE(bench.AwaitEnd(*keeper, 1).has_failure());
}

TEST_CASE("what an attempt has saved is told whatever lies beside it") {
  // In the job's own folder, as an attempt saves that had to go back behind a damaged checkpoint;
  // the names are noted, the folder comes, and the power may go at any time.
  struct Case {
    const char* noted;
    uint64_t told;
  };
  for (const Case& each :
       {Case{"step-00000003\nstep-00000006\n", 6}, Case{"step-00000006\nstep-00000009\n", 6},
        Case{"step-00000006\nstep-0000000", 6}, Case{"step-00000009\n", 0}, Case{"\n\n", 0},
        Case{"step-\nstep-x\n../..\nstep-00000003", 0}, Case{"", 0}}) {
    INFO(each.noted);
    KeeperBench bench(
        fmt::format("printf '{}' > $run/attempts/1/recorder/saves\nexit 4\n", each.noted));
    for (const char* name : {"step-00000003", "step-00000006", "step-00000030"}) {
      PutCheckpoint(bench.root + "/elsewhere/" + name);
    }
    fs::create_directories(bench.root + "/elsewhere/step-00000009");  // without a manifest
    v1::DesiredAttempt attempt = bench.Attempt(1);
    attempt.mutable_launch()->mutable_job()->mutable_checkpoint()->set_directory(bench.root +
                                                                                 "/elsewhere");
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({attempt}));
    CHECK(bench.AwaitEnd(*keeper, 1).saved_step() == each.told);
  }
}

TEST_CASE("an exit code comes through with a failure") {
  KeeperBench bench("echo no such field; exit 2\n");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 2);
  CHECK(end.failure().exit_code() == 2);
  CHECK(end.failure().evidence().find("no such field") != std::string::npos);
}

TEST_CASE("what ranks write in other bytes than UTF-8 is told all the same") {
  KeeperBench bench("printf 'libfoo: d\\351faut\\n'; exit 4\n");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.failure().evidence().find("libfoo: d\xEF\xBF\xBD"
                                      "faut") != std::string::npos);
  std::string bytes;
  REQUIRE(end.SerializeToString(&bytes));
  CHECK(v1::AttemptReport().ParseFromString(bytes));
}

TEST_CASE("a stop is asked for once and answered by 75") {
  KeeperBench bench("trap 'echo heard >> $run/heard; touch $run/end' USR1\necho up >> $run/up\n" +
                    kUntilEnd + "exit 75\n");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  CHECK_FALSE(end.has_failure());
  bench.CheckNothingLeft(1);
}

TEST_CASE("who does not stop within the grace is killed with all it started") {
  KeeperBench bench(kStubborn);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP, 0.2)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 128 + SIGKILL);
  CHECK(end.failure().headline() == "killed as asked");
  bench.CheckNothingLeft(1);
}

TEST_CASE("what is not desired is killed and forgotten") {
  KeeperBench bench(kObedient);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  keeper->SetDesired(bench.Desired({}));
  bench.Await(*keeper, 1, [](const auto& report) { return report.attempt() == 0; });
  bench.CheckNothingLeft(1);
  CHECK_FALSE(bench.HasRecord(1));
}

TEST_CASE("a keeper that is opened again adopts what runs and hears its end") {
  KeeperBench bench(kObedient);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  }
  const launcher::ProcessIdentity guard = bench.Guard(1);
  const auto keeper = bench.Open();
  CHECK(keeper->Poll().attempts(0).phase() == v1::ATTEMPT_STARTING);
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(keeper->Poll().attempts(0).phase() == v1::ATTEMPT_STARTING);
  CHECK(launcher::IsAlive(guard));
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 75);
  CHECK(bench.Lines("up") == 1);
  bench.CheckNothingLeft(1);
}

TEST_CASE("an attempt that was refused has failed for the next keeper too") {
  KeeperBench bench(kObedient);
  fs::create_directories(bench.Folder(2));
  for (int opened = 0; opened < 2; ++opened) {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
    CHECK(end.exit_code() == 4);
    CHECK(end.failure().exit_code() == 4);
    CHECK(end.failure().headline().find("attempt 2 of the job is known") != std::string::npos);
  }
  CHECK(bench.Lines("up") == 0);
}

TEST_CASE("a grace goes on while no keeper lives and nobody asks anew") {
  KeeperBench bench(kStubborn);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
    keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP, 0.3)}));
    keeper->Poll();
  }
  const auto keeper = bench.Open();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 128 + SIGKILL);
  bench.CheckNothingLeft(1);
}

TEST_CASE("an end while no keeper lived is told by the next one") {
  KeeperBench bench(kObedient + "exit 3\n");
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  }
  bench.Touch("end");
  bench.AwaitFile("attempts/1/exit", "exit_code");
  const auto keeper = bench.Open();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 3);
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 3);
  CHECK(bench.Lines("up") == 1);
}

// Starts nothing: the keeper dies when it is about to.
class DyingLaunch final : public Launch {
 public:
  explicit DyingLaunch(const AttemptFolder& folder) : folder_(folder) {}
  Seen Look(int64_t) override { return folder_.Look(); }
  bool Ready() override { return true; }
  absl::Status Start(const std::function<bool()>&) override { _exit(raise(SIGKILL)); }
  void AskToStop(int64_t) override {}
  void Kill(int64_t) override {}
  absl::Status Seal() override { return folder_.Seal(); }
  bool SweptClean() override { return true; }
  bool RunnerGone() override { return true; }
  void CleanUp() override {}

 private:
  const AttemptFolder& folder_;
};

// A child whose keeper of attempt 1 polls until `act`, in the parent, has returned, and is killed.
void PollAndDie(const KeeperBench& bench, const KeeperOptions& options,
                const std::function<void(pid_t)>& act) {
  const pid_t child = fork();
  if (child == 0) {
    auto keeper = Keeper::Open(options);
    if (!keeper.ok()) _exit(1);
    (*keeper)->SetDesired(bench.Desired({bench.Attempt(1)}));
    while (true) {
      (*keeper)->Poll();
      usleep(200);
    }
  }
  act(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void CheckStartsOnce(const KeeperBench& bench) {
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  INFO(end.DebugString());
  CHECK(end.exit_code() == 0);
  CHECK(bench.Lines("counter") == 1);
  bench.CheckNothingLeft(1);
}

const std::string kCounts = "echo begun >> $run/counter; sleep 0.05; exit 0\n";

TEST_CASE("an agent killed when it was told, or was about to start, starts an attempt once") {
  for (const bool begins : {false, true}) {
    KeeperBench bench(kCounts);
    KeeperOptions dying = bench.options;
    dying.make_launch = [begins](const AttemptRecord&, const AttemptFolder& folder) {
      if (!begins) raise(SIGKILL);
      return std::make_unique<DyingLaunch>(folder);
    };
    for (int i = 0; i < 3; ++i) {
      PollAndDie(bench, dying, [](pid_t child) {
        siginfo_t ended{};
        CHECK(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
        CHECK(ended.si_status == SIGKILL);
      });
    }
    CHECK(fs::exists(bench.Folder(1)) == begins);
    CHECK(bench.Guard(1).pid <= 0);
    CheckStartsOnce(bench);
  }
}

TEST_CASE("an agent killed at any moment starts an attempt once and loses none") {
  std::mt19937 random(20);
  std::uniform_int_distribution<useconds_t> kills(1, 5), more_us(0, 3000);
  int after_claim = 0;
  for (int round = 0; round < 25; ++round) {
    KeeperBench bench(kCounts);
    // In the order in which they come to be.
    const std::string signs[] = {bench.root, bench.options.state_folder + "/attempts/7-1.json",
                                 bench.Folder(1), bench.Folder(1) + "/control",
                                 bench.Folder(1) + "/guard.json"};
    for (useconds_t i = kills(random); i > 0; --i) {
      const std::string& sign = signs[random() % 5];
      const useconds_t more = more_us(random);
      PollAndDie(bench, bench.options, [&](pid_t) {
        const AttemptFolder folder(bench.Attempt(1));
        for (int k = 0; k < 500'000 && !fs::exists(sign) && !folder.IsOver(); ++k) usleep(20);
        usleep(more);
      });
      if (bench.Guard(1).pid > 0) ++after_claim;
    }
    CAPTURE(round);
    CheckStartsOnce(bench);
  }
  CHECK(after_claim > 0);  // else it was no test
}

TEST_CASE("a guard killed leaves nothing once the end is told") {
  KeeperBench bench(kStubborn);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  CHECK(bench.Living().size() >= 2);
  REQUIRE(launcher::SendSignal(bench.Guard(1), SIGKILL));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 137);
  CHECK(end.failure().headline().find("the guard of the ranks vanished") == 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("a guard's pid that is another process's now is no guard and is not killed") {
  KeeperBench bench(kObedient);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  }
  const launcher::ProcessIdentity guard = bench.Guard(1);
  REQUIRE(launcher::SendSignal(guard, SIGKILL));
  // Starts are told apart by the clock's tick, 10 ms; pids come back later than that.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  std::ofstream(bench.Folder(1) + "/guard.json") << nlohmann::json{
      {"pid", other}, {"start_ticks", guard.start_ticks}, {"boot_id", guard.boot_id}};
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 137);
  CHECK(waitpid(other, nullptr, WNOHANG) == 0);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("an attempt older than one known is refused also when that one is forgotten") {
  KeeperBench bench("echo $attempt >> $run/begun\n" + kObedient);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(2)}));
  bench.Await(*keeper, 2, [&](const auto&) { return bench.Lines("up") == 1; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1), bench.Attempt(2)}));
  const v1::AttemptReport refused = bench.AwaitEnd(*keeper, 1);
  CHECK(refused.exit_code() != 0);
  CHECK(refused.failure().headline().find("attempt 2 of the job is known") != std::string::npos);
  CHECK(launcher::IsAlive(bench.Guard(2)));
  keeper->SetDesired(bench.Desired({}));
  bench.Await(*keeper, 2, [](const auto& report) { return report.attempt() == 0; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(bench.AwaitEnd(*keeper, 1).failure().headline().find("attempt 2") != std::string::npos);
  CHECK(Slurp(bench.run + "/begun") == "2\n");
}

TEST_CASE("a newer attempt starts when nothing is left of the older") {
  KeeperBench bench(
      "for file in $run/pid.*; do [ -e $file ] && kill -0 $(cat $file) 2>/dev/null && "
      "echo overlap >> $run/overlap; done\necho $$ > $run/pid.$attempt\n" +
      kStubborn);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1), bench.Attempt(2)}));
  bench.Await(*keeper, 2, [&](const auto&) { return bench.Lines("up") == 2; });
  CHECK(bench.Lines("overlap") == 0);
  CHECK_FALSE(launcher::IsAlive(bench.Guard(1)));
  bench.Touch("end");
  CHECK(bench.AwaitEnd(*keeper, 2).exit_code() == 0);
  bench.CheckNothingLeft(2);
}

TEST_CASE("what never began ends without a start") {
  KeeperBench bench("echo begun >> $run/counter\n");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 75);
  keeper->SetDesired(bench.Desired({bench.Attempt(2, v1::ATTEMPT_KILL)}));
  CHECK(bench.AwaitEnd(*keeper, 2).exit_code() == 137);
  keeper->SetDesired(bench.Desired({bench.Attempt(2)}));
  CHECK(bench.AwaitEnd(*keeper, 2).exit_code() == 137);
  // Somebody else's folder: nobody knows what ran there.
  fs::create_directories(bench.Folder(3));
  keeper->SetDesired(bench.Desired({bench.Attempt(3)}));
  CHECK(bench.AwaitEnd(*keeper, 3).failure().headline().find("was there before") !=
        std::string::npos);
  CHECK(bench.Lines("counter") == 0);
}

TEST_CASE("a start that cannot be says why and is not tried again") {
  KeeperBench bench("");
  bench.options.worker = "/nonexistent/trireme-worker";
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 4);  // on another node, or later, it may be
  CHECK(end.failure().headline().find("/nonexistent/trireme-worker") != std::string::npos);
  bench.CheckNothingLeft(1);
}

TEST_CASE("an attempt without a record is adopted while its guard lives") {
  KeeperBench bench(kObedient);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  }
  fs::remove_all(bench.options.state_folder);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(keeper->Poll().attempts(0).phase() == v1::ATTEMPT_STARTING);
  bench.Touch("end");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(bench.Lines("up") == 1);
}

TEST_CASE("a run folder removed from under its ranks ends them") {
  KeeperBench bench("trap '' USR1 TERM HUP\necho up >> $run/up\nsleep 300\n");
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  fs::remove_all(bench.Folder(1));
  keeper.reset();
  keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 137);
  CHECK(bench.Living().empty());
  CHECK(bench.Lines("up") == 1);
}

TEST_CASE("an attempt of before the machine's last start is not started") {
  KeeperBench bench("echo begun >> $run/counter\n");
  bench.Open()->SetDesired(bench.Desired({bench.Attempt(1)}));
  const std::string path = bench.options.state_folder + "/attempts/7-1.json";
  auto record = nlohmann::json::parse(Slurp(path));
  record["boot_id"] = "another";
  std::ofstream(path) << record;
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 137);
  CHECK(end.failure().headline().find("the machine was started anew") != std::string::npos);
  CHECK(bench.Lines("counter") == 0);
}

TEST_CASE("one keeper at a time has a state folder and a broken record is named") {
  KeeperBench bench("");
  auto keeper = bench.Open();
  const pid_t child = fork();
  if (child == 0) _exit(absl::IsAlreadyExists(Keeper::Open(bench.options).status()) ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  keeper.reset();
  std::ofstream(bench.options.state_folder + "/attempts/7-1.json") << "{\"version\": 1";
  const auto broken = Keeper::Open(bench.options);
  CHECK(broken.status().code() == absl::StatusCode::kDataLoss);
  CHECK(std::string(broken.status().message()).find("7-1.json") != std::string::npos);
}

}  // namespace
}  // namespace trireme::keeper
