// Writing of the Chrome trace as text, event by event.
#include "runtime/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "runtime/json/json_text.h"

namespace trireme::report {

const char* NameOf(TraceCategory category) {
  switch (category) {
    case TraceCategory::kCompute:
      return "compute";
    case TraceCategory::kTransfer:
      return "transfer";
    case TraceCategory::kCollective:
      return "collective";
    case TraceCategory::kWait:
      return "wait";
    case TraceCategory::kOptimizer:
      return "optimizer";
    case TraceCategory::kData:
      return "data";
  }
  return "?";
}

TraceCategory CategoryOf(v1::InstructionKind kind) {
  switch (kind) {
    case v1::LOAD:
      return TraceCategory::kData;
    case v1::SEND_ACT:
    case v1::RECV_ACT:
    case v1::SEND_GRAD:
    case v1::RECV_GRAD:
    case v1::SWAP_OUT:
    case v1::SWAP_IN:
      return TraceCategory::kTransfer;
    case v1::REDUCE:
    case v1::GATHER:
    case v1::NORM:
      return TraceCategory::kCollective;
    case v1::WAIT:
      return TraceCategory::kWait;
    case v1::STEP:
      return TraceCategory::kOptimizer;
    default:
      return TraceCategory::kCompute;
  }
}

TraceSpan SpanOf(int rank, const v1::Instruction& instruction, int64_t start_ns, int64_t end_ns) {
  TraceSpan span{.rank = rank,
                 .name = v1::InstructionKind_Name(instruction.kind()),
                 .category = CategoryOf(instruction.kind()),
                 .start_ns = start_ns,
                 .end_ns = end_ns};
  const bool has_cell = instruction.kind() >= v1::F && instruction.kind() <= v1::RECV_GRAD;
  if (has_cell) {
    span.name += fmt::format(" {}", instruction.micro_batch());
    span.micro_batch = instruction.micro_batch();
    span.virtual_stage = instruction.virtual_stage();
  }
  return span;
}

TraceSpan CommunicationSpanOf(int rank, const v1::Instruction& instruction, std::string_view group,
                              int64_t start_ns, int64_t end_ns) {
  TraceSpan span = SpanOf(rank, instruction, start_ns, end_ns);
  span.in_flight = true;
  const bool message = group == "pipeline";
  span.category = message ? TraceCategory::kTransfer : TraceCategory::kCollective;
  if (instruction.kind() == v1::REDUCE || instruction.kind() == v1::GATHER) {
    span.name += fmt::format(" bucket {}", instruction.bucket());
    // The sum over the replicas is what a bucket is made for; others follow it.
    if (group != "data") span.name += fmt::format(" {}", group);
  } else if (!message) {
    span.name += fmt::format(" {}", group);
  }
  return span;
}

namespace {

// Tracks of a rank are numbers from rank * kTracksPerRank on: what it does, then its communications
// in flight.
constexpr int64_t kTracksPerRank = 1000;

// For each span its track. Those in flight overlap, so each takes the first track that is free.
std::vector<int64_t> TracksOf(std::span<const TraceSpan> spans) {
  std::vector<size_t> order(spans.size());
  for (size_t index = 0; index < order.size(); ++index) order[index] = index;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return spans[a].start_ns < spans[b].start_ns; });
  std::map<int, std::vector<int64_t>> busy_until;  // by rank
  std::vector<int64_t> tracks(spans.size());
  for (const size_t index : order) {
    const TraceSpan& span = spans[index];
    tracks[index] = span.rank * kTracksPerRank;
    if (!span.in_flight) continue;
    std::vector<int64_t>& ends = busy_until[span.rank];
    auto free =
        std::find_if(ends.begin(), ends.end(), [&](int64_t end) { return end <= span.start_ns; });
    if (free == ends.end()) free = ends.insert(free, 0);
    *free = std::max(span.start_ns, span.end_ns);
    tracks[index] += std::min<int64_t>(kTracksPerRank - 1, 1 + (free - ends.begin()));
  }
  return tracks;
}

std::string Quoted(const std::string& text) {
  // Names may hold bytes of any file; what is not UTF-8 is replaced.
  return json_text::Write(nlohmann::json(text));
}

// Microseconds with all nanoseconds kept.
std::string Microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

const std::string_view kTraceBegin =
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
    R"({"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"trireme"}})";
const std::string_view kTraceEnd = "\n]}\n";

std::string ChromeTrace(std::span<const TraceSpan> spans) {
  int64_t origin_ns = spans.empty() ? 0 : spans[0].start_ns;
  for (const TraceSpan& span : spans) origin_ns = std::min(origin_ns, span.start_ns);
  return std::string(kTraceBegin) + TraceEvents(spans, origin_ns) + std::string(kTraceEnd);
}

std::string TraceEvents(std::span<const TraceSpan> spans, int64_t origin_ns) {
  const std::vector<int64_t> tracks = TracksOf(spans);
  std::string text;
  for (const int64_t track : std::set<int64_t>(tracks.begin(), tracks.end())) {
    text += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"name\":\"thread_name\",\"args\":"
        "{{\"name\":\"rank {1}{2}\"}}}},\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"name\":"
        "\"thread_sort_index\",\"args\":{{\"sort_index\":{0}}}}}",
        track, track / kTracksPerRank, track % kTracksPerRank == 0 ? "" : " in flight");
  }
  for (size_t index = 0; index < spans.size(); ++index) {
    const TraceSpan& span = spans[index];
    std::string arguments;
    const auto argument = [&arguments](const char* name, int64_t value) {
      if (value >= 0)
        arguments += fmt::format("{}\"{}\":{}", arguments.empty() ? "" : ",", name, value);
    };
    argument("step", span.step);
    argument("micro_batch", span.micro_batch);
    argument("virtual_stage", span.virtual_stage);
    const int64_t end = std::max(span.start_ns, span.end_ns);
    text += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":0,\"tid\":{},\"name\":{},\"cat\":\"{}\",\"ts\":{},\"dur\":{},"
        "\"args\":{{{}}}}}",
        tracks[index], Quoted(span.name), NameOf(span.category),
        Microseconds(span.start_ns - origin_ns), Microseconds(end - span.start_ns), arguments);
    const auto flow = [&](const char* phase, uint64_t id) {
      if (id == 0) return;
      text += fmt::format(
          ",\n{{\"ph\":\"{}\",\"bp\":\"e\",\"pid\":0,\"tid\":{},\"id\":{},\"name\":\"message\","
          "\"cat\":\"flow\",\"ts\":{}}}",
          phase, tracks[index], id,
          Microseconds((*phase == 's' ? span.start_ns : end) - origin_ns));
    };
    flow("s", span.begins_flow);
    flow("f", span.ends_flow);
  }
  return text;
}

}  // namespace trireme::report
