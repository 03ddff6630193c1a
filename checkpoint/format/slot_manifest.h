// The manifest of a snapshot file (docs/formats/snapshot.md): which part of which tensor lies where
// in each slot. Equal parts give equal texts, so a rank finds its own file again by comparing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

inline constexpr int kSlotManifestVersion = 1;

struct SlotPart {
  std::string name;  // as StateShard has them
  std::string kind;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  layout::Shard shard;
  uint64_t offset = 0;  // bytes from the slot's first; shard.elements() elements, contiguous
};

// Ok if each part lies in its tensor and in the slot, at a multiple of its element, and none over
// another. InvalidArgument names the part.
absl::Status CheckSlotParts(std::span<const SlotPart> parts, uint64_t slot_bytes);

// InvalidArgument if a name is not UTF-8.
absl::StatusOr<std::string> FormatSlotManifest(std::span<const SlotPart> parts);
// DataLoss if the text's own checksum or structure is wrong, or what CheckSlotParts refuses;
// Unimplemented for another version. `where` begins every message.
absl::StatusOr<std::vector<SlotPart>> ParseSlotManifest(std::string_view text, uint64_t slot_bytes,
                                                        std::string_view where);

}  // namespace trireme::checkpoint
