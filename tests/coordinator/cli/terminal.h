// `trireme` as people see it: beside a daemon of a few lines, on a terminal.
#pragma once

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <string>
#include <vector>

#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {

// `trireme` on a terminal of its own.
class Terminal {
 public:
  Terminal(const Room& room, const std::vector<std::string>& arguments, winsize size) {
    std::vector<std::string> words = {Program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"--coordinator", room.daemon.address()});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = forkpty(&descriptor_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      unsetenv("COLUMNS");
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) Reap(SIGHUP);
    close(descriptor_);
  }
  Terminal(const Terminal&) = delete;

  // What has been drawn since the last call, until `part` is in it.
  std::string Await(const std::string& part) {
    std::string text;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!Holds(text, part) && std::chrono::steady_clock::now() < until && Read(text)) {
    }
    INFO(text);
    REQUIRE(Holds(text, part));
    return text;
  }
  void Type(const std::string& keys) {
    CHECK(write(descriptor_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  void Resize(winsize size) { ioctl(descriptor_, TIOCSWINSZ, &size); }
  bool Echoes() const {
    termios mode{};
    tcgetattr(descriptor_, &mode);
    return (mode.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON);
  }
  // The exit code; `rest`: all that was left to read.
  int End(std::string* rest = nullptr) {
    std::string text;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < until && Read(text)) {
    }
    if (rest != nullptr) *rest = text;
    return Reap(0);
  }

 private:
  bool Read(std::string& text) {
    pollfd output{descriptor_, POLLIN, 0};
    if (poll(&output, 1, 50) != 1) return true;
    char bytes[4096];
    const ssize_t count = read(descriptor_, bytes, sizeof bytes);
    if (count <= 0) return false;
    text.append(bytes, static_cast<size_t>(count));
    return true;
  }

  // Ends it by `signal`, if it does not end by itself.
  int Reap(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    pid_t ended = waitpid(pid_, &status, WNOHANG);
    while (ended == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ended = waitpid(pid_, &status, WNOHANG);
    }
    if (ended == 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int descriptor_ = -1;
  pid_t pid_ = -1;
};

}  // namespace trireme::cli
