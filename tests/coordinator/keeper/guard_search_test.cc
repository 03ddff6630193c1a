// Guards whose names were cut short, as those of an agent with a short command line: which folder
// is theirs.
#include "coordinator/launcher/guard_search.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>

#include "coordinator/launcher/process_title.h"
#include "tests/coordinator/keeper/erring_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

// More than any title has room for.
std::string LongPath() {
  std::string path;
  for (int i = 0; i < 12; ++i) path += "/" + std::string(250, 'x');
  return path;
}

// Names itself a guard of `folder`, at work in `in`.
pid_t GuardIn(const std::string& in, const std::string& folder) {
  const std::string title = launcher::GuardTitle(folder);
  int named[2];
  REQUIRE(pipe(named) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (chdir(in.c_str()) != 0) _exit(1);
    prctl(PR_SET_NAME, launcher::kGuardName);
    launcher::SetProcessTitle(title.c_str());
    if (write(named[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char word = 0;
  close(named[1]);
  CHECK(read(named[0], &word, 1) == 1);
  close(named[0]);
  return pid;
}

TEST_CASE("guard search: one that has not gone to a folder of attempts may be of any") {
  const KeeperBench bench("");
  const std::string folder = LongPath() + "/attempts/1";
  const auto [in, found] = GENERATE(std::pair("/attempts/1", true), std::pair("/attempts/2", false),
                                    std::pair("/attempts", true), std::pair("/..", true));
  CAPTURE(in);
  fs::create_directories(bench.root + "/attempts/1");
  fs::create_directories(bench.root + "/attempts/2");
  const pid_t pid = GuardIn(bench.root + in, folder);
  const auto guards = launcher::GuardsOf(folder);
  CHECK(found == std::any_of(guards.begin(), guards.end(), [&](const auto& guard) {
          return guard.process.pid == pid && !guard.certain;
        }));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST_CASE("guard search: the guard of another job holds up no end") {
  ErringBench bench(
      "echo $attempt >> $TRIREME_RUN_FOLDER/starts; trap '' TERM USR1; while :; do sleep 600; "
      "done\n");
  const std::string jobs = bench.root + LongPath();
  bench.run = jobs + "/run";
  v1::DesiredAttempt other = bench.Named();
  other.set_job_id(8);
  other.mutable_launch()->set_run_folder(jobs + "/other");
  fs::create_directories(bench.run);
  fs::create_directories(jobs + "/other");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({other, bench.Named()}));
  bench.Await(*keeper, 1, [&](const auto&) {
    return bench.Lines("starts") == 1 && fs::exists(jobs + "/other/starts");
  });
  bench.guard = bench.Guard(1);
  bench.Break();
  keeper->SetDesired(bench.Desired({other, bench.Named(v1::ATTEMPT_KILL)}));
  bench.AwaitEnd(*keeper, 1);
  CHECK(bench.Living().empty());
  CHECK_FALSE(launcher::IsAlive(bench.guard));
  CHECK(launcher::GuardsOf(bench.Folder(1)).size() == 1);
  keeper->SetDesired(bench.Desired({}));
  for (int i = 0; i < 3000 && keeper->Poll().attempts_size() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(launcher::GuardsOf(bench.Folder(1)).empty());
}

}  // namespace
}  // namespace trireme::keeper
