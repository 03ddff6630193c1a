// JSON as the dashboard sends it: whatever bytes jobs, people and files have put into strings.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace trireme::dashboard {

using Json = nlohmann::ordered_json;

// On one line. Bytes that are not UTF-8 are replaced; NaN and Inf are null.
std::string JsonText(const Json& json);
// By protobuf's own mapping, with proto names and all fields, also those that are zero: 64-bit
// numbers are strings.
std::string JsonText(const google::protobuf::Message& message);

}  // namespace trireme::dashboard
