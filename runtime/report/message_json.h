// Messages of the API as JSON, for programs that look.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace trireme::report {

struct MessageStyle {
  bool with_zeros = true;  // all fields, also those that are zero
  bool indented = false;   // else on one line
};

// By protobuf's own mapping, with proto names: 64-bit numbers are strings.
std::string MessageJson(const google::protobuf::Message& message, const MessageStyle& style = {});

}  // namespace trireme::report
