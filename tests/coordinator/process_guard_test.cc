// The outliving guard: found again by its folder, started once however often it is asked for, and
// whole in its verdict.
#include "coordinator/launcher/process_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "coordinator/launcher/process_identity.h"
#include "runtime/base/check.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/guard_test_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    if (IsAlive(Guard())) SendSignal(Guard(), SIGKILL);
    fs::remove_all(path_);
  }
  GuardedCommand Command(const std::string& script) const {
    fs::create_directories(path_ + "/left");
    return {{"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin"}, path_ + "/log", {path_ + "/left"}};
  }
  // All -1 or 0 if guard.json does not say.
  ProcessIdentity Guard() const {
    static const std::regex words(
        R"re(\{"pid": (\d+), "start_ticks": (\d+), "boot_id": "([0-9a-f-]+)"\}\n)re");
    const std::string text = Slurp(path_ + "/guard.json");
    std::smatch match;
    if (!std::regex_match(text, match, words)) return {};
    return {std::stoi(match[1]), std::stoull(match[2]), match[3]};
  }
  void Ask(char request) const {
    const int fd = open((path_ + "/control").c_str(), O_RDWR | O_NONBLOCK);
    REQUIRE(write(fd, &request, 1) == 1);
    close(fd);
  }
  // The exit code, waited for with a limit; -1: none.
  int Exit() const {
    static const std::regex words(R"(\{"exit_code": (\d+)\}\s*)");
    for (int i = 0; i < 2000; ++i) {
      const std::string text = Slurp(path_ + "/exit");
      std::smatch match;
      if (std::regex_match(text, match, words)) return std::stoi(match[1]);
      if (!text.empty()) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }
  void Await(const std::string& text) const {
    for (int i = 0; i < 2000 && Slurp(path_ + "/log").find(text) == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    REQUIRE(Slurp(path_ + "/log").find(text) != std::string::npos);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_CASE("an outliving guard belongs to nobody here and leaves its verdict last") {
  const Folder folder;
  // The grandchild must be gone when the verdict is there.
  const auto command = folder.Command("(trap '' TERM HUP; sleep 300) & echo pid $!; exit 7");
  REQUIRE(StartOutliving(command, folder.path()).ok());
  const ProcessIdentity guard = folder.Guard();
  REQUIRE(guard.pid > 0);
  CHECK(guard.boot_id == BootId());
  CHECK(LookAtProcess(guard.pid).parent != getpid());
  CHECK(folder.Exit() == 7);
  folder.Await("pid ");
  const int left = std::stoi(Slurp(folder.path() + "/log").substr(4));
  const ProcessStat stat = LookAtProcess(left);
  CHECK((stat.parent < 0 || stat.state == 'Z'));
  CHECK_FALSE(fs::exists(folder.path() + "/left"));
}

TEST_CASE("of many that start in one folder one does") {
  const Folder folder;
  const auto command = folder.Command("echo begun; sleep 0.3");
  std::vector<pid_t> starters;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(StartOutliving(command, folder.path()).ok() ? 0 : 1);
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
  REQUIRE(StartOutliving(command, folder.path()).ok());
  CHECK(Slurp(folder.path() + "/log") == "begun\n");
}

TEST_CASE("a sealed folder starts nothing") {
  const Folder folder;
  std::ofstream(folder.path() + "/guard.json");
  REQUIRE(StartOutliving(folder.Command("echo begun"), folder.path()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(Slurp(folder.path() + "/log").empty());
  CHECK_FALSE(fs::exists(folder.path() + "/exit"));
}

TEST_CASE("an outliving guard passes a stop and a kill on from its FIFO") {
  const Folder stopped;
  REQUIRE(StartOutliving(stopped.Command("trap 'exit 75' USR1; echo ready\n"
                                         "while true; do sleep 0.02; done"),
                         stopped.path())
              .ok());
  stopped.Await("ready");
  stopped.Ask(kGuardStop);
  CHECK(stopped.Exit() == 75);
  const Folder killed;
  REQUIRE(
      StartOutliving(killed.Command("trap '' USR1; echo ready; while true; do sleep 0.02; done"),
                     killed.path())
          .ok());
  killed.Await("ready");
  killed.Ask(kGuardStop);
  killed.Ask(kGuardKill);
  CHECK(killed.Exit() == 128 + SIGTERM);
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
  const Folder folder;
  const auto missing = StartOutliving(folder.Command("true"), folder.path() + "/nowhere");
  CHECK(missing.code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trireme::launcher
