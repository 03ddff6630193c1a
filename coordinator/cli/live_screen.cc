#include "coordinator/cli/live_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace trireme::cli {

LiveScreen::LiveScreen() {
  if (isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    keys_ = true;
    raw_ = before_;
    // Signals stay: Ctrl-C and Ctrl-Z mean what they always do.
    raw_.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw_.c_cc[VMIN] = 0;
    raw_.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw_);
  }
  // What is on the screen moves up, where it can be scrolled back to.
  const std::string room(size().lines, '\n');
  std::fputs(room.c_str(), stdout);
}

LiveScreen::~LiveScreen() {
  if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  std::fputs("\n", stdout);
  std::fflush(stdout);
}

LiveScreen::Size LiveScreen::size() const {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0 || window.ws_col == 0) {
    return {};
  }
  return {window.ws_col, window.ws_row};
}

bool LiveScreen::Draw(const std::string& text) {
  // One write from the first line on, each line cleared behind its end: nothing flickers.
  std::string bytes = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') {
      bytes += "\x1b[K\r\n";
    } else {
      bytes += c;
    }
  }
  bytes += "\x1b[K\x1b[J";
  return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() &&
         std::fflush(stdout) == 0;
}

char LiveScreen::Key(std::chrono::milliseconds wait) {
  if (!keys_) {
    std::this_thread::sleep_for(wait);
    return 0;
  }
  tcsetattr(STDIN_FILENO, TCSANOW, &raw_);
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char key = 0;
  if (poll(&input, 1, static_cast<int>(wait.count())) == 1 && read(STDIN_FILENO, &key, 1) == 1) {
    return key;
  }
  return 0;
}

}  // namespace trireme::cli
