// JSON read and written in one place: the library's parser and writer are templates that take a
// compiler seconds, under the sanitizers a minute, in every file that calls them. Thread-safe.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::json_text {

// What is wrong with a text, in the library's words, and at which of its bytes; 0: it does not say.
struct Fault {
  std::string what;
  size_t byte = 0;
};

// The value of `text`, or one for which is_discarded() holds where it is not JSON.
nlohmann::json Parse(std::string_view text);
// With the keys of objects in the order of the text.
nlohmann::ordered_json ParseOrdered(std::string_view text);
// `watch` sees what is read while it is read (nlohmann::json::parse says how) and may leave values
// out.
nlohmann::json Parse(std::string_view text, const nlohmann::json::parser_callback_t& watch,
                     std::optional<Fault>* fault);

// On one line, or indented by so many spaces a level. Bytes that are not UTF-8 are replaced; NaN
// and Inf are null.
std::string Write(const nlohmann::json& value, int indent = -1);
std::string Write(const nlohmann::ordered_json& value, int indent = -1);
// Nothing where a string is not UTF-8.
std::optional<std::string> WriteUnchanged(const nlohmann::json& value, int indent = -1);

}  // namespace trireme::json_text
