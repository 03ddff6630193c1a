// The last step of each rank, from the files that the ranks write about once a second
// (docs/formats/step_timeline.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/dashboard/json_text.h"

namespace trireme::dashboard {

struct Span {
  char what = 'i';  // an instruction, or a communication ('c')
  int kind = 0;     // v1::InstructionKind
  uint32_t virtual_stage = 0;
  uint32_t micro_batch = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int group = 0;  // of a communication
  int peer = -1;
};

struct RankTimeline {
  int rank = 0;
  uint64_t step = 0;
  uint64_t resident_bytes = 0;  // of its process; 0: not known
  uint64_t peak_bytes = 0;
  std::vector<Span> spans;
};

// Nullopt: not the beginning of such a file of this rank. Lines that are not understood, or whose
// times cannot be, are passed over; a last line without its end too.
std::optional<RankTimeline> ParseTimeline(std::string_view text, int rank);

// The step that most of them are of, the newer one if two are; times in microseconds from its first
// start. {"step", "length_us", "ranks": [{"rank", "step", "resident_bytes", "peak_bytes", "spans":
// [[kind, virtual stage, micro-batch, start, length], ...], "transfers": [...]}]}. Ranks that are
// at another step have no spans; of more than fit into an answer the longest are kept.
Json TimelineJson(const std::vector<RankTimeline>& ranks, int ranks_of_job);

// Reads those of a job: all its ranks, or of many the first and the last. `read` gives a file of
// the run folder by its name and at most so many bytes of it; empty: there is none.
using ReadFile = std::function<std::string(const std::string& name, size_t most_bytes)>;
std::vector<RankTimeline> ReadTimelines(int ranks_of_job, const ReadFile& read);

}  // namespace trireme::dashboard
