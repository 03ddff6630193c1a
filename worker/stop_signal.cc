#include "worker/stop_signal.h"

#include <csignal>

namespace trireme::worker {

namespace {
volatile std::sig_atomic_t stop_requested = 0;
void Handle(int) { stop_requested = 1; }
}  // namespace

void ListenForStop() {
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  constexpr int kSignals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
  for (int number : kSignals) sigaction(number, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

}  // namespace trireme::worker
