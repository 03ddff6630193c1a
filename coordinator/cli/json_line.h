// Messages of the API, and what has none, as one line of JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

// To stdout, at once, with proto field names and all numbers, also those that are zero.
void PrintJsonLine(const google::protobuf::Message& message);
// Several as the fields of one object.
void PrintJsonLine(
    const std::vector<std::pair<std::string, const google::protobuf::Message*>>& messages);

// The same fields as values, for what is put together of several sources.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);
void PrintJsonObject(const nlohmann::ordered_json& object);

}  // namespace trireme::cli
