// The guard: found again by its folder, started once however often it is asked for, whole in its
// verdict, and gone with its starter where that is asked.
#include "coordinator/launcher/process_guard.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "coordinator/launcher/process_identity.h"
#include "runtime/base/own_program.h"
#include "tests/coordinator/guard_folder.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a guard belongs to nobody here and leaves its verdict last") {
  const GuardFolder folder;
  // The grandchild must be gone when the verdict is there.
  const auto command = folder.Command("(trap '' TERM HUP; sleep 300) & echo pid $!; exit 7");
  REQUIRE(StartGuarded(command, folder.path()).ok());
  const ProcessIdentity guard = folder.Guard();
  REQUIRE(guard.pid > 0);
  CHECK(guard.boot_id == base::BootId());
  CHECK(LookAtProcess(guard.pid).parent != getpid());
  CHECK(folder.Exit() == 7);
  folder.Await("log", "pid ");
  const int left = std::stoi(Slurp(folder.path() + "/log").substr(4));
  const ProcessStat stat = LookAtProcess(left);
  CHECK((stat.parent < 0 || stat.state == 'Z'));
  CHECK_FALSE(fs::exists(folder.path() + "/left"));
}

TEST_CASE("a start that is called off at the last moment makes no guard") {
  const GuardFolder folder;
  auto command = folder.Command("echo begun");
  // The disk has answered by then.
  bool ready = false;
  command.called_off = [&] { return ready = fs::exists(folder.path() + "/control"); };
  CHECK(absl::IsCancelled(StartGuarded(command, folder.path())));
  CHECK(ready);
  CHECK(folder.Guard().pid <= 0);
  CHECK(Slurp(folder.path() + "/log").empty());
}

TEST_CASE("a guard whose claim came late starts nothing where it is replaced or to be killed") {
  const GuardFolder folder;
  auto command = folder.Command("echo begun");
  SECTION("another has its place") {
    command.replaced = [] { return true; };
  }
  SECTION("a kill waits for it") {
    command.replaced = [&] {
      folder.Ask(kGuardKill);
      return false;
    };
  }
  REQUIRE(StartGuarded(command, folder.path()).ok());
  CHECK(folder.Exit() == 137);
  CHECK(Slurp(folder.path() + "/log").empty());
  CHECK_FALSE(fs::exists(folder.path() + "/left"));
}

TEST_CASE("a stop that waits for a guard whose claim came late reaches the command") {
  const GuardFolder folder;
  const std::string sign = folder.path() + "/sign";
  auto command =
      folder.Command("trap 'exit 75' USR1; echo > " + sign + "; while true; do sleep 0.02; done");
  command.signs_of_ranks = {sign};
  command.replaced = [&] {
    folder.Ask(kGuardStop);
    return false;
  };
  REQUIRE(StartGuarded(command, folder.path()).ok());
  CHECK(folder.Exit() == 75);
}

TEST_CASE("of many that start in one folder one does") {
  const GuardFolder folder;
  const auto command = folder.Command("echo begun; sleep 0.3");
  std::vector<pid_t> starters;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(StartGuarded(command, folder.path()).ok() ? 0 : 1);
    starters.push_back(pid);
  }
  for (const pid_t pid : starters) {
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    // All have heard of a claim, so the file is there.
    CHECK(folder.Guard().pid > 0);
  }
  CHECK(folder.Exit() == 0);
  CHECK(Slurp(folder.path() + "/log") == "begun\n");
  REQUIRE(StartGuarded(command, folder.path()).ok());
  CHECK(Slurp(folder.path() + "/log") == "begun\n");
}

TEST_CASE("a sealed folder starts nothing") {
  const GuardFolder folder;
  std::ofstream(folder.path() + "/guard.json");
  REQUIRE(StartGuarded(folder.Command("echo begun"), folder.path()).ok());
  folder.AwaitGone();
  CHECK(Slurp(folder.path() + "/log").empty());
  CHECK_FALSE(fs::exists(folder.path() + "/exit"));
}

TEST_CASE("a guard passes a stop and a kill on from its FIFO") {
  const GuardFolder stopped;
  REQUIRE(StartGuarded(stopped.Command("trap 'exit 75' USR1; echo ready\n"
                                       "while true; do sleep 0.02; done"),
                       stopped.path())
              .ok());
  stopped.Await("log", "ready");
  // Whoever ends its starter by the command line does not end it too.
  const std::string pid = std::to_string(stopped.Guard().pid);
  const std::string own = Slurp("/proc/self/cmdline");
  const std::string shown = Slurp("/proc/" + pid + "/cmdline");
  CHECK(shown.size() == own.size());
  const std::string title = ("trireme-guard " + stopped.path()).substr(0, own.size() - 1);
  CHECK(std::string(shown.c_str()) == title);
  CHECK(Slurp("/proc/" + pid + "/environ") == Slurp("/proc/self/environ"));
  stopped.Ask(kGuardStop);
  CHECK(stopped.Exit() == 75);
  const GuardFolder killed;
  REQUIRE(StartGuarded(killed.Command("trap '' USR1; echo ready; while true; do sleep 0.02; done"),
                       killed.path())
              .ok());
  killed.Await("log", "ready");
  killed.Ask(kGuardStop);
  killed.Ask(kGuardKill);
  CHECK(killed.Exit() == 128 + SIGTERM);
}

TEST_CASE("a guard ends with its starter only where that is asked") {
  for (const bool ends : {false, true}) {
    const GuardFolder folder;
    // What the command has started has left its session and ignores what it can.
    GuardedCommand command = folder.Command(
        "trap 'echo asked' USR1\n"
        "setsid sh -c \"trap '' TERM HUP INT USR1; echo up; exec sleep 300\" &\n"
        "while true; do wait; done");
    command.ends_with_starter = ends;
    const pid_t starter = fork();
    if (starter == 0) {
      if (!StartGuarded(command, folder.path()).ok()) _exit(1);
      while (true) pause();
    }
    folder.Await("log", "up");
    const ProcessIdentity guard = folder.Guard();
    REQUIRE(IsAlive(guard));
    CHECK_FALSE(folder.HasExit());
    kill(starter, SIGKILL);
    waitpid(starter, nullptr, 0);
    if (!ends) {
      // A guard that watched its starter would see its end before this request, and then not pass
      // the request on.
      folder.Ask(kGuardStop);
      folder.Await("log", "asked");
      CHECK(IsAlive(guard));
      CHECK_FALSE(folder.HasExit());
      folder.Ask(kGuardKill);
    }
    CHECK(folder.Exit() == 128 + SIGTERM);
    CHECK_FALSE(fs::exists(folder.path() + "/left"));
  }
}

TEST_CASE("an identity is no other process and no other start of the machine") {
  const ProcessIdentity self = IdentityOf(getpid());
  CHECK(IsAlive(self));
  CHECK(SendSignal(self, 0));
  CHECK_FALSE(IsAlive({self.pid, self.start_ticks + 1, self.boot_id}));
  CHECK_FALSE(IsAlive({self.pid, self.start_ticks, "another"}));
  CHECK_FALSE(SendSignal({self.pid, self.start_ticks + 1, self.boot_id}, SIGKILL));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(IsAlive(IdentityOf(child)));  // a zombie
  waitpid(child, nullptr, 0);
}

TEST_CASE("a folder that cannot be claimed is an error") {
  const GuardFolder folder;
  const auto missing = StartGuarded(folder.Command("true"), folder.path() + "/nowhere");
  CHECK(missing.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("the kernel's kills in the command's group are kept before the verdict") {
  const GuardFolder folder;
  const std::string group = folder.path() + "/group";
  fs::create_directory(group);
  std::ofstream(group + "/cgroup.procs").close();
  std::ofstream(group + "/memory.events") << "oom 1\noom_kill 2\n";
  std::ofstream(group + "/memory.max") << "12288\n";
  auto command = folder.Command("cat " + group + "/cgroup.procs; exit 7");
  command.control_group = group;
  REQUIRE(StartGuarded(command, folder.path()).ok());
  CHECK(folder.Exit() == 7);
  CHECK(Slurp(folder.path() + "/log") == "0");  // it entered before it began
  CHECK(Slurp(folder.path() + "/memory.events") == "oom 1\noom_kill 2\nmemory.max 12288\n");
}

TEST_CASE("a command whose group cannot be entered runs, and its log says so") {
  const GuardFolder folder;
  auto command = folder.Command("echo begun; exit 7");
  command.control_group = folder.path() + "/none";
  REQUIRE(StartGuarded(command, folder.path()).ok());
  CHECK(folder.Exit() == 7);
  const std::string log = Slurp(folder.path() + "/log");
  CHECK(log.find("no bounds by the kernel: " + folder.path() + "/none") == 0);
  CHECK(log.find("begun\n") != std::string::npos);
  CHECK_FALSE(fs::exists(folder.path() + "/memory.events"));
}

}  // namespace
}  // namespace trireme::launcher
