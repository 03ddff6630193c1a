#include "runtime/json/json_text.h"

namespace trireme::json_text {

using nlohmann::json;
using nlohmann::ordered_json;

json Parse(std::string_view text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

ordered_json ParseOrdered(std::string_view text) {
  return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

json Parse(std::string_view text, const json::parser_callback_t& watch,
           std::optional<Fault>* fault) {
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    *fault = Fault{error.what(), error.byte};
  } catch (const json::exception& error) {
    *fault = Fault{error.what()};
  }
  return json(json::value_t::discarded);
}

std::string Write(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string Write(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::optional<std::string> WriteUnchanged(const json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace trireme::json_text
