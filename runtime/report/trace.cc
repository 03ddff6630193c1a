// Writing of the Chrome trace as text, event by event, and the union of waiting intervals.
#include "runtime/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

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

namespace {

std::string Quoted(const std::string& text) {
  // Names may hold bytes of any file; what is not UTF-8 is replaced.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds with all nanoseconds kept.
std::string Microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

std::string ChromeTrace(std::span<const TraceSpan> spans) {
  int64_t origin = spans.empty() ? 0 : spans[0].start_ns;
  std::set<int> ranks;
  for (const TraceSpan& span : spans) {
    origin = std::min(origin, span.start_ns);
    ranks.insert(span.rank);
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += R"({"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"trireme"}})";
  for (const int rank : ranks) {
    text += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"name\":\"thread_name\",\"args\":"
        "{{\"name\":\"rank {0}\"}}}},\n{{\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"name\":"
        "\"thread_sort_index\",\"args\":{{\"sort_index\":{0}}}}}",
        rank);
  }
  for (const TraceSpan& span : spans) {
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
        span.rank, Quoted(span.name), NameOf(span.category), Microseconds(span.start_ns - origin),
        Microseconds(end - span.start_ns), arguments);
    const auto flow = [&](const char* phase, uint64_t id) {
      if (id == 0) return;
      text += fmt::format(
          ",\n{{\"ph\":\"{}\",\"bp\":\"e\",\"pid\":0,\"tid\":{},\"id\":{},\"name\":\"message\","
          "\"cat\":\"flow\",\"ts\":{}}}",
          phase, span.rank, id, Microseconds((*phase == 's' ? span.start_ns : end) - origin));
    };
    flow("s", span.begins_flow);
    flow("f", span.ends_flow);
  }
  return text + "\n]}\n";
}

Exposure ExposedCommunication(std::span<const TraceSpan> spans) {
  struct Line {
    std::vector<std::pair<int64_t, int64_t>> waits;
    int64_t begin = INT64_MAX;
    int64_t end = INT64_MIN;
  };
  std::map<int, Line> lines;
  for (const TraceSpan& span : spans) {
    Line& line = lines[span.rank];
    line.begin = std::min(line.begin, span.start_ns);
    line.end = std::max(line.end, span.end_ns);
    const bool waits =
        span.category == TraceCategory::kWait || span.category == TraceCategory::kCollective;
    if (waits) line.waits.emplace_back(span.start_ns, span.end_ns);
  }
  Exposure exposure;
  for (auto& [rank, line] : lines) {
    std::sort(line.waits.begin(), line.waits.end());
    int64_t covered = line.begin;
    int64_t exposed = 0;
    for (const auto& [begin, end] : line.waits) {
      exposed += std::max<int64_t>(0, end - std::max(begin, covered));
      covered = std::max(covered, end);
    }
    const int64_t length = line.end - line.begin;
    const double share =
        length > 0 ? static_cast<double>(exposed) / static_cast<double>(length) : 0;
    exposure.by_rank[rank] = share;
    exposure.share += share / static_cast<double>(lines.size());
  }
  return exposure;
}

}  // namespace trireme::report
