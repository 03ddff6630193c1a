#include "checkpoint/format/snapshot.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/checksum/lane_sums.h"

namespace trireme::checkpoint {
namespace {

constexpr char kMagic[] = "TRIRSNAP";
constexpr uint32_t kVersion = 2;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kSumBytes = 8;  // of a piece
static_assert(kPieceBytes == checksum::kSummedBytes);
constexpr uint64_t kGuarded = kSnapshotPageBytes - sizeof(uint32_t);
// Far above any file, and far below where sums of sizes would leave 64 bits.
constexpr uint64_t kMostBytes = uint64_t{1} << 56;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

template <typename T>
void Put(std::span<std::byte> page, size_t offset, const T& value) {
  std::memcpy(page.data() + offset, &value, sizeof(value));
}
template <typename T>
T Get(std::span<const std::byte> page, size_t offset) {
  T value;
  std::memcpy(&value, page.data() + offset, sizeof(value));
  return value;
}

uint32_t Guard(std::span<const std::byte> page) {
  return checksum::Crc32c(page.first(static_cast<size_t>(kGuarded)));
}

// Offsets of a record's fields.
constexpr size_t kAttempt = 8, kStep = 16, kSamples = 24, kSkipped = 32, kLoss = 40,
                 kValidationLoss = 48, kValidationStep = 56, kSpecHash = 64, kSumsCrc = 72,
                 kRecordEnd = 80;

constexpr uint64_t WordOf(uint64_t version, SnapshotPhase phase) {
  return version << 2 | static_cast<uint64_t>(phase);
}

void FormatRecord(const SnapshotRecord& record, std::span<std::byte> page) {
  Put(page, 0, WordOf(record.version, SnapshotPhase::kStaged));
  Put(page, kAttempt, record.attempt);
  Put(page, kStep, record.step);
  Put(page, kSamples, record.samples);
  Put(page, kSkipped, record.skipped_steps);
  Put(page, kLoss, record.loss);
  Put(page, kValidationLoss, record.validation_loss);
  Put(page, kValidationStep, record.validation_step);
  Put(page, kSpecHash, record.spec_hash);
  Put(page, kSumsCrc, uint64_t{record.sums_crc});
  std::memset(page.data() + kRecordEnd, 0, static_cast<size_t>(kGuarded) - kRecordEnd);
  Put(page, static_cast<size_t>(kGuarded), Guard(page));
}

}  // namespace

absl::StatusOr<SnapshotPlaces> PlacesOf(const SnapshotShape& shape) {
  if (shape.slots < 2 || shape.slots > kMostSnapshotSlots || shape.rank >= shape.ranks ||
      shape.slot_bytes == 0 || shape.slot_bytes > kMostBytes || shape.manifest_bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no snapshot file has ", shape.slots, " slots of ", shape.slot_bytes,
        " bytes and a manifest of ", shape.manifest_bytes, " for rank ", shape.rank, " of ",
        shape.ranks, "; expected 2 to ", kMostSnapshotSlots, " slots that are not empty"));
  }
  SnapshotPlaces places;
  places.pins = kSnapshotPageBytes * (1 + uint64_t{shape.slots});
  places.manifest = places.pins + kSnapshotPageBytes;
  places.sums = RoundUp(places.manifest + shape.manifest_bytes, kSnapshotPageBytes);
  places.sums_bytes = RoundUp(PieceCount(shape.slot_bytes) * kSumBytes, kSnapshotPageBytes);
  places.data = RoundUp(places.sums + places.sums_bytes * shape.slots, kHugePage);
  places.slot_bytes = RoundUp(shape.slot_bytes, kHugePage);
  places.file_bytes = places.data + places.slot_bytes * shape.slots;
  return places;
}

void FormatSnapshotHeader(const SnapshotShape& shape, SnapshotPage page) {
  const absl::StatusOr<SnapshotPlaces> places = PlacesOf(shape);
  TRIREME_CHECK(places.ok());
  std::memset(page.data(), 0, page.size());
  std::memcpy(page.data(), kMagic, 8);
  Put(page, 8, kVersion);
  Put(page, 12, shape.slots);
  Put(page, 16, shape.rank);
  Put(page, 20, shape.ranks);
  Put(page, 24, shape.key);
  Put(page, 40, shape.layout);
  Put(page, 48, kPieceBytes);
  Put(page, 56, shape.slot_bytes);
  Put(page, 64, places->manifest);
  Put(page, 72, shape.manifest_bytes);
  Put(page, 80, places->sums);
  Put(page, 88, places->sums_bytes);
  Put(page, 96, places->data);
  Put(page, 104, places->file_bytes);
  Put(page, static_cast<size_t>(kGuarded), Guard(page));
}

absl::StatusOr<SnapshotShape> ParseSnapshotHeader(ConstSnapshotPage page, uint64_t file_bytes) {
  if (std::memcmp(page.data(), kMagic, 8) != 0) {
    return absl::DataLossError("it does not begin as a snapshot file does");
  }
  if (const auto version = Get<uint32_t>(page, 8); version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of version ", version, " of the format, this program reads ", kVersion));
  }
  if (Get<uint32_t>(page, static_cast<size_t>(kGuarded)) != Guard(page)) {
    return absl::DataLossError("the checksum of its header is wrong");
  }
  const SnapshotShape shape{.slots = Get<uint32_t>(page, 12),
                            .rank = Get<uint32_t>(page, 16),
                            .ranks = Get<uint32_t>(page, 20),
                            .key = Get<SnapshotKey>(page, 24),
                            .layout = Get<uint64_t>(page, 40),
                            .slot_bytes = Get<uint64_t>(page, 56),
                            .manifest_bytes = Get<uint64_t>(page, 72)};
  const absl::StatusOr<SnapshotPlaces> places = PlacesOf(shape);
  if (!places.ok()) return absl::DataLossError(places.status().message());
  std::array<std::byte, kSnapshotPageBytes> expected;
  FormatSnapshotHeader(shape, expected);
  // Offsets follow from the shape. What version 2 leaves unknown may be anything.
  constexpr size_t kKnown = 112;
  if (std::memcmp(page.data(), expected.data(), kKnown) != 0) {
    return absl::DataLossError("its header says other places than its sizes give");
  }
  if (file_bytes != places->file_bytes) {
    return absl::DataLossError(
        absl::StrCat("it has ", file_bytes, " bytes, its header says ", places->file_bytes));
  }
  return shape;
}

uint64_t SnapshotSlotView::Load() const {
  // C++20 has no atomic_ref of what is const; a load of a word writes nothing.
  auto* word = const_cast<std::byte*>(page_.data());
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(word)).load(std::memory_order_seq_cst);
}

void SnapshotSlot::Store(uint64_t word) {
  std::atomic_ref(*reinterpret_cast<uint64_t*>(page_.data()))
      .store(word, std::memory_order_seq_cst);
}

absl::Status SnapshotSlot::Begin(uint64_t version) {
  if (version > kMostSnapshotVersion) {
    return absl::InvalidArgumentError(absl::StrCat("no version is ", version));
  }
  Store(WordOf(version, SnapshotPhase::kWriting));
  // What is stored from here on must not be seen before the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return absl::OkStatus();
}

absl::Status SnapshotSlot::CheckWriting(uint64_t version) const {
  const uint64_t word = Load();
  if (word == WordOf(version, SnapshotPhase::kWriting)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the slot in which version ", version, " was written is now in phase ", word & 3,
                   " of version ", word >> 2, ": another process has written to it"));
}

absl::Status SnapshotSlot::Stage(const SnapshotRecord& record) {
  RETURN_IF_ERROR(CheckWriting(record.version));
  std::array<std::byte, kSnapshotPageBytes> page;
  FormatRecord(record, page);
  constexpr size_t kWord = sizeof(uint64_t);
  std::memcpy(page_.data() + kWord, page.data() + kWord, page.size() - kWord);
  Store(WordOf(record.version, SnapshotPhase::kStaged));
  return absl::OkStatus();
}

void SnapshotSlot::Clear() { Store(WordOf(0, SnapshotPhase::kEmpty)); }

SlotState SnapshotSlotView::begun() const {
  const uint64_t word = Load();
  const uint64_t phase = word & 3;
  if (phase == 0 || phase > 2) return {};
  return {.phase = static_cast<SnapshotPhase>(phase), .version = word >> 2};
}

std::optional<SnapshotRecord> SnapshotSlotView::Staged() const {
  const uint64_t word = Load();
  if ((word & 3) != static_cast<uint64_t>(SnapshotPhase::kStaged)) return std::nullopt;
  std::array<std::byte, kSnapshotPageBytes> page;
  std::memcpy(page.data(), page_.data(), page.size());
  std::atomic_thread_fence(std::memory_order_acquire);
  Put<uint64_t>(page, 0, word);
  if (Load() != word) return std::nullopt;  // another version has begun meanwhile
  if (Get<uint32_t>(page, static_cast<size_t>(kGuarded)) != Guard(page)) return std::nullopt;
  return SnapshotRecord{.version = word >> 2,
                        .attempt = Get<uint64_t>(page, kAttempt),
                        .step = Get<uint64_t>(page, kStep),
                        .samples = Get<uint64_t>(page, kSamples),
                        .skipped_steps = Get<uint64_t>(page, kSkipped),
                        .loss = Get<double>(page, kLoss),
                        .validation_loss = Get<double>(page, kValidationLoss),
                        .validation_step = Get<uint64_t>(page, kValidationStep),
                        .spec_hash = Get<uint64_t>(page, kSpecHash),
                        .sums_crc = static_cast<uint32_t>(Get<uint64_t>(page, kSumsCrc))};
}

}  // namespace trireme::checkpoint
