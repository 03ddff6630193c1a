// A run by the rules of the daemon in one process: started once, stopped in order, restarted from
// its own checkpoints only, given up after too many failures, and leaving nothing.
#include "coordinator/local_run/local_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "coordinator/keeper/attempt_end.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/file_lock.h"
#include "runtime/base/own_program.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

using keeper::KeeperBench;

constexpr std::chrono::seconds kLimit(60);

const std::string kUntilEnd = "while [ ! -e $run/end ]; do sleep 0.01; done\n";
// Obeys a stop as a worker does.
const std::string kObedient = "trap 'exit 75' USR1\necho up >> $run/up\n" + kUntilEnd;
const std::string kStubborn = "trap '' USR1 TERM HUP INT\necho up >> $run/up\n" + kUntilEnd;
// Says in $run/began where it was to begin: a folder, auto, or nothing.
const std::string kTellsBegin =
    "from=start\nwhile [ $# -gt 0 ]; do [ $1 = --resume ] && from=$2; shift; done\n"
    "echo $from >> $run/began\n";

// A checkpoint of this attempt, in the way of a worker: noted, then there.
const std::string kSaves =
    "save() {\n  echo $1 >> $run/attempts/$attempt/recorder/saves\n"
    "  mkdir -p $run/elsewhere/$1\n  : > $run/elsewhere/$1/manifest.json\n}\n";

class Bench {
 public:
  explicit Bench(const std::string& script) : ranks(script) {
    ranks.job_id = 1;
    options.job.set_name("local");
    options.run_folder = ranks.run;
    options.worker = ranks.options.worker;
    options.retry.first_delay = std::chrono::milliseconds(20);
    options.retry.max_failures = 3;
  }
  void Start() {
    auto started = LocalRun::Start(options);
    REQUIRE(started.ok());
    run = std::move(*started);
  }
  // Turns until `done`.
  void Await(const std::function<bool()>& done) const {
    const auto limit = std::chrono::steady_clock::now() + kLimit;
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < limit);
      REQUIRE(run->Turn().ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  v1::JobStatus AwaitOver() const {
    Await([this] { return run->Over(); });
    return run->job().status();
  }
  void AwaitUp(int times = 1) const {
    Await([this, times] { return ranks.Lines("up") == times; });
  }
  std::string Said(const std::string& name) const { return keeper::Slurp(ranks.run + "/" + name); }

  KeeperBench ranks;
  LocalRunOptions options;
  std::unique_ptr<LocalRun> run;
};

TEST_CASE("a local run goes to its end and leaves links to its newest attempt") {
  Bench bench("echo here; exit 0\n");
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_COMPLETED);
  CHECK(status.attempt() == 1);
  bench.run->Close();
  CHECK(fs::read_symlink(bench.ranks.run + "/logs") == "attempts/1/logs");
  CHECK(bench.Said("logs/rank-0.log") == "here\n");
  CHECK(fs::is_directory(bench.ranks.run + "/recorder"));
  bench.ranks.CheckNothingLeft(1);
  CHECK(fs::is_empty(bench.ranks.run + "/attempts/keeper/attempts"));
  int launched = 0;
  for (const v1::Event& event : bench.run->TakeEvents()) {
    launched += event.has_state_changed() && event.state_changed().to() == v1::JOB_LAUNCHING;
  }
  CHECK(launched == 1);
  CHECK(bench.run->TakeEvents().empty());
}

TEST_CASE("progress of rank 0 is told") {
  Bench bench("");
  bench.options.worker = base::ProgramBesideUs("keeper_rank");
  bench.Start();
  bench.Await([&] { return bench.run->job().status().state() == v1::JOB_RUNNING; });
  CHECK(bench.run->job().progress().steps_done() == 2);
  bench.ranks.Touch("end");
  CHECK(bench.AwaitOver().state() == v1::JOB_COMPLETED);
  CHECK(bench.run->job().progress().steps_total() == 10);
}

TEST_CASE("a stop ends in order with 75 and a second process goes on counting") {
  Bench bench(kTellsBegin + kObedient);
  bench.Start();
  bench.AwaitUp();
  REQUIRE(bench.run->Stop(60).ok());
  const v1::JobStatus stopped = bench.AwaitOver();
  CHECK(stopped.state() == v1::JOB_PAUSED);
  CHECK(stopped.exit_code() == base::kCheckpointed);
  bench.run->Close();
  bench.run.reset();
  bench.options.resume = "/there/step-00000004";
  bench.Start();
  bench.AwaitUp(2);
  CHECK(bench.run->job().status().attempt() == 2);
  REQUIRE(bench.run->Stop(60).ok());
  CHECK(bench.AwaitOver().exit_code() == base::kCheckpointed);
  CHECK(bench.Said("began") == "start\n/there/step-00000004\n");
  CHECK(fs::read_symlink(bench.ranks.run + "/logs") == "attempts/2/logs");
}

TEST_CASE("ranks that do not stop are killed by a second request or after the grace") {
  for (const bool twice : {true, false}) {
    Bench bench(kStubborn);
    bench.Start();
    bench.AwaitUp();
    REQUIRE(bench.run->Stop(twice ? 600 : 0.2).ok());
    if (twice) {
      REQUIRE(bench.run->Turn().ok());
      REQUIRE(bench.run->Kill().ok());
    }
    const v1::JobStatus status = bench.AwaitOver();
    CHECK(status.state() == (twice ? v1::JOB_CANCELLED : v1::JOB_PAUSED));
    CHECK(status.failure().headline() == keeper::kKilledAsAsked);
    bench.run->Close();
    bench.ranks.CheckNothingLeft(1);
  }
}

TEST_CASE("ranks that somebody else has stopped are not started again") {
  Bench bench("exit 75\n");
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_PAUSED);
  CHECK(status.exit_code() == base::kCheckpointed);
  CHECK_FALSE(fs::exists(bench.ranks.Folder(2)));
}

TEST_CASE("a failure is followed by another attempt and too many are the end") {
  Bench bench(kTellsBegin + "exit 4\n");
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_FAILED);
  CHECK(status.failures() == 3);
  CHECK(status.exit_code() == 4);
  CHECK(bench.Said("began") == "start\nstart\nstart\n");
  bench.run->Close();
  bench.ranks.CheckNothingLeft(3);
}

TEST_CASE("the job's own limit of failures counts") {
  Bench bench("echo up >> $run/up; exit 4\n");
  bench.options.job.mutable_resources()->set_max_failures(1);
  bench.Start();
  CHECK(bench.AwaitOver().state() == v1::JOB_FAILED);
  CHECK(bench.ranks.Lines("up") == 1);
}

TEST_CASE("a run that reaches its time limit is asked to stop and has then failed") {
  Bench bench(kObedient);
  bench.options.job.mutable_resources()->set_time_limit_seconds(1);
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_FAILED);
  CHECK(status.exit_code() == base::kJobFailed);
  CHECK(status.attempt() == 1);
  CHECK(status.failure().headline() == "reached its time limit of 1 s");
}

TEST_CASE("bad input and a job that does not fit end at once") {
  for (const int code : {base::kBadInput, base::kDoesNotFit}) {
    Bench bench(fmt::format("echo up >> $run/up; exit {}\n", code));
    bench.Start();
    const v1::JobStatus status = bench.AwaitOver();
    CHECK(status.state() == v1::JOB_FAILED);
    CHECK(status.exit_code() == code);
    CHECK(bench.ranks.Lines("up") == 1);
  }
}

TEST_CASE("a run for whose snapshots there is no room ends at once, as one that does not fit") {
  Bench bench(fmt::format("echo up >> $run/up; exit {}\n", int{base::kNoRoomHere}));
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_FAILED);
  CHECK(status.exit_code() == base::kDoesNotFit);
  CHECK(bench.ranks.Lines("up") == 1);
}

TEST_CASE("until a run has a checkpoint of its own it begins where it was told to") {
  // In a folder that holds another's. The second attempt saves one, the fourth ends well. It is of
  // a later step, or, where that other was damaged, of an earlier one or the same.
  for (const auto& [given, own] :
       {std::pair("", 8), std::pair("/there/step-00000002", 8), std::pair("", 3),
        std::pair("/there/step-00000002", 3), std::pair("/there/step-00000002", 5)}) {
    Bench bench(
        kTellsBegin + kSaves +
        fmt::format("[ $attempt = 2 ] && save step-{:08d}\n[ $attempt = 4 ] || exit 4\n", own));
    const std::string elsewhere = bench.ranks.run + "/elsewhere";
    bench.options.job.mutable_checkpoint()->set_directory(elsewhere);
    bench.options.resume = given;
    fs::create_directories(elsewhere + "/step-00000005");
    std::ofstream(elsewhere + "/step-00000005/manifest.json") << "{}";
    bench.Start();
    const v1::JobStatus status = bench.AwaitOver();
    CHECK(status.state() == v1::JOB_COMPLETED);
    const std::string first = std::string(*given == '\0' ? "start" : given) + "\n";
    CHECK(bench.Said("began") == first + first + "auto\nauto\n");
  }
}

TEST_CASE("a run that goes back behind damage and saves again is not given up") {
  // Each attempt saves one before those that were there, and dies.
  Bench bench(kTellsBegin + kSaves +
              "[ $attempt = 5 ] && exit 0\nsave step-0000000$attempt\nexit 4\n");
  const std::string elsewhere = bench.ranks.run + "/elsewhere";
  bench.options.job.mutable_checkpoint()->set_directory(elsewhere);
  bench.options.job.mutable_resources()->set_max_failures(2);
  bench.options.resume = "auto";
  fs::create_directories(elsewhere + "/step-00000090");
  std::ofstream(elsewhere + "/step-00000090/manifest.json") << "damaged";
  bench.Start();
  CHECK(bench.AwaitOver().state() == v1::JOB_COMPLETED);
  CHECK(bench.run->job().status().attempt() == 5);
  CHECK(bench.run->job().status().checkpoint_step() == 4);
}

TEST_CASE("a run whose saves are spoilt each time is given up") {
  Bench bench(kTellsBegin + kSaves + "save step-00000007\nexit 4\n");
  bench.options.job.mutable_checkpoint()->set_directory(bench.ranks.run + "/elsewhere");
  bench.options.job.mutable_resources()->set_max_failures(2);
  bench.options.retry.setbacks = 2;
  bench.options.resume = "auto";
  bench.Start();
  CHECK(bench.AwaitOver().state() == v1::JOB_FAILED);
  CHECK(bench.run->job().status().attempt() == 5);
  CHECK(bench.run->job().status().failures() == 1);
}

TEST_CASE("a folder that another process keeps is no fault of the run") {
  Bench bench("exit 0\n");
  const std::string folder = bench.ranks.run + "/attempts/keeper";
  fs::create_directories(folder);
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool locked = base::LockFile(folder + "/lock").ok();
    (void)!write(ready[1], "x", locked ? 1 : 0);
    close(ready[1]);
    while (true) pause();
  }
  close(ready[1]);
  char byte = 0;
  CHECK(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  const absl::Status refused = LocalRun::Start(bench.options).status();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(base::ExitCodeOf(refused) == base::kJobFailed);
  CHECK(refused.ToString().find(folder) != std::string::npos);
  bench.Start();
  CHECK(bench.AwaitOver().state() == v1::JOB_COMPLETED);
}

TEST_CASE("what an earlier process has left running is ended before anything starts") {
  Bench bench(
      "[ $attempt = 1 ] && { trap '' TERM USR1 HUP; echo $$ > $run/first; echo up >> $run/up; "
      "sleep 300; }\n[ -e /proc/$(cat $run/first) ] && echo overlap >> $run/overlap; exit 0\n");
  bench.Start();
  bench.AwaitUp();
  const launcher::ProcessIdentity guard = bench.ranks.Guard(1);
  // As after a kill -9, but with a guard that has not heard of it.
  bench.run.reset();
  CHECK(launcher::IsAlive(guard));
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.state() == v1::JOB_COMPLETED);
  CHECK(status.attempt() == 2);
  CHECK(bench.ranks.Lines("overlap") == 0);
  CHECK_FALSE(launcher::IsAlive(guard));
  bench.run->Close();
  bench.ranks.CheckNothingLeft(1);
  bench.ranks.CheckNothingLeft(2);
}

TEST_CASE("a worker that cannot be run is named") {
  Bench bench("");
  bench.options.worker = "/nonexistent/trireme-worker";
  bench.Start();
  const v1::JobStatus status = bench.AwaitOver();
  CHECK(status.exit_code() == base::kBadInput);
  CHECK(status.failure().headline().find("/nonexistent/trireme-worker") != std::string::npos);
}

TEST_CASE("a folder with logs of its own keeps them beside the links") {
  Bench bench("exit 0\n");
  fs::create_directories(bench.ranks.run + "/logs");
  std::ofstream(bench.ranks.run + "/logs/rank-0.log") << "old\n";
  bench.Start();
  CHECK(bench.AwaitOver().state() == v1::JOB_COMPLETED);
  CHECK(fs::is_symlink(bench.ranks.run + "/logs"));
  CHECK(bench.Said("logs.before/rank-0.log") == "old\n");
}

TEST_CASE("close kills what still runs") {
  Bench bench(kStubborn);
  bench.Start();
  bench.AwaitUp();
  bench.run->Close();
  CHECK(bench.run->job().status().state() == v1::JOB_CANCELLED);
  bench.ranks.CheckNothingLeft(1);
}

}  // namespace
}  // namespace trireme::coordinator
