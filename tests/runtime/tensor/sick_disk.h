// A disk that fails or falls silent beneath swap files: in a program that holds sick_disk.cc,
// sync_file_range, by which a SwapFile hands its bytes to the disk, is the one defined there.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme::tensor {

// As long as it lives; one at a time. Threads: any.
class SickDisk {
 public:
  SickDisk();
  SickDisk(const SickDisk&) = delete;
  ~SickDisk();

  // Of the next calls that wait for the disk `after` pass, then `times` fail with `error`, as a
  // write-back that failed.
  void FailWriteBack(int error, int64_t times, int64_t after = 0);
  // Calls that come from now on stand still until this ends or `on` is false.
  void Hang(bool on);
  // Each call takes so long.
  void Slow(std::chrono::milliseconds each);
  // Of the calls in its life: the most bytes that one asked for.
  int64_t most_bytes() const;
};

}  // namespace trireme::tensor
