#include "coordinator/dashboard/json_text.h"

#include <google/protobuf/util/json_util.h>

#include "runtime/base/check.h"
#include "runtime/json/json_text.h"

namespace trireme::dashboard {

std::string JsonText(const Json& json) { return json_text::Write(json); }

std::string JsonText(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  style.always_print_primitive_fields = true;
  std::string json;
  // Fails only for Any and Timestamp of impossible content, which these have none of.
  TRIREME_CHECK(google::protobuf::util::MessageToJsonString(message, &json, style).ok());
  return json;
}

}  // namespace trireme::dashboard
