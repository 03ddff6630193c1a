// What lies where in a slot: written, read back, and refused where it cannot be.
#include "checkpoint/format/slot_manifest.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

namespace trireme::checkpoint {
namespace {

using Catch::Contains;

constexpr uint64_t kSlotBytes = 4096;

SlotPart PartOf(const std::string& name, layout::Interval interval, uint64_t offset) {
  return {.name = name,
          .kind = "moment1",
          .dtype = tensor::DType::kF64,
          .shape = {6, 8},
          .shard = {.box = {{{0, 6}, {4, 8}}}, .interval = interval},
          .offset = offset};
}

std::vector<SlotPart> SomeParts() {
  std::vector<SlotPart> parts = {PartOf("h.0.weight", {0, 24}, 192),
                                 PartOf("h.1.weight", {5, 9}, 0)};
  parts[1].kind = "parameter";
  parts[1].dtype = tensor::DType::kF32;
  return parts;
}

}  // namespace

TEST_CASE("slot manifest: what was written is read, and equal parts are equal texts") {
  const std::vector<SlotPart> parts = SomeParts();
  const auto text = FormatSlotManifest(parts);
  REQUIRE(text.ok());
  CHECK(*FormatSlotManifest(SomeParts()) == *text);
  const auto read = ParseSlotManifest(*text, kSlotBytes, "here");
  REQUIRE(read.ok());
  REQUIRE(read->size() == parts.size());
  for (size_t at = 0; at < parts.size(); ++at) {
    CHECK((*read)[at].name == parts[at].name);
    CHECK((*read)[at].kind == parts[at].kind);
    CHECK((*read)[at].dtype == parts[at].dtype);
    CHECK((*read)[at].shape == parts[at].shape);
    CHECK((*read)[at].shard == parts[at].shard);
    CHECK((*read)[at].offset == parts[at].offset);
  }
  std::vector<SlotPart> moved = parts;
  moved[0].offset += 8;
  CHECK(*FormatSlotManifest(moved) != *text);
}

TEST_CASE("slot manifest: a text that was changed is damaged, wherever it was") {
  const std::string text = *FormatSlotManifest(SomeParts());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK(absl::IsDataLoss(ParseSlotManifest(changed, kSlotBytes, "here").status()));
  }
  CHECK(absl::IsDataLoss(ParseSlotManifest(text.substr(0, 40), kSlotBytes, "here").status()));
  CHECK(absl::IsDataLoss(ParseSlotManifest("", kSlotBytes, "here").status()));
}

TEST_CASE("slot manifest: parts that cannot be in a slot are refused") {
  const auto refused = [](const std::string& why, const std::function<void(SlotPart&)>& change) {
    std::vector<SlotPart> parts = SomeParts();
    change(parts[0]);
    const absl::Status status = CheckSlotParts(parts, kSlotBytes);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("h.0.weight") && Contains(why));
    const absl::Status read =
        ParseSlotManifest(*FormatSlotManifest(parts), kSlotBytes, "here").status();
    CHECK(absl::IsDataLoss(read));
    CHECK_THAT(std::string(read.message()), Contains("here: ") && Contains(why));
  };
  CHECK(CheckSlotParts(SomeParts(), kSlotBytes).ok());
  refused("not in a slot of 4096", [](SlotPart& part) { part.offset = kSlotBytes - 23 * 8; });
  refused("not in a slot", [](SlotPart& part) { part.offset = ~uint64_t{7}; });
  refused("not in a slot", [](SlotPart& part) { part.offset = 196; });
  refused("begins in parameter 'h.1.weight'", [](SlotPart& part) { part.offset = 8; });
  refused("", [](SlotPart& part) { part.shard.interval = {0, 25}; });
  refused("no kind", [](SlotPart& part) { part.kind = "a b"; });
  // Touching is not overlapping, nor is a part of nothing.
  std::vector<SlotPart> parts = SomeParts();
  parts[0].offset = 16;
  CHECK(CheckSlotParts(parts, kSlotBytes).ok());
  parts[0] = PartOf("h.0.weight", {3, 3}, 8);
  CHECK(CheckSlotParts(parts, kSlotBytes).ok());
}

}  // namespace trireme::checkpoint
