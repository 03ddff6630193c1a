// manifest.json and the fragments it is joined from. The first line holds the CRC32C of all bytes
// after it, so that the whole is one JSON text and still guards itself.
#include "checkpoint/format/manifest.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/json/json_text.h"

namespace trireme::checkpoint {

using base::Text;
using nlohmann::json;

namespace {

constexpr size_t kGuardBytes = 23;  // {"crc32c":"01234567",\n and the brace of the body

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
  return Text("{\"crc32c\":\"", Hex(checksum::Crc32c(std::as_bytes(std::span(rest))), 8), "\",\n",
              rest);
}

// Reads typed fields; the first fault sticks.
class Fields {
 public:
  Fields(std::string_view where, absl::Status& status) : where_(where), status_(status) {}

  template <typename T>
  T Get(const json& object, const char* name) {
    T value{};
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || found == object.end() || !Fits<T>(*found)) {
      if (status_.ok()) {
        status_ =
            absl::DataLossError(Text(where_, ": field '", name, "' is missing or of another type"));
      }
      return value;
    }
    return found->template get<T>();
  }
  const json& Array(const json& object, const char* name) {
    static const json empty = json::array();
    if (object.is_object() && object.contains(name) && object[name].is_array()) return object[name];
    if (status_.ok())
      status_ = absl::DataLossError(Text(where_, ": field '", name, "' is not a list"));
    return empty;
  }
  bool ok() const { return status_.ok(); }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = absl::DataLossError(Text(where_, ": ", what));
  }

 private:
  template <typename T>
  static bool Fits(const json& value) {
    if constexpr (std::is_same_v<T, std::string>) return value.is_string();
    if constexpr (std::is_same_v<T, uint64_t>) return value.is_number_unsigned();
    return value.is_number_integer();
  }
  std::string_view where_;
  absl::Status& status_;
};

json FileJson(const FileEntry& file) {
  std::string checksums;
  for (uint32_t crc : file.crc32c) checksums += Hex(crc, 8);
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", checksums}};
}

FileEntry ReadFile(const json& object, Fields& fields) {
  FileEntry file{.name = fields.Get<std::string>(object, "name"),
                 .bytes = fields.Get<uint64_t>(object, "bytes")};
  const std::string checksums = fields.Get<std::string>(object, "crc32c");
  if (checksums.size() % 8 != 0 ||
      checksums.find_first_not_of("0123456789abcdef") != std::string::npos) {
    fields.Fail("'crc32c' is not a row of eight-digit numbers");
    return file;
  }
  for (size_t at = 0; at < checksums.size(); at += 8) {
    file.crc32c.push_back(static_cast<uint32_t>(std::stoul(checksums.substr(at, 8), nullptr, 16)));
  }
  return file;
}

json ShardJson(const ShardEntry& shard) {
  json box = json::array();
  for (const layout::Interval& dim : shard.shard.box.dims) box.push_back({dim.begin, dim.end});
  return {{"name", shard.name},
          {"kind", shard.kind},
          {"dtype", std::string(tensor::NameOf(shard.dtype))},
          {"shape", shard.shape},
          {"box", box},
          {"interval", {shard.shard.interval.begin, shard.shard.interval.end}},
          {"file", shard.file},
          {"key", shard.key}};
}

layout::Interval ReadInterval(const json& pair, Fields& fields) {
  if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() ||
      !pair[1].is_number_integer()) {
    fields.Fail("an interval is not two integers");
    return {};
  }
  return {pair[0].get<int64_t>(), pair[1].get<int64_t>()};
}

ShardEntry ReadShard(const json& object, Fields& fields) {
  ShardEntry shard{.name = fields.Get<std::string>(object, "name"),
                   .kind = fields.Get<std::string>(object, "kind"),
                   .shape = {},
                   .shard = {},
                   .file = static_cast<uint32_t>(
                       std::min<uint64_t>(fields.Get<uint64_t>(object, "file"), UINT32_MAX)),
                   .key = fields.Get<std::string>(object, "key")};
  const std::string dtype = fields.Get<std::string>(object, "dtype");
  bool known = false;
  for (tensor::DType each :
       {tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kI32, tensor::DType::kU8}) {
    if (tensor::NameOf(each) != dtype) continue;
    shard.dtype = each;
    known = true;
  }
  if (!known) fields.Fail(Text("dtype '", dtype, "' is not known"));
  for (const json& extent : fields.Array(object, "shape")) {
    if (!extent.is_number_integer()) fields.Fail("a shape holds something else than integers");
    shard.shape.push_back(fields.ok() ? extent.get<int64_t>() : 0);
  }
  for (const json& dim : fields.Array(object, "box")) {
    shard.shard.box.dims.push_back(ReadInterval(dim, fields));
  }
  shard.shard.interval =
      ReadInterval(object.contains("interval") ? object["interval"] : json(), fields);
  return shard;
}

constexpr std::string_view kStart = "{\"crc32c\":\"";

// The body of a guarded text.
absl::StatusOr<json> ParseGuarded(std::string_view text, std::string_view where) {
  const size_t rest = kGuardBytes - 1;
  if (text.size() < kGuardBytes || !text.starts_with(kStart) ||
      text.substr(kStart.size() + 8, 3) != "\",\n") {
    return absl::DataLossError(
        Text(where, ": does not begin with its checksum; not a manifest, or cut short"));
  }
  const std::string found = Hex(checksum::Crc32c(std::as_bytes(std::span(text.substr(rest)))), 8);
  if (found != text.substr(kStart.size(), 8)) {
    return absl::DataLossError(Text(where, ": checksum ", text.substr(kStart.size(), 8),
                                    " expected, ", found,
                                    " found: the text was changed or cut short"));
  }
  json body = json_text::Parse(text);
  if (!body.is_object()) return absl::DataLossError(Text(where, ": is not a JSON object"));
  return body;
}

absl::Status CheckVersion(const json& body, std::string_view where) {
  if (!body.contains("version") || !body["version"].is_number_integer()) {
    return absl::DataLossError(Text(where, ": has no version"));
  }
  const int64_t version = body["version"].get<int64_t>();
  if (version == kManifestVersion) return absl::OkStatus();
  return absl::UnimplementedError(Text(where, ": has version ", version, ", this program reads ",
                                       kManifestVersion, "; use a newer Trireme"));
}

}  // namespace

absl::StatusOr<std::string> FormatManifest(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  json scalars = json::object();
  // As bits: a decimal text would have to be parsed back exactly by everybody.
  for (const auto& [name, value] : info.scalars)
    scalars[name] = Hex(std::bit_cast<uint64_t>(value), 16);
  json files = json::array(), shards = json::array();
  for (const FileEntry& file : manifest.files) files.push_back(FileJson(file));
  for (const ShardEntry& shard : manifest.shards) shards.push_back(ShardJson(shard));
  json body = {{"version", kManifestVersion},
               {"step", info.step},
               {"samples", info.samples},
               {"spec_hash", Hex(info.spec_hash, 16)},
               {"job_yaml", info.job_yaml},
               {"tokenizer", info.tokenizer},
               {"ranks", info.ranks},
               {"scalars", scalars},
               {"model_config", info.model_config},
               {"files", files},
               {"shards", shards}};
  if (info.data_digest) body["data_digest"] = Hex(*info.data_digest, 16);
  return Guarded(std::move(body));
}

absl::StatusOr<std::string> FormatFragment(const Fragment& fragment) {
  json shards = json::array();
  for (const ShardEntry& shard : fragment.shards) shards.push_back(ShardJson(shard));
  return Guarded({{"version", kManifestVersion},
                  {"rank", fragment.rank},
                  {"file", FileJson(fragment.file)},
                  {"shards", shards}});
}

static uint64_t ReadHex(const std::string& text, Fields& fields) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    fields.Fail("a 64-bit number is not sixteen hexadecimal digits");
    return 0;
  }
  return std::stoull(text, nullptr, 16);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const json body, ParseGuarded(text, where));
  RETURN_IF_ERROR(CheckVersion(body, where));
  absl::Status status;
  Fields fields(where, status);
  Manifest manifest;
  CheckpointInfo& info = manifest.info;
  info.step = fields.Get<uint64_t>(body, "step");
  info.samples = fields.Get<uint64_t>(body, "samples");
  info.spec_hash = ReadHex(fields.Get<std::string>(body, "spec_hash"), fields);
  info.job_yaml = fields.Get<std::string>(body, "job_yaml");
  info.tokenizer = fields.Get<std::string>(body, "tokenizer");
  if (body.contains("data_digest")) {
    info.data_digest = ReadHex(fields.Get<std::string>(body, "data_digest"), fields);
  }
  info.ranks = static_cast<int>(fields.Get<int64_t>(body, "ranks"));
  info.model_config = fields.Get<std::string>(body, "model_config");
  if (body.contains("scalars") && body["scalars"].is_object()) {
    for (const auto& [name, value] : body["scalars"].items()) {
      const std::string bits = value.is_string() ? value.get<std::string>() : "";
      info.scalars[name] = std::bit_cast<double>(ReadHex(bits, fields));
    }
  }
  for (const json& file : fields.Array(body, "files"))
    manifest.files.push_back(ReadFile(file, fields));
  for (const json& shard : fields.Array(body, "shards")) {
    if (!shard.is_object()) fields.Fail("a shard is not an object");
    if (!fields.ok()) break;
    manifest.shards.push_back(ReadShard(shard, fields));
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(base::Annotate(CheckManifest(manifest), where));
  return manifest;
}

std::string GuardOf(std::string_view text) { return std::string(text.substr(kStart.size(), 8)); }

absl::StatusOr<Fragment> ParseFragment(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const json body, ParseGuarded(text, where));
  RETURN_IF_ERROR(CheckVersion(body, where));
  absl::Status status;
  Fields fields(where, status);
  Fragment fragment;
  fragment.rank = static_cast<int>(fields.Get<int64_t>(body, "rank"));
  fragment.file = ReadFile(body.contains("file") ? body["file"] : json(), fields);
  for (const json& shard : fields.Array(body, "shards")) {
    if (!shard.is_object()) fields.Fail("a shard is not an object");
    if (!fields.ok()) break;
    fragment.shards.push_back(ReadShard(shard, fields));
  }
  RETURN_IF_ERROR(status);
  return fragment;
}

}  // namespace trireme::checkpoint
