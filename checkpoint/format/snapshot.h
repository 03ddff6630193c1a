// Snapshot files (docs/formats/snapshot.md): the training state of one rank in memory that outlives
// it. The header says what lies where; the record of a slot, which version of the state is whole in
// it: one word that is stored last, so that death at any instruction leaves a version or none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::checkpoint {

inline constexpr uint64_t kSnapshotPageBytes = 4096;
using SnapshotKey = std::array<std::byte, 16>;

// What never changes while a file exists.
struct SnapshotShape {
  uint32_t slots = 2;  // 2 to kMostSnapshotSlots
  uint32_t rank = 0, ranks = 1;
  SnapshotKey key{};        // of the run folder
  uint64_t layout = 0;      // equal where all ranks hold the same parts
  uint64_t slot_bytes = 0;  // of the state itself, above 0
  uint64_t manifest_bytes = 0;

  bool operator==(const SnapshotShape&) const = default;
};
inline constexpr uint32_t kMostSnapshotSlots = 8;

// Where the parts of a file are, in bytes from its first.
struct SnapshotPlaces {
  uint64_t pins = 0;  // a page of its own (snapshot_pins.h)
  uint64_t manifest = 0;
  uint64_t sums = 0, sums_bytes = 0;  // of slot 0; of each slot
  uint64_t data = 0, slot_bytes = 0;  // likewise, in whole huge pages
  uint64_t file_bytes = 0;

  uint64_t record(uint32_t slot) const { return kSnapshotPageBytes * (1 + uint64_t{slot}); }
  uint64_t sums_of(uint32_t slot) const { return sums + sums_bytes * slot; }
  uint64_t data_of(uint32_t slot) const { return data + slot_bytes * slot; }
};
// InvalidArgument for sizes that no file can have.
absl::StatusOr<SnapshotPlaces> PlacesOf(const SnapshotShape& shape);

using SnapshotPage = std::span<std::byte, kSnapshotPageBytes>;
using ConstSnapshotPage = std::span<const std::byte, kSnapshotPageBytes>;

// `shape` must have places.
void FormatSnapshotHeader(const SnapshotShape& shape, SnapshotPage page);
// DataLoss where the bytes are damaged or say what cannot be, FailedPrecondition where they are of
// another version of the format.
absl::StatusOr<SnapshotShape> ParseSnapshotHeader(ConstSnapshotPage page, uint64_t file_bytes);

// What a version of the state is, beside the state.
struct SnapshotRecord {
  uint64_t version = 0;  // the step that was done last and updated the state
  uint64_t attempt = 0;
  uint64_t step = 0, samples = 0;  // as CheckpointInfo has them
  uint64_t skipped_steps = 0;
  double loss = 0, validation_loss = 0;
  uint64_t validation_step = 0;
  uint64_t spec_hash = 0;
  uint32_t sums_crc = 0;  // CRC32C of the slot's sums: 8 bytes for each piece

  bool operator==(const SnapshotRecord&) const = default;
};
inline constexpr uint64_t kMostSnapshotVersion = ~uint64_t{0} >> 2;

enum class SnapshotPhase : uint8_t { kEmpty = 0, kWriting = 1, kStaged = 2 };

// The word of a slot's record, without a look at the record's guard.
struct SlotState {
  SnapshotPhase phase = SnapshotPhase::kEmpty;
  uint64_t version = 0;  // that is being written, or staged

  bool operator==(const SlotState&) const = default;
};

// The record of one slot where it lies: shared memory of one writer and any number of readers, who
// may have it for reading alone. `page` is aligned to 8 bytes and outlives this.
class SnapshotSlotView {
 public:
  explicit SnapshotSlotView(ConstSnapshotPage page) : page_(page) {}

  SnapshotPhase phase() const { return begun().phase; }
  // What has begun here, whole or not. Sequentially consistent.
  SlotState begun() const;
  // The version that is whole here; none: nothing is, or the record is damaged. A writer that lives
  // may begin another one at any time: what was read of the state holds only if this still gives
  // the same afterwards.
  std::optional<SnapshotRecord> Staged() const;

 protected:
  uint64_t Load() const;

 private:
  ConstSnapshotPage page_;
};

// The same for its writer.
class SnapshotSlot : public SnapshotSlotView {
 public:
  explicit SnapshotSlot(SnapshotPage page) : SnapshotSlotView(page), page_(page) {}

  // Before the first byte of the slot's state changes. InvalidArgument: no version is that large.
  absl::Status Begin(uint64_t version);
  // FailedPrecondition: the slot is not being written with that version; somebody else has been
  // here, and nothing in it is to be trusted.
  absl::Status CheckWriting(uint64_t version) const;
  // After the last one, by whatever threads: what they have stored past their caches they have
  // flushed, and this thread knows that they are done. `record.version` is that of Begin. Errors:
  // those of CheckWriting.
  absl::Status Stage(const SnapshotRecord& record);
  // Nothing whole is in the slot from here on.
  void Clear();

 private:
  void Store(uint64_t word);

  SnapshotPage page_;
};

}  // namespace trireme::checkpoint
