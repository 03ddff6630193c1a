// A message of the API as one line of JSON.
#pragma once

#include <google/protobuf/message.h>

namespace trireme::cli {

// To stdout, at once, with proto field names and all numbers, also those that are zero.
void PrintJsonLine(const google::protobuf::Message& message);

}  // namespace trireme::cli
