// Chrome traces are valid JSON with the right times; what overlaps lies on tracks of its own.
#include "runtime/report/trace.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trireme::report {
namespace {

TraceSpan Span(int rank, TraceCategory category, int64_t start_ns, int64_t end_ns) {
  return {.rank = rank, .name = "x", .category = category, .start_ns = start_ns, .end_ns = end_ns};
}

TEST_CASE("a trace is JSON with a track per rank and times from its start") {
  std::vector<TraceSpan> spans = {Span(1, TraceCategory::kCompute, 5'000'000'001, 5'000'002'001),
                                  Span(0, TraceCategory::kWait, 5'000'001'001, 5'000'003'004)};
  spans[0].name = "F \"0\"\n\xff";
  spans[0].micro_batch = 0;
  spans[0].begins_flow = 7;
  spans[1].ends_flow = 7;
  const auto json = nlohmann::json::parse(ChromeTrace(spans));
  std::vector<nlohmann::json> complete, flows;
  int names = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") complete.push_back(event);
    if (event["ph"] == "s" || event["ph"] == "f") flows.push_back(event);
    if (event["name"] == "thread_name") ++names;
  }
  CHECK(names == 2);
  REQUIRE(complete.size() == 2);
  CHECK(complete[0]["ts"] == 0.0);
  CHECK(complete[0]["dur"] == 2.0);
  CHECK(complete[0]["tid"] == 1000);
  CHECK(complete[0]["args"] == nlohmann::json({{"micro_batch", 0}}));
  CHECK(complete[1]["ts"] == 1.0);
  CHECK(complete[1]["dur"] == 2.003);
  CHECK(complete[1]["cat"] == "wait");
  REQUIRE(flows.size() == 2);
  CHECK(flows[0]["id"] == flows[1]["id"]);
}

TEST_CASE("an empty trace is JSON too") {
  CHECK(nlohmann::json::parse(ChromeTrace({}))["traceEvents"].size() == 1);
}

TEST_CASE("instructions become named spans") {
  v1::Instruction instruction;
  instruction.set_kind(v1::F);
  instruction.set_micro_batch(3);
  CHECK(SpanOf(2, instruction, 1, 2).name == "F 3");
  CHECK(SpanOf(2, instruction, 1, 2).micro_batch == 3);
  instruction.set_kind(v1::WAIT);
  CHECK(SpanOf(2, instruction, 1, 2).category == TraceCategory::kWait);
  CHECK(SpanOf(2, instruction, 1, 2).micro_batch == -1);
}

TEST_CASE("communications in flight have tracks on which none overlaps another") {
  v1::Instruction reduce;
  reduce.set_kind(v1::REDUCE);
  reduce.set_bucket(4);
  v1::Instruction forward;
  forward.set_kind(v1::F);
  forward.set_micro_batch(3);
  const std::vector<TraceSpan> spans = {
      Span(1, TraceCategory::kCompute, 1000, 9000),
      CommunicationSpanOf(1, reduce, "data", 2000, 6000),
      CommunicationSpanOf(1, forward, "tensor", 3000, 5000),
      CommunicationSpanOf(1, reduce, "tied", 6000, 7000),
      CommunicationSpanOf(0, forward, "tensor", 3000, 5000),
  };
  const auto json = nlohmann::json::parse(ChromeTrace(spans));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X" && event["tid"] >= 1000) by_name[event["name"]] = event;
  }
  CHECK(by_name["x"]["tid"] == 1000);
  CHECK(by_name["REDUCE bucket 4"]["tid"] == 1001);
  CHECK(by_name["REDUCE bucket 4"]["dur"] == 4.0);
  CHECK(by_name["F 3 tensor"]["tid"] == 1002);
  CHECK(by_name["F 3 tensor"]["cat"] == "collective");
  CHECK(by_name["REDUCE bucket 4 tied"]["tid"] == 1001);
}

}  // namespace
}  // namespace trireme::report
