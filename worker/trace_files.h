// What a rank did in some steps, as lines of text; of the last steps rank 0 joins all ranks' to
// trace.json.
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
  // Times by `clock`. Of an instruction a line "i step kind virtual_stage micro_batch start_ns
  // end_ns"; of a communication one "c" with the same, start and end being issue and completion,
  // then group, peer and bucket.
  std::string Text(const engine::JobClock& clock) const;
  // That in RUN/trace/rank-N.spans.
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
