// JSON as the dashboard sends it: whatever bytes jobs, people and files have put into strings.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace trireme::dashboard {

using Json = nlohmann::ordered_json;

// On one line. Bytes that are not UTF-8 are replaced; NaN and Inf are null.
std::string JsonText(const Json& json);

// Browsers count in milliseconds, and nanoseconds since 1970 are beyond their exact numbers.
inline int64_t Milliseconds(int64_t unix_ns) { return unix_ns / 1000000; }

}  // namespace trireme::dashboard
