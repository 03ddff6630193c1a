// Snapshot files: what no writer made is refused, and death at any instruction leaves a whole
// version or none.
#include "checkpoint/format/snapshot.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/format/piece_table.h"
#include "checkpoint/format/snapshot_pins.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/checksum/lane_sums.h"

namespace trireme::checkpoint {
namespace {

struct alignas(8) Page {
  std::array<std::byte, kSnapshotPageBytes> bytes{};
};

SnapshotShape SampleShape() {
  SnapshotShape shape{.slots = 3,
                      .rank = 2,
                      .ranks = 5,
                      .key = {},
                      .layout = 77,
                      .slot_bytes = 3'000'000,
                      .manifest_bytes = 12'345};
  for (size_t i = 0; i < shape.key.size(); ++i) shape.key[i] = std::byte(i * 3);
  return shape;
}

SnapshotRecord SampleRecord(uint64_t version) {
  return {.version = version,
          .attempt = 4,
          .step = version + 2,
          .samples = version * 12,
          .skipped_steps = 2,
          .loss = 1.25 + static_cast<double>(version),
          .validation_loss = 1.5,
          .validation_step = 3,
          .spec_hash = version * 0x9E3779B97F4A7C15u,
          .sums_crc = static_cast<uint32_t>(version * 77)};
}

// Gives the header its guard anew, so that the rules behind the guard are reached.
template <typename T>
Page With(Page page, size_t offset, T value) {
  std::memcpy(page.bytes.data() + offset, &value, sizeof(value));
  const auto guarded = std::span(page.bytes).first(kSnapshotPageBytes - 4);
  const uint32_t crc = checksum::Crc32c(guarded);
  std::memcpy(page.bytes.data() + guarded.size(), &crc, sizeof(crc));
  return page;
}

std::vector<std::byte> Pattern(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = std::byte((3 + 7 * i) % 251);
  return bytes;
}

}  // namespace

TEST_CASE("snapshot: the parts of a file lie behind each other, each on its boundary") {
  for (const uint32_t slots : {2u, 3u, 8u}) {
    for (const uint64_t bytes : {uint64_t{1}, kPieceBytes, kPieceBytes + 1, uint64_t{2} << 20,
                                 (uint64_t{2} << 20) + 1, uint64_t{1} << 40, uint64_t{1} << 56}) {
      for (const uint64_t manifest : {0, 1, 4096, 4097}) {
        const auto places =
            PlacesOf({.slots = slots, .slot_bytes = bytes, .manifest_bytes = manifest});
        REQUIRE(places.ok());
        CHECK(places->record(slots) <= places->pins);
        CHECK(places->pins + kSnapshotPageBytes <= places->manifest);
        CHECK(places->manifest + manifest <= places->sums);
        CHECK(places->sums_bytes / 8 >= PieceCount(bytes));
        CHECK(places->sums_of(slots) <= places->data);
        CHECK(places->slot_bytes >= bytes);
        CHECK(places->data_of(slots) == places->file_bytes);
        for (uint32_t slot = 0; slot < slots; ++slot) {
          CHECK(places->data_of(slot) % (2 << 20) == 0);
          CHECK(places->sums_of(slot) % 4096 == 0);
        }
      }
    }
  }
  CHECK_FALSE(PlacesOf({.slots = 1, .slot_bytes = 1}).ok());
  CHECK_FALSE(PlacesOf({.slots = 9, .slot_bytes = 1}).ok());
  CHECK_FALSE(PlacesOf({.slots = 2, .slot_bytes = 0}).ok());
  CHECK_FALSE(PlacesOf({.slots = 2, .slot_bytes = ~uint64_t{0}}).ok());
  CHECK_FALSE(PlacesOf({.slots = 2, .slot_bytes = 1, .manifest_bytes = ~uint64_t{0}}).ok());
  CHECK_FALSE(PlacesOf({.slots = 2, .rank = 4, .ranks = 4, .slot_bytes = 1}).ok());
}

TEST_CASE("snapshot: a header is read as it was written, and nothing else is read") {
  const SnapshotShape shape = SampleShape();
  const uint64_t file_bytes = PlacesOf(shape)->file_bytes;
  Page page;
  FormatSnapshotHeader(shape, page.bytes);
  const auto read = ParseSnapshotHeader(page.bytes, file_bytes);
  REQUIRE(read.ok());
  CHECK(*read == shape);
  for (const uint64_t other : {uint64_t{0}, file_bytes - 1, file_bytes + 1}) {
    CHECK(absl::IsDataLoss(ParseSnapshotHeader(page.bytes, other).status()));
  }
  for (size_t at = 0; at < page.bytes.size(); ++at) {
    page.bytes[at] ^= std::byte{0x20};
    CHECK_FALSE(ParseSnapshotHeader(page.bytes, file_bytes).ok());
    page.bytes[at] ^= std::byte{0x20};
  }
  const auto code = [&](const Page& mutant) {
    return ParseSnapshotHeader(mutant.bytes, file_bytes).status().code();
  };
  CHECK(code(With(page, 8, uint32_t{1})) == absl::StatusCode::kFailedPrecondition);
  CHECK(code(With(page, 8, uint32_t{3})) == absl::StatusCode::kFailedPrecondition);
  CHECK(code(With(page, 12, uint32_t{0})) == absl::StatusCode::kDataLoss);
  CHECK(code(With(page, 12, uint32_t{4})) == absl::StatusCode::kDataLoss);
  CHECK(code(With(page, 16, uint32_t{5})) == absl::StatusCode::kDataLoss);
  for (const size_t size : {56, 72}) {
    CHECK(code(With(page, size, uint64_t{0})) == absl::StatusCode::kDataLoss);
    CHECK(code(With(page, size, ~uint64_t{0})) == absl::StatusCode::kDataLoss);
  }
  for (const size_t place : {48, 64, 80, 88, 96, 104}) {
    CHECK(code(With(page, place, uint64_t{12'288})) == absl::StatusCode::kDataLoss);
  }
  // A later writer of version 2 may say more.
  CHECK(code(With(page, 200, uint64_t{1})) == absl::StatusCode::kOk);
}

TEST_CASE("snapshot: a slot has a version from its staging to the next beginning") {
  Page page;
  SnapshotSlot slot(page.bytes);
  CHECK_FALSE(slot.Staged().has_value());
  CHECK(absl::IsInvalidArgument(slot.Begin(kMostSnapshotVersion + 1)));
  CHECK(slot.phase() == SnapshotPhase::kEmpty);
  for (const uint64_t version : {uint64_t{0}, uint64_t{7}, kMostSnapshotVersion}) {
    REQUIRE(slot.Begin(version).ok());
    CHECK(slot.phase() == SnapshotPhase::kWriting);
    CHECK_FALSE(slot.Staged().has_value());
    CHECK(absl::IsFailedPrecondition(slot.Stage(SampleRecord(version + 1))));
    CHECK_FALSE(slot.Staged().has_value());
    REQUIRE(slot.Stage(SampleRecord(version)).ok());
    CHECK(absl::IsFailedPrecondition(slot.Stage(SampleRecord(version))));
    REQUIRE(slot.Staged().has_value());
    CHECK(*slot.Staged() == SampleRecord(version));
  }
  for (size_t at = 0; at < page.bytes.size(); ++at) {
    page.bytes[at] ^= std::byte{0x04};
    CHECK_FALSE(slot.Staged().has_value());
    page.bytes[at] ^= std::byte{0x04};
  }
  slot.Clear();
  CHECK(slot.phase() == SnapshotPhase::kEmpty);
  CHECK_FALSE(slot.Staged().has_value());
}

// The writer that a rank is: two slots in turn, and a state whose words all say the version.
TEST_CASE("snapshot: a writer that is killed at any moment leaves a version that is whole") {
  constexpr size_t kStateWords = 512, kSlotBytes = kSnapshotPageBytes + kStateWords * 8;
  auto* memory = static_cast<std::byte*>(
      mmap(nullptr, 2 * kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  // As another process has it, which may not write.
  void* again = mremap(memory, 0, 2 * kSlotBytes, MREMAP_MAYMOVE);
  REQUIRE(again != MAP_FAILED);
  REQUIRE(mprotect(again, 2 * kSlotBytes, PROT_READ) == 0);
  const auto* read_alone = static_cast<const std::byte*>(again);
  const auto slot = [&](uint64_t index) {
    return SnapshotSlot(SnapshotPage(memory + index * kSlotBytes, kSnapshotPageBytes));
  };
  const auto state = [&](uint64_t index) {
    return reinterpret_cast<volatile uint64_t*>(memory + index * kSlotBytes + kSnapshotPageBytes);
  };
  uint64_t version = 0;  // of the last writer, as far as its successor knows
  for (int round = 0; round < 50; ++round) {
    const pid_t writer = fork();
    REQUIRE(writer >= 0);
    if (writer == 0) {
      for (uint64_t v = version + 1;; ++v) {
        if (!slot(v % 2).Begin(v).ok()) _exit(1);
        for (size_t i = 0; i < kStateWords; ++i) state(v % 2)[i] = v;
        if (!slot(v % 2).Stage(SampleRecord(v)).ok()) _exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 + 97 * round));
    kill(writer, SIGKILL);
    REQUIRE(waitpid(writer, nullptr, 0) == writer);
    uint64_t newest = 0;
    for (uint64_t index = 0; index < 2; ++index) {
      const auto staged =
          SnapshotSlotView(ConstSnapshotPage(read_alone + index * kSlotBytes, kSnapshotPageBytes))
              .Staged();
      if (!staged.has_value()) continue;
      CHECK(*staged == SampleRecord(staged->version));
      bool whole = true;
      for (size_t i = 0; i < kStateWords; ++i) whole = whole && state(index)[i] == staged->version;
      CHECK(whole);
      newest = std::max(newest, staged->version);
    }
    CHECK(newest >= version);  // whatever was whole before
    version = newest;
  }
  CHECK(version > 50);
  munmap(memory, 2 * kSlotBytes);
  munmap(again, 2 * kSlotBytes);
}

// By what TSan says.
TEST_CASE("snapshot: threads that add runs to one piece lose none") {
  constexpr uint64_t kTimes = 10'000;
  checksum::LaneSums run, piece;
  run.words.fill(3);
  run.sums.fill(5);
  const checksum::RunPlace place{.first_word = 0, .rows = 1, .piece_rows = 1};
  std::atomic<int> there{0};
  const auto add = [&] {
    for (++there; there < 2;) std::this_thread::yield();
    for (uint64_t time = 0; time < kTimes; ++time) checksum::AddRunBesideOthers(run, place, piece);
  };
  std::thread other(add);
  add();
  other.join();
  for (size_t lane = 0; lane < checksum::LaneSums::kLanes; ++lane) {
    CHECK(piece.words[lane] == 2 * kTimes * 3);
    CHECK(piece.sums[lane] == 2 * kTimes * 5);
  }
}

TEST_CASE("snapshot: a file of version 2 that was stored is read as its page says") {
  std::ifstream file(
      std::string(TRIREME_SOURCE_DIR) + "/tests/checkpoint/fixtures/snapshot_version_2.bin",
      std::ios::binary);
  const std::vector<char> stored{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(stored.size() == 4 * kSnapshotPageBytes + 16);
  std::array<Page, 4> pages;
  std::memcpy(&pages, stored.data(), sizeof(pages));
  const auto shape = ParseSnapshotHeader(pages[0].bytes, (2 << 20) * 3);
  INFO(shape.status().ToString());
  REQUIRE(shape.ok());
  CHECK(shape->slots == 2);
  CHECK(shape->rank == 3);
  CHECK(shape->ranks == 8);
  CHECK(shape->key[15] == std::byte{15});
  CHECK(shape->layout == 0x1122334455667788u);
  CHECK(shape->slot_bytes == 70'000);
  CHECK(shape->manifest_bytes == 5'000);
  const auto record = SnapshotSlot(pages[1].bytes).Staged();
  REQUIRE(record.has_value());
  CHECK(*record ==
        SnapshotRecord{.version = 41,
                       .attempt = 2,
                       .step = 42,
                       .samples = 4000,
                       .skipped_steps = 1,
                       .loss = 2.5,
                       .validation_loss = 2.75,
                       .validation_step = 40,
                       .spec_hash = 0xFEDCBA9876543210u,
                       .sums_crc = checksum::Crc32c(
                           std::as_bytes(std::span(stored)).subspan(4 * kSnapshotPageBytes))});
  CHECK_FALSE(SnapshotSlot(pages[2].bytes).Staged().has_value());
  CHECK(SnapshotSlot(pages[2].bytes).begun() == SlotState{SnapshotPhase::kWriting, 42});
  CHECK(PlacesOf(*shape)->pins == 3 * kSnapshotPageBytes);
  CHECK(ReadPins(pages[3].bytes) == PinnedVersions{41, 57});
  const std::vector<std::byte> state = Pattern(70'000);
  std::array<uint64_t, 2> sums;
  std::memcpy(sums.data(), stored.data() + sizeof(pages), sizeof(sums));
  CHECK(checksum::SumOfPiece(std::span(state).first(kPieceBytes)) == sums[0]);
  CHECK(checksum::SumOfPiece(std::span(state).subspan(kPieceBytes)) == sums[1]);
}

}  // namespace trireme::checkpoint
