// JSON as the dashboard sends it: whatever bytes jobs, people and files have put into strings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace trireme::dashboard {

using Json = nlohmann::ordered_json;

// On one line. Bytes that are not UTF-8 are replaced; NaN and Inf are null.
std::string JsonText(const Json& json);

}  // namespace trireme::dashboard
