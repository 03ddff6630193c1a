// RUN/tensorboard/events.out.tfevents.*: the numbers of metrics.jsonl for TensorBoard. Each attempt
// writes a file of its own; what earlier ones have of steps that it does again is cut off.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/report/event_file.h"

namespace trireme::worker {

class EventLog {
 public:
  // A new file in `folder`, for steps after `keep_through`. Errors: the disk's.
  static absl::StatusOr<EventLog> Open(const std::string& folder, uint64_t keep_through);
  EventLog(EventLog&& other) noexcept;
  EventLog& operator=(EventLog&&) = delete;
  ~EventLog();

  // Written through at once. A disk that takes no more is no reason to stop: the file ends there.
  void Write(uint64_t step, std::span<const report::EventScalar> scalars);

 private:
  explicit EventLog(std::FILE* file) : file_(file) {}
  std::FILE* file_;
};

}  // namespace trireme::worker
