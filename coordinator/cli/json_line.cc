#include "coordinator/cli/json_line.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <string>

#include "runtime/base/check.h"

namespace trireme::cli {

void PrintJsonLine(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  style.always_print_primitive_fields = true;
  std::string json;
  // Fails only for Any and Timestamp of impossible content, which the API has none of.
  TRIREME_CHECK(google::protobuf::util::MessageToJsonString(message, &json, style).ok());
  json += '\n';
  std::fwrite(json.data(), 1, json.size(), stdout);
  std::fflush(stdout);
}

}  // namespace trireme::cli
