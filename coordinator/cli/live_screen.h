// A screen that is redrawn in place, without a screen of its own: what was there before stays
// above.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>

namespace trireme::cli {

// One at a time, on stdout and, where that is a terminal too, stdin, whose keys then come at once
// and unseen. The terminal is as before when it ends.
class LiveScreen {
 public:
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  struct Size {
    size_t columns = 80, lines = 24;
    friend bool operator==(const Size&, const Size&) = default;
  };
  Size size() const;

  // As many lines as there are; false: nobody can see it any more.
  bool Draw(const std::string& text);
  // The next key within `wait`, or 0. Also brings the terminal's mode back after a stop (Ctrl-Z).
  char Key(std::chrono::milliseconds wait);

 private:
  bool keys_ = false;
  termios before_{};
  termios raw_{};
};

}  // namespace trireme::cli
