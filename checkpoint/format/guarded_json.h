// Texts that guard themselves: JSON whose first line holds the CRC32C of all bytes after it. Of
// manifests, fragments and slot manifests, and how each of them says which part of a tensor is
// meant. Internal to checkpoint/format.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/text.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

// So many digits, with leading zeros.
std::string Hex(uint64_t value, int digits);

// Then the eight digits of the CRC32C.
inline constexpr std::string_view kGuardStart = "{\"crc32c\":\"";

// `body` must be an object. InvalidArgument if a text in it is not UTF-8.
absl::StatusOr<std::string> Guarded(const nlohmann::json& body);
// The body. DataLoss, its message led by `where`, if the text's checksum or structure is wrong.
absl::StatusOr<nlohmann::json> ParseGuarded(std::string_view text, std::string_view where);

// Unimplemented for another version than `expected`, DataLoss for none.
absl::Status CheckVersion(const nlohmann::json& body, int64_t expected, std::string_view where);

// Reads typed fields; the first fault sticks.
class Fields {
 public:
  Fields(std::string_view where, absl::Status& status) : where_(where), status_(status) {}

  template <typename T>
  T Get(const nlohmann::json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (object.is_object() && found != object.end() && Fits<T>(*found)) {
      return found->template get<T>();
    }
    Fail(base::Text("field '", name, "' is missing or of another type"));
    return T{};
  }
  const nlohmann::json& Array(const nlohmann::json& object, const char* name);
  bool ok() const { return status_.ok(); }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = absl::DataLossError(base::Text(where_, ": ", what));
  }

 private:
  template <typename T>
  static bool Fits(const nlohmann::json& value) {
    if constexpr (std::is_same_v<T, std::string>) return value.is_string();
    if constexpr (std::is_same_v<T, uint64_t>) return value.is_number_unsigned();
    return value.is_number_integer();
  }
  std::string_view where_;
  absl::Status& status_;
};

layout::Interval ReadInterval(const nlohmann::json& pair, Fields& fields);
tensor::DType ReadDType(const nlohmann::json& object, Fields& fields);
std::vector<int64_t> ReadShape(const nlohmann::json& object, Fields& fields);
layout::Shard ReadShardPlace(const nlohmann::json& object, Fields& fields);

// Of whatever has a name, a kind, a dtype, a shape and a shard.
template <typename Entry>
nlohmann::json PlaceJson(const Entry& entry) {
  nlohmann::json box = nlohmann::json::array();
  for (const layout::Interval& dim : entry.shard.box.dims) box.push_back({dim.begin, dim.end});
  return {{"name", entry.name},
          {"kind", entry.kind},
          {"dtype", std::string(tensor::NameOf(entry.dtype))},
          {"shape", entry.shape},
          {"box", box},
          {"interval", {entry.shard.interval.begin, entry.shard.interval.end}}};
}

template <typename Entry>
void ReadPlace(const nlohmann::json& object, Fields& fields, Entry& entry) {
  entry.name = fields.Get<std::string>(object, "name");
  entry.kind = fields.Get<std::string>(object, "kind");
  entry.dtype = ReadDType(object, fields);
  entry.shape = ReadShape(object, fields);
  entry.shard = ReadShardPlace(object, fields);
}

}  // namespace trireme::checkpoint
