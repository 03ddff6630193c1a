#include "coordinator/cli/json_line.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/json/json_text.h"

namespace trireme::cli {
namespace {

using google::protobuf::Message;

std::string JsonOf(const Message& message) {
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  style.always_print_primitive_fields = true;
  std::string json;
  // Fails only for Any and Timestamp of impossible content, which the API has none of.
  TRIREME_CHECK(google::protobuf::util::MessageToJsonString(message, &json, style).ok());
  return json;
}

void PrintLine(const std::string& json) {
  const std::string line = json + '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

nlohmann::ordered_json ToJson(const Message& message) {
  return json_text::ParseOrdered(JsonOf(message));
}

void PrintJsonObject(const nlohmann::ordered_json& object) {
  // Bytes of files and peers may be no UTF-8.
  PrintLine(json_text::Write(object));
}

void PrintJsonLine(const Message& message) { PrintLine(JsonOf(message)); }

void PrintJsonLine(const std::vector<std::pair<std::string, const Message*>>& messages) {
  std::string json;
  for (const auto& [name, message] : messages) {
    json += (json.empty() ? "{\"" : ",\"") + name + "\":" + JsonOf(*message);
  }
  PrintLine(json + "}");
}

}  // namespace trireme::cli
