// What a rank did in some steps, as lines of text; of the steps that the job chooses rank 0 joins
// all ranks' to a Chrome trace.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/engine/engine.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::worker {

// The steps that a job traces: `trace_steps` from each of `trace_at`, or the last ones of the job
// (runtime of the JobSpec). Steps are counted from 1, as in metrics.jsonl.
class TracedSteps {
 public:
  explicit TracedSteps(const v1::JobSpec& job);
  bool Contains(uint64_t step) const;
  // True of the last step of a trace.
  bool Ends(uint64_t step) const;
  // Of a trace whose first step is `first`, in the run folder: trace-10.json, or trace.json of the
  // last steps.
  std::string FileName(uint64_t first) const;

 private:
  // The first and the last step of the trace that `step` is in; nullopt: in none.
  std::optional<std::pair<uint64_t, uint64_t>> Around(uint64_t step) const;

  std::vector<uint64_t> begins_;  // rising
  uint64_t length_ = 0;
  uint64_t steps_ = 0;  // of the job
  bool chosen_ = false;
};

class TraceKeeper {
 public:
  // `step`: counted from 1.
  void Keep(uint64_t step, const engine::StepTrace& trace);
  // Times by `clock`. Of an instruction a line "i step kind virtual_stage micro_batch start_ns
  // end_ns"; of a communication one "c" with the same, start and end being issue and completion,
  // then group, peer and bucket.
  std::string Text(const engine::JobClock& clock) const;
  // The first step kept; 0: none.
  uint64_t first_step() const { return first_step_; }
  // That in RUN/trace/rank-N.spans.
  absl::Status WriteRank(const std::string& run_directory, int rank,
                         const engine::JobClock& clock) const;

 private:
  template <typename Span>
  struct Kept {
    uint64_t step = 0;
    Span span;
  };
  uint64_t first_step_ = 0;
  std::vector<Kept<engine::InstructionSpan>> instructions_;
  std::vector<Kept<engine::CommunicationSpan>> communications_;
};

// Joins the files of all ranks (they must be complete) to RUN/`file_name` and removes them.
absl::Status MergeTraces(const std::string& run_directory, int ranks, const std::string& file_name);

}  // namespace trireme::worker
