// Executed instructions and communications as a Chrome trace (chrome://tracing, Perfetto).
// Format: "Trace Event Format", Google, complete events (ph X), flows (ph s and f), metadata (ph
// M).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/v1/plan.pb.h"

namespace trireme::report {

enum class TraceCategory : uint8_t { kCompute, kTransfer, kCollective, kWait, kOptimizer, kData };
const char* NameOf(TraceCategory category);

struct TraceSpan {
  int rank = 0;
  std::string name = {};
  TraceCategory category = TraceCategory::kCompute;
  int64_t start_ns = 0;  // any clock that all ranks share
  int64_t end_ns = 0;
  int64_t step = -1;  // negative: not shown; so are the next two
  int64_t micro_batch = -1;
  int64_t virtual_stage = -1;
  // A communication from issue to completion, which runs beside what the rank does: drawn on a
  // track of its own.
  bool in_flight = false;
  // An arrow runs from the span with begins_flow = n to the one with ends_flow = n; 0: none.
  uint64_t begins_flow = 0;
  uint64_t ends_flow = 0;
};

// Category of an instruction; REDUCE and GATHER only issue and so are kCollective of little length,
// their time is in WAIT.
TraceCategory CategoryOf(v1::InstructionKind kind);
// A span named like the instruction: "F 3", "WAIT", "REDUCE". Flows are left at 0.
TraceSpan SpanOf(int rank, const v1::Instruction& instruction, int64_t start_ns, int64_t end_ns);

// A communication of `instruction` over the group named `group`: "REDUCE bucket 2", "SEND_ACT 3",
// "F 3 tensor".
TraceSpan CommunicationSpanOf(int rank, const v1::Instruction& instruction, std::string_view group,
                              int64_t start_ns, int64_t end_ns);

// The whole JSON file: one track per rank, below it as many as its communications in flight need,
// times from the first span in microseconds.
std::string ChromeTrace(std::span<const TraceSpan> spans);
// The same in parts: kTraceBegin, the events of some ranks each time, with times from `origin_ns`,
// and kTraceEnd. All spans of a rank come in one part.
extern const std::string_view kTraceBegin, kTraceEnd;
std::string TraceEvents(std::span<const TraceSpan> spans, int64_t origin_ns);

}  // namespace trireme::report
