// Through the real mpirun with shell scripts as workers: ends of all kinds, and nothing left
// behind.
#include "coordinator/launcher/mpirun_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "coordinator/launcher/diagnosis.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/check.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A run folder with a script as worker; every process of the launch carries a mark in its
// environment.
class Bench {
 public:
  explicit Bench(const std::string& script) {
    char path[] = "/tmp/launcher_test_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    folder_ = path;
    mark_ = "TRIREME_TEST_MARK=" + folder_;
    std::ofstream(folder_ + "/worker") << "#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-0}\n" << script;
    chmod((folder_ + "/worker").c_str(), 0755);
    options.worker = folder_ + "/worker";
    options.run_folder = folder_;
    options.environment = {mark_};
    options.arguments = {"one", "two words"};
  }
  Bench(const Bench&) = delete;
  ~Bench() { fs::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string Log(int rank) const {
    return Slurp(folder_ + "/logs/rank-" + std::to_string(rank) + ".log");
  }
  std::unique_ptr<MpirunLauncher> Start() {
    auto launcher = MpirunLauncher::Start(options);
    REQUIRE(launcher.ok());
    return std::move(*launcher);
  }
  // Waits (with a limit) until all ranks have written `text` to their logs.
  void AwaitLogs(const std::string& text) const {
    for (int i = 0; i < 2000; ++i) {
      int there = 0;
      for (int rank = 0; rank < options.ranks; ++rank) {
        there += Log(rank).find(text) != std::string::npos;
      }
      if (there == options.ranks) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
    FAIL("no '" << text << "' in the logs; mpirun: " << Slurp(folder_ + "/logs/mpirun.log"));
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
  // The folders that the ranks were told to use.
  std::vector<std::string> TemporaryFolders() const {
    std::vector<std::string> folders;
    std::istringstream in(Log(0));
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("folder ", 0) == 0) folders.push_back(line.substr(7));
    }
    return folders;
  }
  void CheckNothingLeft() const {
    CHECK(Living().empty());
    const auto folders = TemporaryFolders();
    CHECK(folders.size() == 2);
    for (const std::string& folder : folders) {
      CAPTURE(folder);
      CHECK(folder.find("trireme-") != std::string::npos);
      CHECK_FALSE(fs::exists(folder));
    }
  }

  LaunchOptions options;

 private:
  std::string folder_, mark_;
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

TEST_CASE("a good run: arguments, logs, environment, exit code", "[mpi]") {
  Bench bench(std::string(kFolders) +
              "echo rank $rank of $OMPI_COMM_WORLD_SIZE \"$1|$2\" threads $OMP_NUM_THREADS\n");
  bench.options.ranks = 3;
  bench.options.threads = 2;
  fs::create_directories(bench.folder() + "/recorder");
  std::ofstream(bench.folder() + "/recorder/rank-007.rec") << "old";
  const LaunchResult result = bench.Start()->Wait();
  CHECK(result.exit_code == 0);
  CHECK_FALSE(result.stop_requested);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " of 3 one|two words threads 2\n";
    CHECK(bench.Log(rank).find(line) != std::string::npos);
  }
  CHECK_FALSE(fs::exists(bench.folder() + "/recorder/rank-007.rec"));
  const std::string first = bench.Log(1);
  CHECK(bench.Start()->Wait().exit_code == 0);
  CHECK(Slurp(bench.folder() + "/logs.1/rank-1.log") == first);
  CHECK(bench.Log(1).size() == first.size());
  bench.CheckNothingLeft();
}

TEST_CASE("a stop lets the ranks save and exit 75", "[mpi]") {
  // As the worker does: rank 0 brings the news when all have saved, since its exit ends the others.
  Bench bench(kSleeper +
              "save() { echo saved; touch \"$0.$rank\"; [ $rank = 0 ] || exit 0\n"
              "until [ -e \"$0.1\" ]; do sleep 0.01; done; exit 75; }\ntrap save USR1\n" +
              kLoop);
  bench.options.ranks = 2;
  auto launcher = bench.Start();
  bench.AwaitLogs("ready");
  CHECK_FALSE(launcher->Poll().has_value());
  launcher->RequestStop();
  const LaunchResult result = launcher->Wait();
  CHECK(result.exit_code == 75);
  CHECK((result.stop_requested && !result.killed));
  bench.AwaitLogs("saved");
  bench.CheckNothingLeft();
}

TEST_CASE("a stop reaches ranks that were not yet listening", "[mpi]") {
  Bench bench(std::string(kFolders) + "trap '' USR1; echo ready; sleep 1; trap 'exit 75' USR1\n" +
              "while true; do sleep 0.02; done\n");
  bench.options.ranks = 1;
  auto launcher = bench.Start();
  bench.AwaitLogs("ready");
  launcher->RequestStop();
  CHECK(launcher->Wait().exit_code == 75);
  bench.CheckNothingLeft();
}

TEST_CASE("the deadline stops, and ranks that do not obey are killed after the grace", "[mpi]") {
  Bench bench(kSleeper + "trap 'echo heard' USR1\ntrap '' TERM INT\n" + kLoop);
  bench.options.ranks = 2;
  bench.options.deadline = milliseconds(700);
  bench.options.grace = milliseconds(300);
  const LaunchResult result = bench.Start()->Wait();
  CHECK(result.exit_code != 0);
  CHECK((result.stop_requested && result.killed));
  CHECK(bench.Living().empty());
}

TEST_CASE("a second request kills at once, the destructor too", "[mpi]") {
  Bench bench(kSleeper + "trap '' USR1\n" + kLoop);
  bench.options.ranks = 2;
  {
    auto launcher = bench.Start();
    bench.AwaitLogs("ready");
    launcher->RequestStop();
    launcher->RequestStop();
    CHECK(launcher->Wait().killed);
  }
  bench.CheckNothingLeft();
  Bench other(kSleeper + kLoop);
  {
    auto launcher = other.Start();
    other.AwaitLogs("ready");
  }
  other.CheckNothingLeft();
}

TEST_CASE("a rank's exit code and a rank's death come through and are explained", "[mpi]") {
  Bench exits(std::string(kFolders) + kRankOneLast +
              "[ $rank = 1 ] && { echo usage: bad input; exit 2; }\nsleep 100\n");
  exits.options.ranks = 2;
  const LaunchResult bad = exits.Start()->Wait();
  CHECK(bad.exit_code == 2);
  const Diagnosis exited = Diagnose(exits.folder(), bad);
  // Open MPI 4.1 ends now and then before it has named the rank.
  CHECK((exited.rank == 1 || exited.rank == -1));
  CHECK(exited.Text().find(": bad input") != std::string::npos);
  exits.CheckNothingLeft();

  Bench dies(std::string(kFolders) + kRankOneLast + "[ $rank = 1 ] && kill -9 $$\nsleep 100\n");
  dies.options.ranks = 3;
  const LaunchResult dead = dies.Start()->Wait();
  CHECK(dead.exit_code == 137);
  const Diagnosis diagnosis = Diagnose(dies.folder(), dead);
  // These ranks keep no recorder, so mpirun's word is all there is, and now and then it is silent.
  CHECK(((diagnosis.rank == 1 && diagnosis.signal == SIGKILL) || diagnosis.rank == -1));
  dies.CheckNothingLeft();
}

TEST_CASE("nothing survives the death of the launching process, nor of the guard", "[mpi]") {
  for (const bool kill_guard : {false, true}) {
    Bench bench(kSleeper + kLoop);
    bench.options.ranks = 2;
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
      auto launcher = MpirunLauncher::Start(bench.options);
      const int guard = launcher.ok() ? (*launcher)->guard_pid() : -1;
      if (write(ready[1], &guard, sizeof guard) != sizeof guard) _exit(1);
      (*launcher)->Wait();
      _exit(0);
    }
    int guard = -1;
    REQUIRE(read(ready[0], &guard, sizeof guard) == sizeof guard);
    close(ready[0]);
    close(ready[1]);
    bench.AwaitLogs("ready");
    CHECK(bench.Living().size() >= 4);
    kill(kill_guard ? guard : child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto folders = bench.TemporaryFolders();
    REQUIRE(folders.size() == 2);
    // If the guard itself is killed, nobody adopts the two grandchildren, but mpirun and the ranks
    // must go.
    const size_t may_live = kill_guard ? 2 : 0;
    for (int i = 0; i < 1000; ++i) {
      if (bench.Living().size() <= may_live && !fs::exists(folders[1])) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    CHECK(bench.Living().size() <= may_live);
    CHECK_FALSE(fs::exists(folders[0]));
    CHECK_FALSE(fs::exists(folders[1]));
    for (int pid : bench.Living()) kill(pid, SIGKILL);
  }
}

TEST_CASE("one rank runs without mpirun, more name the package") {
  Bench bench(std::string(kFolders) + "echo alone; exit 3\n");
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const auto more = [&] {
    LaunchOptions options = bench.options;
    options.ranks = 2;
    return MpirunLauncher::Start(options).status();
  }();
  auto launcher = MpirunLauncher::Start(bench.options);
  setenv("PATH", path.c_str(), 1);
  CHECK(more.code() == absl::StatusCode::kNotFound);
  CHECK(std::string(more.message()).find("openmpi-bin") != std::string::npos);
  REQUIRE(launcher.ok());
  CHECK((*launcher)->Wait().exit_code == 3);
  CHECK(bench.Log(0).find("alone") != std::string::npos);
  bench.CheckNothingLeft();
}

TEST_CASE("ranks of several hosts are told where to run and whose they are") {
  LaunchOptions options;
  options.worker = "/bin/true";
  options.ranks = 3;
  options.hosts = {{"n1", 2}, {"n2", 1}};
  options.run_folder = "/run";
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

TEST_CASE("a missing worker is named") {
  Bench bench("");
  bench.options.worker = "/nonexistent/trireme-worker";
  const auto launcher = MpirunLauncher::Start(bench.options);
  REQUIRE_FALSE(launcher.ok());
  CHECK(std::string(launcher.status().message()).find("/nonexistent/trireme-worker") !=
        std::string::npos);
}

TEST_CASE("signals are counted while the latch lives") {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    SignalLatch latch;
    CHECK(latch.count() == 0);
    raise(SIGINT);
    raise(SIGTERM);
    CHECK(latch.count() == 2);
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
}

}  // namespace
}  // namespace trireme::launcher
