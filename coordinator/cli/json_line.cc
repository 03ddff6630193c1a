#include "coordinator/cli/json_line.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/json/json_text.h"
#include "runtime/report/message_json.h"

namespace trireme::cli {
namespace {

using google::protobuf::Message;

void PrintLine(const std::string& json) {
  const std::string line = json + '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

nlohmann::ordered_json ToJson(const Message& message) {
  return json_text::ParseOrdered(report::MessageJson(message));
}

void PrintJsonObject(const nlohmann::ordered_json& object) {
  // Bytes of files and peers may be no UTF-8.
  PrintLine(json_text::Write(object));
}

void PrintJsonLine(const Message& message) { PrintLine(report::MessageJson(message)); }

void PrintJsonLine(const std::vector<std::pair<std::string, const Message*>>& messages) {
  std::string json;
  for (const auto& [name, message] : messages) {
    json += (json.empty() ? "{\"" : ",\"") + name + "\":" + report::MessageJson(*message);
  }
  PrintLine(json + "}");
}

}  // namespace trireme::cli
