// The report of a run: one HTML page that needs nothing else (pictures inline, no scripts, no fonts
// from outside), fit for mail and archives, light and dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/report/loss_curve.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::report {

// A figure in large type.
struct Headline {
  std::string name = {};   // "validation loss"
  std::string value = {};  // "1.8841"
  std::string note = {};   // small, below; may be empty
};

struct RunReport {
  std::string title = {};                // name of the job
  std::string subtitle = {};             // "finished 2,000 steps in 5 min 12 s"
  std::vector<Headline> headlines = {};  // up to about six
  std::vector<std::pair<std::string, std::string>> summary = {};  // after the plan's own lines
  LossHistory losses = {};
  const v1::Plan* plan = nullptr;  // may be null: no plan lines, no schedule, no memory
  std::string prompt = {};         // of the sample
  std::string sample = {};         // empty: left out
};

// All texts are escaped here.
std::string ReportHtml(const RunReport& report);

}  // namespace trireme::report
