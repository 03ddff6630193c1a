// A counting signal handler; the count is lock-free, so it may be touched there.
#include "coordinator/launcher/signal_latch.h"

#include <atomic>

#include "runtime/base/check.h"

namespace trireme::launcher {
namespace {

std::atomic<int> signal_count{0};
std::atomic<bool> latched{false};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

extern "C" void CountSignal(int) { signal_count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

SignalLatch::SignalLatch() {
  TRIREME_CHECK(!latched.exchange(true));
  signal_count = 0;
  struct sigaction action {};
  action.sa_handler = CountSignal;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

SignalLatch::~SignalLatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  latched = false;
}

int SignalLatch::count() const { return signal_count.load(std::memory_order_relaxed); }

}  // namespace trireme::launcher
