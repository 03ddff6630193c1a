// What systemd is told (sd_notify(3)), without its library: one datagram.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trireme::coordinator {

// "READY=1", "STOPPING=1", "STATUS=..."; does nothing where $NOTIFY_SOCKET is not set.
void TellSystemd(const std::string& state);

// "WATCHDOG=1" while the loop that it belongs to turns: with WatchdogSec= systemd ends and starts
// anew a program whose loop stands still. Of one thread. Does nothing where systemd asks for none
// ($WATCHDOG_USEC), or means another process ($WATCHDOG_PID), as that which has started us.
class Watchdog {
 public:
  Watchdog();
  // At each turn of the loop. Gives the time to the next notice, in which the loop must come by
  // again; nothing where none is asked for.
  std::optional<std::chrono::nanoseconds> Turn();

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds interval_{0};  // 0: none is asked for
  Clock::time_point due_{};
};

}  // namespace trireme::coordinator
