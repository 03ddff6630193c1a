#include "tests/runtime/tensor/sick_disk.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace trireme::tensor {

namespace {

std::atomic<int> failure{0};
std::atomic<int64_t> failures_left{0}, passes_left{0};
std::atomic<bool> hangs{false};
std::atomic<int64_t> each_ms{0};
std::atomic<int64_t> most{0};

// Returns the error that the call fails with; 0: none.
int Suffer(int64_t bytes, unsigned flags) {
  for (int64_t seen = most; bytes > seen && !most.compare_exchange_weak(seen, bytes);) {
  }
  if (each_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(each_ms));
  while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool waits = (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0;
  if (!waits || passes_left.fetch_sub(1) > 0) return 0;
  return failures_left.fetch_sub(1) > 0 ? failure.load() : 0;
}

}  // namespace

SickDisk::SickDisk() { most = 0; }

SickDisk::~SickDisk() {
  failures_left = 0;
  hangs = false;
  each_ms = 0;
}

void SickDisk::FailWriteBack(int error, int64_t times, int64_t after) {
  failure = error;
  passes_left = after;
  failures_left = times;
}

void SickDisk::Hang(bool on) { hangs = on; }
void SickDisk::Slow(std::chrono::milliseconds each) { each_ms = each.count(); }
int64_t SickDisk::most_bytes() const { return most; }

}  // namespace trireme::tensor

// Instead of libc's, which does the same but for the sickness.
extern "C" int sync_file_range(int fd, off_t offset, off_t count, unsigned flags) {
  const int error = trireme::tensor::Suffer(count, flags);
  if (error == 0) return static_cast<int>(syscall(SYS_sync_file_range, fd, offset, count, flags));
  errno = error;
  return -1;
}
