// Signals that ask for a stop, in the midst of what a rank does most of its time.
#include "worker/stop_signal.h"

#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

namespace trireme::worker {
namespace {

// A handler on the products' own stack ends this by a damaged heap within a few of them.
TEST_CASE("a stop that comes during matrix products leaves them as they are") {
  ListenForStop();
  std::atomic<bool> done = false;
  std::thread sender([&] {
    while (!done) {
      kill(getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(30));
    }
  });
  int differing = 0;
  constexpr dnnl_dim_t kRows = 512, kColumns = 256, kInner = 1024;
  const std::vector<float> a(kRows * kInner, 0.5F), b(kInner * kColumns, 0.25F);
  for (int product = 0; product < 600; ++product) {
    const char transposed = product % 2 == 0 ? 'N' : 'T';
    std::vector<float> c(kRows * kColumns);
    dnnl_sgemm(transposed, 'T', kRows, kColumns, kInner, 1, a.data(),
               transposed == 'T' ? kRows : kInner, b.data(), kInner, 0, c.data(), kColumns);
    for (const float value : c) differing += value == 0.125F * kInner ? 0 : 1;
  }
  done = true;
  sender.join();
  CHECK(differing == 0);
  // The thread that hears the signals may not have run yet.
  for (int look = 0; look < 60'000 && !StopRequested(); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(StopRequested());
}

}  // namespace
}  // namespace trireme::worker
