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
  void Keep(uint64_t step, std::span<const engine::InstructionSpan> spans);
  // RUN/trace/rank-N.spans: a line "step kind virtual_stage micro_batch start_ns end_ns" per
  // instruction.
  absl::Status WriteRank(const std::string& run_directory, int rank) const;

 private:
  struct Kept {
    uint64_t step = 0;
    engine::InstructionSpan span;
  };
  std::vector<Kept> kept_;
};

// Joins the files of all ranks (they must be complete) to RUN/trace.json and removes them.
absl::Status MergeTraces(const std::string& run_directory, int ranks);

}  // namespace trireme::worker
