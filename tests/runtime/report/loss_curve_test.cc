// metrics.jsonl is read line by line; curves fit their frame; the page needs nothing from outside.
#include "runtime/report/loss_curve.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>
#include <string>

#include "runtime/report/run_report.h"
#include "tests/runtime/plan/sample_plan.h"

namespace trireme::report {
namespace {

using Catch::Contains;

LossHistory Falling(int steps) {
  LossHistory history;
  for (int step = 1; step <= steps; ++step) {
    history.training.push_back({double(step), 1.5 + 2.5 * std::exp(-step / 30.0)});
    if (step % 25 == 0)
      history.validation.push_back({double(step), 1.6 + 2.5 * std::exp(-step / 30.0)});
  }
  return history;
}

TEST_CASE("metrics are read, other fields and lost steps passed over") {
  const auto history = ParseMetrics(
      "{\"step\":1,\"loss\":4.25,\"learning_rate\":0.1}\n\n{\"step\":2,\"loss\":null}\r\n"
      "{\"step\":2,\"validation_loss\":4.5}\n{\"step\":3,\"lo");
  REQUIRE(history.ok());
  CHECK(history->training == std::vector<CurvePoint>{{1, 4.25}});
  CHECK(history->validation == std::vector<CurvePoint>{{2, 4.5}});
}

TEST_CASE("a broken line is named") {
  for (const char* line : {"nonsense\n", "[1]\n", "{\"loss\":1}\n", "{\"step\":\"x\"}\n"}) {
    const auto history = ParseMetrics(std::string("{\"step\":1,\"loss\":4}\n") + line);
    REQUIRE(history.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(history.status().message()), Contains("line 2"));
  }
}

TEST_CASE("ticks are round and inside the range") {
  CHECK(RoundTicks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(RoundTicks(1.2, 3.9, 6).front() == Approx(1.5));
  CHECK(RoundTicks(3, 3, 6) == std::vector<double>{3});
}

TEST_CASE("the terminal's curve falls from top left to bottom right within its frame") {
  const std::string text =
      LossCurveText(Falling(200), {.width = 60, .height = 8, .unicode = false});
  std::istringstream lines(text);
  std::string line;
  for (int number = 0; std::getline(lines, line); ++number) {
    CHECK(line.size() <= 60);
    if (number == 0) CHECK(line.find('*') == 10);
    if (number == 6) CHECK(line.find('*') > 20);
  }
  CHECK_THAT(text, Contains("o") && Contains("step 200") && Contains("training 1.5032"));
  CHECK_THAT(LossCurveText(Falling(200), {}), Contains("\xE2\xA0") || Contains("\xE2\xA1"));
}

TEST_CASE("nothing, one point and equal points are drawn") {
  LossHistory history;
  CHECK_THAT(LossCurveText(history, {}), Contains("no losses"));
  CHECK_THAT(LossCurveSvg(history), Contains("no losses"));
  history.training = {{5, 2.0}};
  CHECK_THAT(LossCurveText(history, {}), Contains("2.0000"));
  CHECK_THAT(LossCurveSvg(history), !Contains("nan") && !Contains("inf"));
  history.training.push_back({6, 2.0});
  history.validation = {{6, 2.0}};
  CHECK_THAT(LossCurveSvg(history), !Contains("nan") && !Contains("inf"));
  CHECK_THAT(LossCurveText(history, {}), Contains("validation 2.0000"));
}

TEST_CASE("a long run makes a small picture") {
  CHECK(LossCurveSvg(Falling(200'000)).size() < 600'000);
}

TEST_CASE("the report is one page without anything from outside, its texts escaped") {
  const v1::Plan plan = plan::SamplePlan("1f1b", {4, 8, 1});
  const std::string html = ReportHtml({.title = "a<b",
                                       .subtitle = "done",
                                       .headlines = {{"loss", "1.5", "nats"}},
                                       .summary = {{"key & lock", "v"}},
                                       .losses = Falling(100),
                                       .plan = &plan,
                                       .prompt = "<script>",
                                       .sample = "To be & <i>not</i>"});
  CHECK_THAT(html, Contains("a&lt;b") && Contains("key &amp; lock") && Contains("&lt;script&gt;"));
  CHECK_THAT(html, Contains("To be &amp; &lt;i&gt;not&lt;/i&gt;"));
  CHECK_THAT(
      html, !Contains("<script") && !Contains("src=") && !Contains("@import") && !Contains("url("));
  CHECK_THAT(html, Contains("Schedule of one step") && Contains("Memory per rank"));
  CHECK_THAT(ReportHtml({.title = "x"}), !Contains("Memory per rank") && !Contains("Sample"));
}

}  // namespace
}  // namespace trireme::report
