#include "tests/coordinator/guard_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <thread>

#include "runtime/base/check.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 6000;
constexpr std::chrono::milliseconds kStep(10);

}  // namespace

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

GuardFolder::GuardFolder() {
  char path[] = "/tmp/guard_test_XXXXXX";
  TRIREME_CHECK(mkdtemp(path) != nullptr);
  path_ = path;
}

GuardFolder::~GuardFolder() {
  if (IsAlive(Guard())) SendSignal(Guard(), SIGKILL);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

GuardedCommand GuardFolder::Command(const std::string& script) const {
  fs::create_directories(path_ + "/left");
  // A shell cannot trap what it was born to ignore.
  return {{"/usr/bin/env", "--default-signal=USR1", "/bin/sh", "-c", script},
          {"PATH=/usr/bin:/bin"},
          path_ + "/log",
          {path_ + "/left"},
          {}};
}

ProcessIdentity GuardFolder::Guard() const {
  static const std::regex words(
      R"re(\{"pid": (\d+), "start_ticks": (\d+), "boot_id": "([0-9a-f-]+)"\}\n)re");
  const std::string text = Slurp(path_ + "/guard.json");
  std::smatch match;
  if (!std::regex_match(text, match, words)) return {};
  return {std::stoi(match[1]), std::stoull(match[2]), match[3]};
}

void GuardFolder::Ask(char request) const {
  const int fd = open((path_ + "/control").c_str(), O_RDWR | O_NONBLOCK);
  REQUIRE(write(fd, &request, 1) == 1);
  close(fd);
}

bool GuardFolder::HasExit() const { return fs::exists(path_ + "/exit"); }

int GuardFolder::Exit() const {
  static const std::regex words(R"(\{"exit_code": (\d+)\}\s*)");
  for (int i = 0; i < kSteps; ++i) {
    const std::string text = Slurp(path_ + "/exit");
    std::smatch match;
    if (std::regex_match(text, match, words)) return std::stoi(match[1]);
    if (!text.empty()) return -1;
    std::this_thread::sleep_for(kStep);
  }
  return -1;
}

void GuardFolder::AwaitGone() const {
  for (int i = 0; i < kSteps; ++i) {
    const int fd = open((path_ + "/control").c_str(), O_WRONLY | O_NONBLOCK);
    if (fd < 0) {
      REQUIRE(errno == ENXIO);  // nobody reads it
      return;
    }
    close(fd);
    std::this_thread::sleep_for(kStep);
  }
  FAIL("a guard of " << path_ << " does not end");
}

void GuardFolder::Await(const std::string& name, const std::string& text) const {
  for (int i = 0; i < kSteps; ++i) {
    if (Slurp(path_ + "/" + name).find(text) != std::string::npos) return;
    std::this_thread::sleep_for(kStep);
  }
  FAIL("no '" << text << "' in " << name << ": " << Slurp(path_ + "/" + name));
}

}  // namespace trireme::launcher
