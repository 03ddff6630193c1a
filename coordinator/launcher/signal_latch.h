// Ctrl-C and friends as numbers to look at, instead of an end in the middle of something.
#pragma once

#include <signal.h>

#include <array>

namespace trireme::launcher {

// While one lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are counted instead of ending the
// process; the former handlers return with its end. One at a time.
class SignalLatch {
 public:
  SignalLatch();
  ~SignalLatch();
  SignalLatch(const SignalLatch&) = delete;
  SignalLatch& operator=(const SignalLatch&) = delete;
  // Signals so far.
  int count() const;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace trireme::launcher
