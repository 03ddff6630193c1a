#include "tests/runtime/engine/one_processor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

namespace {

// A lock of `processor`, of which there are as many as tests that may be kept on each: -1 where
// another test has it.
int TryLock(int processor, int place) {
  const std::string path =
      absl::StrCat("/tmp/trireme-test-processor-", getuid(), "-", processor, "-", place);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  close(file);
  return -1;
}

}  // namespace

OnOneProcessor::OnOneProcessor() {
  if (tests::kThreadSanitizer || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  int chosen = sched_getcpu();
  constexpr int kPlaces = 8;
  for (int place = 0; place < kPlaces && lock_ < 0; ++place) {
    for (int processor = 0; processor < CPU_SETSIZE && lock_ < 0; ++processor) {
      if (!CPU_ISSET(static_cast<size_t>(processor), &before_)) continue;
      lock_ = TryLock(processor, place);
      if (lock_ >= 0) chosen = processor;
    }
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(chosen), &one);
  kept_ = sched_setaffinity(0, sizeof one, &one) == 0;
}

OnOneProcessor::~OnOneProcessor() {
  if (kept_) sched_setaffinity(0, sizeof before_, &before_);
  if (lock_ >= 0) close(lock_);
}

}  // namespace trireme::engine
