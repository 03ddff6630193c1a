#include "worker/stop_signal.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace trireme::worker {

namespace {

std::atomic<bool> stop_requested = false;

static_assert(std::atomic<bool>::is_always_lock_free);

void Handle(int) { stop_requested = true; }

}  // namespace

void ListenForStop() {
  sigset_t signals;
  sigemptyset(&signals);
  // Libraries that are loaded with the program (OpenBLAS) have idle threads by now, which block
  // nothing: a signal may go to one of them.
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) {
    sigaddset(&signals, number);
    sigaction(number, &action, nullptr);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (int number = 0; sigwait(&signals, &number) == 0;) stop_requested = true;
  }).detach();
}

bool StopRequested() { return stop_requested; }

}  // namespace trireme::worker
