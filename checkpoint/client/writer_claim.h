// A run's hold on the folder of its checkpoints: two runs that write into one folder, or a run that
// begins before checkpoints which lie there, would replace and remove each other's.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/real_path.h"

namespace trireme::checkpoint {

// Held by rank 0 as long as the run may write. Released by the destructor and by the death of the
// process.
class WriterClaim {
 public:
  // Makes `root` if it is missing and locks it. `step`: where the run begins. FailedPrecondition,
  // saying what to do, if another live process holds the folder or a checkpoint of a later step
  // opens in it; Unavailable or ResourceExhausted if the folder cannot be written. Never blocks on
  // the other process.
  // `links`: as in reader.h.
  static absl::StatusOr<WriterClaim> Take(const std::string& root, uint64_t step,
                                          base::Links links = base::Links::kFollow);

  WriterClaim(WriterClaim&& other) noexcept;
  WriterClaim& operator=(WriterClaim&& other) noexcept;
  ~WriterClaim();

 private:
  explicit WriterClaim(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace trireme::checkpoint
