// For long tests whose ranks are threads of one process.
#pragma once

#include <sched.h>

#include "tests/sanitizer.h"

namespace trireme::engine {

// Keeps this thread, and those that it starts meanwhile, on the processor that it is on: each rank
// opens and shuts memory around every task, and on several processors each such call interrupts the
// others. A run takes half to two thirds of the time, of one processor instead of two. Not under
// ThreadSanitizer, which is to see threads meet.
class OnOneProcessor {
 public:
  OnOneProcessor() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    kept_ = !tests::kThreadSanitizer && sched_getaffinity(0, sizeof before_, &before_) == 0 &&
            sched_setaffinity(0, sizeof one, &one) == 0;
  }
  OnOneProcessor(const OnOneProcessor&) = delete;
  ~OnOneProcessor() {
    if (kept_) sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_;
  bool kept_ = false;
};

}  // namespace trireme::engine
