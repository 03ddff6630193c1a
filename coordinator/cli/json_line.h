// A message of the API as one line of JSON.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

// To stdout, at once, with proto field names and all numbers, also those that are zero.
void PrintJsonLine(const google::protobuf::Message& message);
// Several as the fields of one object.
void PrintJsonLine(
    const std::vector<std::pair<std::string, const google::protobuf::Message*>>& messages);

}  // namespace trireme::cli
