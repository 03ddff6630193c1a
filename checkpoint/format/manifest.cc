// manifest.json and the fragments it is joined from.
#include "checkpoint/format/manifest.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "checkpoint/format/guarded_json.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {

using base::Text;
using nlohmann::json;

namespace {

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
  json body = PlaceJson(shard);
  body["file"] = shard.file;
  body["key"] = shard.key;
  return body;
}

ShardEntry ReadShard(const json& object, Fields& fields) {
  ShardEntry shard{.shape = {},
                   .shard = {},
                   .file = static_cast<uint32_t>(
                       std::min<uint64_t>(fields.Get<uint64_t>(object, "file"), UINT32_MAX)),
                   .key = fields.Get<std::string>(object, "key")};
  ReadPlace(object, fields, shard);
  return shard;
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
  return Guarded(body);
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
  RETURN_IF_ERROR(CheckVersion(body, kManifestVersion, where));
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

std::string GuardOf(std::string_view text) {
  return std::string(text.substr(kGuardStart.size(), 8));
}

absl::StatusOr<Fragment> ParseFragment(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const json body, ParseGuarded(text, where));
  RETURN_IF_ERROR(CheckVersion(body, kManifestVersion, where));
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
