// A plan as text for people: mesh, stages, bytes per rank, bubble and a picture of the schedule. A
// plan for thousands of ranks stays a screenful: equal stages share a line, and the picture keeps
// the first and last ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/plan/schedule.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::report {

struct DescribeOptions {
  int width = 100;      // columns of the terminal, at least 60
  bool unicode = true;  // lines and dots; otherwise ASCII alone
  bool color = false;   // ANSI 256-colour backgrounds in the picture
};

// Ends with a newline. A plan whose schedule cannot be simulated is described without picture, with
// the reason.
std::string DescribePlan(const v1::Plan& plan, const DescribeOptions& options);

// The step program's compute order run on nominal costs: F, I and W take 1, B takes 2, transfers
// nothing.
struct PlanTimeline {
  plan::ScheduleOptions shape = {};
  plan::Simulation simulation = {};
};
absl::StatusOr<PlanTimeline> TimelineOf(const v1::Plan& plan);

// Ranks that a picture shows: all up to `most`, else the first and last `most` / 2 (an index of -1
// stands for the rest).
std::vector<int> RowsShown(uint32_t ranks, uint32_t most);

// What one rank of a pipeline coordinate holds, in bytes.
struct StageBytes {
  uint64_t parameters = 0;   // with those gathered for the blocks at hand (ZeRO-3)
  uint64_t gradients = 0;    // with those of the blocks at hand (ZeRO-2)
  uint64_t optimizer = 0;    // moments and masters; of offloaded ones, the pieces at hand
  uint64_t activations = 0;  // saved for backward, stashes too
  uint64_t boundaries = 0;   // received and sent activations and gradients
  uint64_t temporaries = 0;
  uint64_t scratch = 0;  // libraries'
  uint64_t other = 0;    // tokens, scalars, gaps for alignment
  uint64_t total = 0;    // in the arena: the sum of those above
  uint64_t host = 0;     // offloaded: optimizer state, activations; with gaps, as is the next
  uint64_t file = 0;
  uint64_t snapshots = 0;  // masters and moments, all slots
  friend bool operator==(const StageBytes&, const StageBytes&) = default;
};
StageBytes BytesOf(const v1::StagePlan& stage);

using base::ReadableBytes;
// "3,072".
std::string ReadableCount(uint64_t count);

// Names and values of the plan's summary lines, for terminal and HTML alike.
std::vector<std::pair<std::string, std::string>> SummaryOf(const v1::Plan& plan);

// "embedding, layers 1-3" for the blocks [first, end) of a model with `layers` layers (0: not
// known).
std::string NameBlocks(uint32_t first, uint32_t end, int64_t layers);

}  // namespace trireme::report
