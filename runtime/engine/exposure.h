// Exposed communication of one rank's step: the wall time in which a communication of the rank was
// outstanding and the rank computed nothing. It is made of two parts, since they have different
// cures: the bubble, in which the rank waited for an operation that another rank had not come to
// (schedule, balance, stragglers), and the transfer, the rest (network, buckets, overlap). Where
// the rank waited for what is offloaded meanwhile, that is what it waited for, and a part of its
// own. docs/performance.md holds the definition.
#pragma once

#include <cstdint>

#include "runtime/engine/step_trace.h"

namespace trireme::engine {

struct Exposure {
  int64_t exposed_ns = 0;
  int64_t bubble_ns = 0;   // part of exposed_ns
  int64_t offload_ns = 0;  // waits for what is offloaded; no part of exposed_ns
  int64_t transfer_ns() const { return exposed_ns - bubble_ns; }
};

// Pure. Spans of a communication that was never waited for count from issue to completion; where
// all_issued_ns is not known, nothing of its wait is bubble.
Exposure ExposureOf(const StepTrace& trace);

// The step just run, over all ranks of the job, in seconds.
struct ExposureReport {
  struct Part {
    double mean_s = 0;
    double max_s = 0;
  };
  Part exposed, bubble, transfer, offload;
  int most_exposed_rank = 0;
};

}  // namespace trireme::engine
