// The trace of the last steps: each rank leaves its spans in a small text file, rank 0 joins them
// to trace.json.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/engine/engine.h"

namespace trireme::worker {

class TraceKeeper {
 public:
  void Keep(uint64_t step, const engine::StepTrace& trace);
  // RUN/trace/rank-N.spans, times by `clock`. Of an instruction a line "i step kind virtual_stage
  // micro_batch start_ns end_ns"; of a communication one "c" with the same, start and end being
  // issue and completion, then group, peer and bucket.
  absl::Status WriteRank(const std::string& run_directory, int rank,
                         const engine::JobClock& clock) const;

 private:
  template <typename Span>
  struct Kept {
    uint64_t step = 0;
    Span span;
  };
  std::vector<Kept<engine::InstructionSpan>> instructions_;
  std::vector<Kept<engine::CommunicationSpan>> communications_;
};

// Joins the files of all ranks (they must be complete) to RUN/trace.json and removes them.
absl::Status MergeTraces(const std::string& run_directory, int ranks);

}  // namespace trireme::worker
