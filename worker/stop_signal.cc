#include "worker/stop_signal.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace trireme::worker {

namespace {

std::atomic<bool> stop_requested = false;

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

void ListenForStop() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (int number = 0; sigwait(&signals, &number) == 0;) stop_requested = true;
  }).detach();
}

bool StopRequested() { return stop_requested; }

}  // namespace trireme::worker
