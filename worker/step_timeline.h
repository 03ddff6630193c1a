// What this rank did in a recent step, for whoever looks on: RUN/timeline/rank-NNN.steps, about
// once a second (docs/formats/step_timeline.md). A thread of its own writes: a slow or full disk
// holds up no step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/trace_files.h"

namespace trireme::worker {

// Threads: the engine's keeps, its own writes.
class StepTimeline {
 public:
  StepTimeline(const std::string& run_directory, int rank);
  // Waits for the disk, if something is yet to be written.
  ~StepTimeline();
  StepTimeline(const StepTimeline&) = delete;
  StepTimeline& operator=(const StepTimeline&) = delete;

  // True of the first step in each second of `shared_time_s` (StepReport's): all ranks keep the
  // same steps.
  bool IsDue(double shared_time_s);
  // Copies; what the thread has not come to yet is replaced. `step`: updates done.
  void Keep(uint64_t step, const engine::StepTrace& trace, const engine::JobClock& clock);

 private:
  struct Kept {
    uint64_t step = 0;
    TraceKeeper trace;
    engine::JobClock clock;
  };
  void WriteAll();
  absl::Status Write(const Kept& kept) const;
  bool Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || next_.has_value(); }

  const std::string folder_;
  const int rank_;
  double last_second_ = -1;
  absl::Mutex mutex_;
  std::optional<Kept> next_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

// Those of an earlier attempt, which may have had more ranks.
void RemoveTimelines(const std::string& run_directory);

}  // namespace trireme::worker
