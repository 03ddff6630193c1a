// What `trireme top` shows: nodes and jobs as a screenful. Pure: (what the daemon said, now) to
// text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/v1/control.pb.h"

namespace trireme::cli {

struct TopScene {
  v1::Cluster cluster;
  std::vector<v1::Job> jobs;  // any order
  // By job, where it is known: what one step trains, for the time to the end.
  std::map<uint64_t, double> tokens_per_step;
  int64_t now_unix_ns = 0;
  std::string notice;  // a line above the tables; empty: none
};

struct TopShape {
  size_t width = 0;   // columns; 0: any
  size_t height = 0;  // lines; 0: any
  bool unicode = true;
  bool color = false;
};

// Lines without the last line feed: at most `height`, each of at most `width` columns. What is left
// out is counted in a line of its own.
std::string TopText(const TopScene& scene, const TopShape& shape);

// Seconds until the last step, or negative: not known.
double RemainingSeconds(const v1::Job& job, double tokens_per_step);

}  // namespace trireme::cli
