// The curves of a job, from its metrics.jsonl: at most 2,000 points an answer, and of a long file a
// sample over its whole length, so that an answer costs the same for a run of an hour and of a
// month.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/dashboard/json_text.h"
#include "coordinator/dashboard/run_file.h"

namespace trireme::dashboard {

struct CurveRequest {
  // Of the last answer; empty and 0: from the beginning.
  std::string file;
  int64_t offset = 0;
};

// {"file", "offset": to go on from, "size", "reset": begin anew with these points, "step": [...],
// "loss": [...], ... a number or null per step, "validation": [[step, loss], ...]}. `version`
// stands for the attempt: a file of another one, or another file, is read from the beginning. Lines
// that are no metrics are passed over, and so is one whose end is not written yet.
Json CurveJson(const RunFile& file, const std::string& version, const CurveRequest& request);

// Before there is a file.
Json EmptyCurveJson();

}  // namespace trireme::dashboard
