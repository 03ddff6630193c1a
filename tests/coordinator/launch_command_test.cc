// Through the real mpirun with shell scripts as workers: ends of all kinds, and nothing left
// behind.
#include "coordinator/launcher/launch_command.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "coordinator/launcher/diagnosis.h"
#include "coordinator/launcher/join_attempt.h"
#include "coordinator/launcher/process_guard.h"
#include "coordinator/launcher/signal_latch.h"
#include "tests/coordinator/guard_folder.h"
#include "tests/temporary_folder.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// A script as worker in the folder of an attempt; every process of the launch carries a mark in its
// environment.
class Bench {
 public:
  explicit Bench(const std::string& script) : mark_("TRIREME_TEST_MARK=" + guard.path()) {
    options.worker = guard.path() + "/worker";
    // A shell cannot trap what it was born to ignore.
    std::ofstream(options.worker) << "#!/usr/bin/env -S --default-signal=USR1 /bin/sh\n"
                                     "rank=${OMPI_COMM_WORLD_RANK:-0}\n"
                                  << script;
    chmod(options.worker.c_str(), 0755);
    options.log_folder = guard.path() + "/logs";
    options.environment = {mark_};
    options.arguments = {"one", "two words"};
    for (const std::string& path : {options.log_folder, folders.session, folders.shared_memory}) {
      fs::create_directories(path);
    }
  }
  Bench(const Bench&) = delete;
  ~Bench() {
    for (const int pid : Living()) kill(pid, SIGKILL);
  }

  std::string Log(int rank) const {
    return Slurp(options.log_folder + "/rank-" + std::to_string(rank) + ".log");
  }
  absl::Status Start(bool ends_with_starter = false) const {
    auto command = CommandFor(options, folders);
    if (!command.ok()) return command.status();
    command->ends_with_starter = ends_with_starter;
    return StartGuarded(*command, guard.path());
  }
  int Run() const {
    REQUIRE(Start().ok());
    return guard.Exit();
  }
  // Waits until all ranks have written `text` to their logs.
  void AwaitLogs(const std::string& text) const {
    for (int rank = 0; rank < options.ranks; ++rank) {
      guard.Await("logs/rank-" + std::to_string(rank) + ".log", text);
    }
  }
  // Processes of this launch that live.
  std::set<int> Living() const {
    std::set<int> pids;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const int pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0) continue;
      if (Slurp("/proc/" + std::to_string(pid) + "/environ").find(mark_) != std::string::npos) {
        pids.insert(pid);
      }
    }
    return pids;
  }
  // The ranks were told of the temporary folders, and these are gone.
  void CheckNothingLeft() const {
    CHECK(Living().empty());
    for (const std::string& folder : {folders.session, folders.shared_memory}) {
      CAPTURE(folder);
      CHECK(Log(0).find("folder " + folder + "\n") != std::string::npos);
      CHECK_FALSE(fs::exists(folder));
    }
  }

  const GuardFolder guard;
  const TemporaryFolders folders{guard.path() + "/session", guard.path() + "/shared"};
  LaunchOptions options;

 private:
  const std::string mark_;
};

constexpr const char* kFolders =
    "echo folder $OMPI_MCA_orte_tmpdir_base; echo folder $OMPI_MCA_btl_vader_backing_directory\n"
    "[ -d \"$OMPI_MCA_btl_vader_backing_directory\" ] && touch "
    "$OMPI_MCA_btl_vader_backing_directory/left\n";
// Ranks that also leave a grandchild that ignores what can be ignored.
const std::string kSleeper = std::string(kFolders) + "(trap '' TERM INT USR1 HUP; sleep 300) &\n";
const std::string kLoop = "echo ready\nwhile true; do sleep 0.02; done\n";

// Rank 1 goes on once rank 0 has said its folders: mpirun may kill a rank that it has not yet
// begun.
constexpr const char* kRankOneLast =
    "[ $rank = 0 ] && : > \"$0.ready\"\n"
    "[ $rank = 1 ] && until [ -e \"$0.ready\" ]; do sleep 0.05; done\n";

TEST_CASE("arguments and logs and environment and exit code of a good run", "[mpi]") {
  Bench bench(std::string(kFolders) +
              "echo rank $rank of $OMPI_COMM_WORLD_SIZE \"$1|$2\" threads $OMP_NUM_THREADS\n");
  bench.options.ranks = 3;
  bench.options.threads = 2;
  CHECK(bench.Run() == 0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " of 3 one|two words threads 2\n";
    CHECK(bench.Log(rank).find(line) != std::string::npos);
  }
  bench.CheckNothingLeft();
}

TEST_CASE("a stop lets the ranks save and exit 75", "[mpi]") {
  // As the worker does: rank 0 brings the news when all have saved, since its exit ends the others.
  Bench bench(kSleeper +
              "save() { echo saved; touch \"$0.$rank\"; [ $rank = 0 ] || exit 0\n"
              "until [ -e \"$0.1\" ]; do sleep 0.01; done; exit 75; }\ntrap save USR1\n" +
              kLoop);
  bench.options.ranks = 2;
  REQUIRE(bench.Start().ok());
  bench.AwaitLogs("ready");
  CHECK_FALSE(bench.guard.HasExit());
  bench.guard.Ask(kGuardStop);
  CHECK(bench.guard.Exit() == 75);
  bench.AwaitLogs("saved");
  bench.CheckNothingLeft();
}

TEST_CASE("a stop reaches ranks that were not yet listening", "[mpi]") {
  Bench bench("");
  // What a rank has been started with must keep it alive until then.
  std::ofstream(bench.options.worker) << "#!/bin/sh\n"
                                      << kFolders
                                      << "echo ready; sleep 1; exec /usr/bin/perl -e '$SIG{USR1} = "
                                         "sub { exit 75 }; sleep 1 while 1'\n";
  bench.options.ranks = 1;
  REQUIRE(bench.Start().ok());
  bench.AwaitLogs("ready");
  bench.guard.Ask(kGuardStop);
  CHECK(bench.guard.Exit() == 75);
  bench.CheckNothingLeft();
}

TEST_CASE("ranks that obey nothing are killed with all they started", "[mpi]") {
  Bench bench(kSleeper + "trap 'echo heard' USR1\ntrap '' TERM INT\n" + kLoop);
  bench.options.ranks = 2;
  REQUIRE(bench.Start().ok());
  bench.AwaitLogs("ready");
  bench.guard.Ask(kGuardStop);
  bench.AwaitLogs("heard");
  bench.guard.Ask(kGuardKill);
  CHECK(bench.guard.Exit() > 0);
  bench.CheckNothingLeft();
}

TEST_CASE("a rank's exit code and a rank's death come through and are explained", "[mpi]") {
  Bench exits(std::string(kFolders) + kRankOneLast +
              "[ $rank = 1 ] && { echo usage: bad input; exit 2; }\nsleep 100\n");
  exits.options.ranks = 2;
  CHECK(exits.Run() == 2);
  const Diagnosis exited = Diagnose(exits.guard.path(), {2, false, false});
  // Open MPI 4.1 ends now and then before it has named the rank.
  CHECK((exited.rank == 1 || exited.rank == -1));
  std::string evidence;
  for (const std::string& line : exited.evidence) evidence += line + "\n";
  CHECK(evidence.find(": bad input") != std::string::npos);
  exits.CheckNothingLeft();

  Bench dies(std::string(kFolders) + kRankOneLast + "[ $rank = 1 ] && kill -9 $$\nsleep 100\n");
  dies.options.ranks = 3;
  CHECK(dies.Run() == 137);
  const Diagnosis diagnosis = Diagnose(dies.guard.path(), {137, false, false});
  // These ranks keep no recorder, so mpirun's word is all there is, and now and then it is silent.
  CHECK(((diagnosis.rank == 1 && diagnosis.signal == SIGKILL) || diagnosis.rank == -1));
  dies.CheckNothingLeft();
}

TEST_CASE("nothing survives the death of the starting process or of the guard", "[mpi]") {
  for (const bool kill_guard : {false, true}) {
    Bench bench(kSleeper + kLoop);
    bench.options.ranks = 2;
    const pid_t child = fork();
    if (child == 0) {
      if (!bench.Start(/*ends_with_starter=*/true).ok()) _exit(1);
      while (true) pause();
    }
    bench.AwaitLogs("ready");
    CHECK(bench.Living().size() >= 4);
    if (kill_guard) SendSignal(bench.guard.Guard(), SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // If the guard itself is killed, nobody adopts the two grandchildren and removes the folders (a
    // keeper does), but mpirun and the ranks must go.
    const size_t may_live = kill_guard ? 2 : 0;
    const auto done = [&] {
      return bench.Living().size() <= may_live && (kill_guard || bench.guard.HasExit());
    };
    for (int i = 0; i < 6000 && !done(); ++i) std::this_thread::sleep_for(milliseconds(10));
    CHECK(bench.Living().size() <= may_live);
    if (!kill_guard) bench.CheckNothingLeft();
  }
}

TEST_CASE("one rank runs without mpirun and more name the package") {
  Bench bench(std::string(kFolders) + "echo alone; exit 3\n");
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  LaunchOptions two = bench.options;
  two.ranks = 2;
  const absl::Status more = CommandFor(two, bench.folders).status();
  const absl::Status started = bench.Start();
  setenv("PATH", path.c_str(), 1);
  CHECK(more.code() == absl::StatusCode::kNotFound);
  CHECK(std::string(more.message()).find("openmpi-bin") != std::string::npos);
  REQUIRE(started.ok());
  CHECK(bench.guard.Exit() == 3);
  CHECK(bench.Log(0).find("alone") != std::string::npos);
  bench.CheckNothingLeft();
}

TEST_CASE("ranks of several hosts are told where to run and whose they are") {
  LaunchOptions options;
  options.worker = "/bin/true";
  options.ranks = 3;
  options.hosts = {{"n1", 2}, {"n2", 1}};
  options.log_folder = "/run/logs";
  options.environment = {"TRIREME_ATTEMPT=7-1"};
  std::string line;
  for (const auto& each : LaunchCommand(options, "/usr/bin/mpirun", {"/tmp/s", "/dev/shm/s"})) {
    line += each + " ";
  }
  CHECK(line.find("-n 3 ") != std::string::npos);
  CHECK(line.find("--host n1:2,n2:1 ") != std::string::npos);
  CHECK(line.find("--map-by slot ") != std::string::npos);
  CHECK(line.find("--mca oob_tcp_keepalive_time 2 ") != std::string::npos);
  CHECK(line.find("-x TRIREME_ATTEMPT ") != std::string::npos);
  options.hosts = {{"n1", 3}};
  for (const auto& each : LaunchCommand(options, "/usr/bin/mpirun", {"/tmp/s", "/dev/shm/s"})) {
    CHECK(each != "--host");  // no remote shell on one machine
  }
}

// What a remote shell makes of the words and a command after them.
std::string ShellSays(const std::string& words) {
  FILE* shell = popen((words + " -mca a b").c_str(), "r");
  REQUIRE(shell != nullptr);
  char text[1024] = {};
  const size_t got = fread(text, 1, sizeof text - 1, shell);
  pclose(shell);
  return std::string(text, got);
}

TEST_CASE("mpirun's daemon is started by what knows how to join, else as ever") {
  const tests::TemporaryFolder folder;
  // The daemon and the program say how they were called.
  const auto write = [&](const std::string& name, const std::string& script) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << script;
    chmod((folder / name).c_str(), 0755);
  };
  write("orted", "echo daemon \"$@\"\n");
  write("knows", "if [ \"$2\" = --offer ]; then echo \"$0 $1 $3\"; else echo joins \"$@\"; fi\n");
  write("old", "echo no such option >&2; exit 2\n");
  const std::string path = "PATH=" + folder.path() + ":$PATH; ";
  const auto words = [&](const std::string& name) {
    return path + JoiningLaunchAgent(folder / name, "/tmp/s");
  };
  CHECK(ShellSays(words("knows")) == "joins join-attempt /tmp/s orted -mca a b\n");
  CHECK(ShellSays(words("old")) == "daemon -mca a b\n");
  CHECK(ShellSays(words("absent")) == "daemon -mca a b\n");
  CHECK(JoiningLaunchAgent("/opt/my programs/trireme-agent", "/tmp/s").empty());
  CHECK(JoiningLaunchAgent("/opt/$x", "/tmp/s").empty());
}

TEST_CASE("mpirun is told of a daemon that joins where there are other hosts") {
  LaunchOptions options;
  options.worker = "/w";
  options.log_folder = "/logs";
  options.join_program = "/usr/bin/trireme-agent";
  unsetenv("SHELL");
  const auto agent = [&] {
    const auto argv = LaunchCommand(options, "/usr/bin/mpirun", {"/tmp/s", "/dev/shm/s"});
    const auto at = std::find(argv.begin(), argv.end(), "orte_launch_agent");
    return at == argv.end() ? "" : *(at + 1);
  };
  CHECK(agent().empty());
  options.ranks = 2;
  options.hosts = {{"a", 1}, {"b", 1}};
  CHECK(agent() == "`/usr/bin/trireme-agent join-attempt --offer /tmp/s 2>/dev/null` orted");
  setenv("OMPI_MCA_orte_launch_agent", "mine", 1);
  CHECK(agent().empty());
  unsetenv("OMPI_MCA_orte_launch_agent");
  // A shell that takes backquotes for letters, and a batch system that asks none.
  setenv("SHELL", "/usr/bin/fish", 1);
  CHECK(agent().empty());
  setenv("SHELL", "/usr/bin/zsh", 1);
  CHECK_FALSE(agent().empty());
  setenv("SLURM_JOB_ID", "1", 1);
  CHECK(agent().empty());
  unsetenv("SLURM_JOB_ID");
  options.join_program.clear();
  CHECK(agent().empty());
}

TEST_CASE("a missing worker is named") {
  LaunchOptions options;
  options.worker = "/nonexistent/trireme-worker";
  const auto command = CommandFor(options, {});
  REQUIRE_FALSE(command.ok());
  CHECK(std::string(command.status().message()).find("/nonexistent/trireme-worker") !=
        std::string::npos);
}

TEST_CASE("signals are counted while the latch lives") {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    SignalLatch latch;
    CHECK(latch.count() == 0);
    int raised = 0;
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
      raise(number);
      CHECK(latch.count() == ++raised);
    }
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
}

}  // namespace
}  // namespace trireme::launcher
