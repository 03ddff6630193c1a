// A race on a std::function of our own, which TSan is to report: what cmake/thread.supp leaves out
// for gRPC's headers is no reason to be silent here. With the argument "swap": on a swap.
#include <atomic>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

namespace {

std::function<void()> asked_for = [] {};
std::function<void()> spare = [] {};
std::atomic<int> ready = 0;

void Together() {
  ++ready;
  while (ready < 2) std::this_thread::yield();
}

}  // namespace

int main(int argc, char** argv) {
  const bool swap = argc > 1 && std::string_view(argv[1]) == "swap";
  std::thread other([] {
    Together();
    for (int i = 0; i < 1000; ++i) asked_for = [i] { static_cast<void>(i); };
  });
  Together();
  for (int i = 0; i < 1000; ++i) {
    if (swap) {
      std::swap(asked_for, spare);
    } else {
      asked_for();
    }
  }
  other.join();
  return 0;
}
