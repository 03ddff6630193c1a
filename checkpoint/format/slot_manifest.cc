#include "checkpoint/format/slot_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/format/guarded_json.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {

using base::Text;
using nlohmann::json;

namespace {

std::string NameOf(const SlotPart& part) { return Text(part.kind, " '", part.name, "'"); }

absl::Status CheckPart(const SlotPart& part, uint64_t slot_bytes) {
  if (!IsPlainKind(part.kind) || part.name.empty()) {
    return absl::InvalidArgumentError("is no kind or no name of a tensor");
  }
  RETURN_IF_ERROR(layout::CheckShard(part.shape, part.shard));
  const uint64_t width = tensor::SizeOf(part.dtype);
  const auto elements = static_cast<uint64_t>(part.shard.elements());
  if (part.offset % width != 0 || part.offset > slot_bytes ||
      elements > (slot_bytes - part.offset) / width) {
    return absl::InvalidArgumentError(Text(elements, " elements from byte ", part.offset,
                                           " on are not in a slot of ", slot_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlotParts(std::span<const SlotPart> parts, uint64_t slot_bytes) {
  std::vector<const SlotPart*> by_offset;
  for (const SlotPart& part : parts) {
    const absl::Status fault = CheckPart(part, slot_bytes);
    if (!fault.ok())
      return absl::InvalidArgumentError(Text(NameOf(part), ": ", base::MessageOf(fault)));
    if (part.shard.elements() > 0) by_offset.push_back(&part);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const SlotPart* one, const SlotPart* other) { return one->offset < other->offset; });
  for (size_t at = 1; at < by_offset.size(); ++at) {
    const SlotPart& before = *by_offset[at - 1];
    const auto elements = static_cast<uint64_t>(before.shard.elements());
    if (before.offset + elements * tensor::SizeOf(before.dtype) <= by_offset[at]->offset) continue;
    return absl::InvalidArgumentError(Text(NameOf(*by_offset[at]), ": begins in ", NameOf(before)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatSlotManifest(std::span<const SlotPart> parts) {
  json list = json::array();
  for (const SlotPart& part : parts) {
    json body = PlaceJson(part);
    body["offset"] = part.offset;
    list.push_back(std::move(body));
  }
  return Guarded({{"version", kSlotManifestVersion}, {"parts", list}});
}

absl::StatusOr<std::vector<SlotPart>> ParseSlotManifest(std::string_view text, uint64_t slot_bytes,
                                                        std::string_view where) {
  ASSIGN_OR_RETURN(const json body, ParseGuarded(text, where));
  RETURN_IF_ERROR(CheckVersion(body, kSlotManifestVersion, where));
  absl::Status status;
  Fields fields(where, status);
  std::vector<SlotPart> parts;
  for (const json& each : fields.Array(body, "parts")) {
    if (!each.is_object()) fields.Fail("a part is not an object");
    if (!fields.ok()) break;
    ReadPlace(each, fields, parts.emplace_back());
    parts.back().offset = fields.Get<uint64_t>(each, "offset");
  }
  RETURN_IF_ERROR(status);
  const absl::Status fault = CheckSlotParts(parts, slot_bytes);
  if (!fault.ok()) return absl::DataLossError(Text(where, ": ", base::MessageOf(fault)));
  return parts;
}

}  // namespace trireme::checkpoint
