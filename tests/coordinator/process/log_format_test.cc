// Lines of the log: fields, and that nothing in a message can make up a line or break JSON.
#include "coordinator/process/log_format.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace trireme::coordinator {

TEST_CASE("log lines in text are one line each") {
  const LogLine line{1700000000123, "info", "job 3: a\nb\x1b[31m\x7f\tc", {}};
  CHECK(TextLine(line) == "2023-11-14T22:13:20.123Z info job 3: a\\nb\\x1b[31m\\x7f\\tc");
}

TEST_CASE("log lines in JSON have fields for what they are about") {
  const LogLine line{1700000000007, "warning", "say \"hi\"\n\x01\xff", {3, 2, "n1"}};
  const std::string text = JsonLine("triremed", line);
  CHECK(text.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["time"] == "2023-11-14T22:13:20.007Z");
  CHECK(json["level"] == "warning");
  CHECK(json["program"] == "triremed");
  CHECK(json["message"] == "say \"hi\"\n\x01\xef\xbf\xbd");
  CHECK(json["job"] == 3);
  CHECK(json["attempt"] == 2);
  CHECK(json["node"] == "n1");
  const auto bare = nlohmann::json::parse(JsonLine("triremed", {0, "info", "ready", {}}));
  CHECK(bare.size() == 4);
}

}  // namespace trireme::coordinator
