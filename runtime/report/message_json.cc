#include "runtime/report/message_json.h"

#include <google/protobuf/util/json_util.h>

#include "runtime/base/check.h"

namespace trireme::report {

std::string MessageJson(const google::protobuf::Message& message, const MessageStyle& style) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = style.with_zeros;
  options.add_whitespace = style.indented;
  std::string json;
  // Fails only for Any and Timestamp of impossible content, which the API has none of.
  TRIREME_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

}  // namespace trireme::report
