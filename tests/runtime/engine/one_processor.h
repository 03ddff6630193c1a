// For long tests whose ranks are threads of one process.
#pragma once

#include <sched.h>

namespace trireme::engine {

// Keeps this thread, and those that it starts meanwhile, on one processor: each rank opens and
// shuts memory around every task, and on several processors each such call interrupts the others.
// A run takes half to two thirds of the time, of one processor instead of two. On that where the
// fewest tests are kept so, which these tell each other by locks of files: nothing else could move
// them. Not under ThreadSanitizer, which is to see threads meet.
class OnOneProcessor {
 public:
  OnOneProcessor();
  OnOneProcessor(const OnOneProcessor&) = delete;
  ~OnOneProcessor();

 private:
  cpu_set_t before_;
  bool kept_ = false;
  int lock_ = -1;
};

}  // namespace trireme::engine
