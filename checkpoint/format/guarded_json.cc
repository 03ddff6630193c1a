#include "checkpoint/format/guarded_json.h"

#include <cstdio>
#include <optional>
#include <span>

#include "runtime/checksum/crc32c.h"
#include "runtime/json/json_text.h"

namespace trireme::checkpoint {

using base::Text;
using nlohmann::json;

namespace {

constexpr size_t kGuardBytes = 23;  // {"crc32c":"01234567",\n and the brace of the body

}  // namespace

std::string Hex(uint64_t value, int digits) {
  char text[20];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

absl::StatusOr<std::string> Guarded(const json& body) {
  const std::optional<std::string> text = json_text::WriteUnchanged(body, 1);
  if (!text.has_value()) {
    return absl::InvalidArgumentError("a text for the manifest is not UTF-8");
  }
  const std::string rest = Text(text->substr(1), "\n");  // The opening brace goes to the guard.
  return Text(kGuardStart, Hex(checksum::Crc32c(std::as_bytes(std::span(rest))), 8), "\",\n", rest);
}

absl::StatusOr<json> ParseGuarded(std::string_view text, std::string_view where) {
  const size_t rest = kGuardBytes - 1;
  if (text.size() < kGuardBytes || !text.starts_with(kGuardStart) ||
      text.substr(kGuardStart.size() + 8, 3) != "\",\n") {
    return absl::DataLossError(
        Text(where, ": does not begin with its checksum; not a manifest, or cut short"));
  }
  const std::string found = Hex(checksum::Crc32c(std::as_bytes(std::span(text.substr(rest)))), 8);
  if (found != text.substr(kGuardStart.size(), 8)) {
    return absl::DataLossError(Text(where, ": checksum ", text.substr(kGuardStart.size(), 8),
                                    " expected, ", found,
                                    " found: the text was changed or cut short"));
  }
  json body = json_text::Parse(text);
  if (!body.is_object()) return absl::DataLossError(Text(where, ": is not a JSON object"));
  return body;
}

absl::Status CheckVersion(const json& body, int64_t expected, std::string_view where) {
  if (!body.contains("version") || !body["version"].is_number_integer()) {
    return absl::DataLossError(Text(where, ": has no version"));
  }
  const int64_t version = body["version"].get<int64_t>();
  if (version == expected) return absl::OkStatus();
  return absl::UnimplementedError(Text(where, ": has version ", version, ", this program reads ",
                                       expected, "; use a newer Trireme"));
}

const json& Fields::Array(const json& object, const char* name) {
  static const json empty = json::array();
  if (object.is_object() && object.contains(name) && object[name].is_array()) return object[name];
  Fail(Text("field '", name, "' is not a list"));
  return empty;
}

layout::Interval ReadInterval(const json& pair, Fields& fields) {
  if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() ||
      !pair[1].is_number_integer()) {
    fields.Fail("an interval is not two integers");
    return {};
  }
  return {pair[0].get<int64_t>(), pair[1].get<int64_t>()};
}

tensor::DType ReadDType(const json& object, Fields& fields) {
  const std::string dtype = fields.Get<std::string>(object, "dtype");
  for (const tensor::DType each :
       {tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kI32, tensor::DType::kU8}) {
    if (tensor::NameOf(each) == dtype) return each;
  }
  fields.Fail(Text("dtype '", dtype, "' is not known"));
  return tensor::DType::kF32;
}

std::vector<int64_t> ReadShape(const json& object, Fields& fields) {
  std::vector<int64_t> shape;
  for (const json& extent : fields.Array(object, "shape")) {
    if (!extent.is_number_integer()) fields.Fail("a shape holds something else than integers");
    shape.push_back(fields.ok() ? extent.get<int64_t>() : 0);
  }
  return shape;
}

layout::Shard ReadShardPlace(const json& object, Fields& fields) {
  layout::Shard shard;
  for (const json& dim : fields.Array(object, "box")) {
    shard.box.dims.push_back(ReadInterval(dim, fields));
  }
  shard.interval = ReadInterval(object.contains("interval") ? object["interval"] : json(), fields);
  return shard;
}

}  // namespace trireme::checkpoint
