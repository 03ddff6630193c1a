#include "worker/snapshots.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/format/slot_manifest.h"
#include "runtime/base/fnv1a.h"
#include "runtime/base/random_hex.h"
#include "runtime/base/status_macros.h"
#include "worker/run_files.h"

namespace trireme::worker {

using checkpoint::SnapshotFile;
using checkpoint::SnapshotKey;

namespace {

// Numbers of starts that are no attempts of a keeper.
constexpr uint64_t kFirstDrawn = uint64_t{1} << 63;

uint64_t DrawnNumber() {
  uint64_t number = 0;
  const std::string digits = base::RandomHex(16);
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number | kFirstDrawn;
}

// As told to the other ranks; of zeros where a slot holds nothing.
struct Told {
  uint64_t version = 0, attempt = 0, hash = 0;
  bool operator==(const Told&) const = default;
};
using AllTold = std::array<Told, checkpoint::kMostSnapshotSlots>;

AllTold TellOf(const SnapshotFile& file) {
  AllTold told;
  for (uint32_t slot = 0; slot < file.shape().slots; ++slot) {
    const auto record = file.Staged(slot);
    if (record) told[slot] = {record->version, record->attempt, record->spec_hash};
  }
  return told;
}

bool Holds(const AllTold& rank, const Told& version) {
  return std::find(rank.begin(), rank.end(), version) != rank.end();
}

bool IsWanted(const Told& version, const WantedVersion& wanted) {
  const bool of_attempt = wanted.first_attempt == 0 || (version.attempt >= wanted.first_attempt &&
                                                        version.attempt < kFirstDrawn);
  const bool of_step = version.version <= wanted.most_steps &&
                       (wanted.before == 0 || version.version < wanted.before);
  return of_attempt && of_step && version.hash == wanted.hash;
}

// Of those that all hold; zeros: none.
Told NewestOfAll(const std::vector<AllTold>& ranks, const WantedVersion& wanted) {
  Told newest;
  for (const Told& each : ranks[0]) {
    if (each.version <= newest.version || !IsWanted(each, wanted)) continue;
    const bool all = std::all_of(ranks.begin(), ranks.end(),
                                 [&](const AllTold& rank) { return Holds(rank, each); });
    if (all) newest = each;
  }
  return newest;
}

absl::Status VerifyAll(const SnapshotFile& file, uint32_t slot, int threads) {
  const auto parts = static_cast<size_t>(std::max(threads, 1));
  std::vector<absl::Status> found(parts);
  std::vector<std::thread> others;
  const auto part = [&](size_t index) {
    const size_t pieces = file.pieces();
    found[index] = file.Verify(slot, pieces * index / parts, pieces * (index + 1) / parts);
  };
  for (size_t index = 1; index < parts; ++index) others.emplace_back(part, index);
  part(0);
  for (std::thread& other : others) other.join();
  for (const absl::Status& status : found) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

Snapshots::Snapshots(comm::Agreement& ranks, SnapshotOptions options)
    : ranks_(ranks), options_(std::move(options)) {}

// Where no attempts are counted, a drawn number tells one start from another: a file that a node
// has kept from a start before the last one is of another attempt.
absl::StatusOr<SnapshotKey> Snapshots::ShareKey() {
  struct {
    SnapshotKey key{};
    uint64_t attempt = 0;
  } shared;
  absl::Status own;
  if (ranks_.rank() == 0) {
    const auto key = checkpoint::ReadOrDrawSnapshotKey(options_.run_folder);
    own = OfDisk(key.status());
    if (key.ok()) shared.key = *key;
    shared.attempt = options_.attempt > 0 ? options_.attempt : DrawnNumber();
  }
  RETURN_IF_ERROR(ranks_.AllOk(own, comm::kDiskDeadline));
  RETURN_IF_ERROR(
      ranks_.Broadcast(std::as_writable_bytes(std::span(&shared, 1)), 0, comm::kDiskDeadline));
  attempt_ = shared.attempt;
  return shared.key;
}

absl::StatusOr<tensor::HostPages> Snapshots::Pages(const engine::SnapshotSlots& slots) {
  ASSIGN_OR_RETURN(const SnapshotKey key, ShareKey());
  std::vector<checkpoint::SlotPart> parts;
  for (const engine::SnapshotPart& part : slots.parts) {
    parts.push_back({.name = part.name,
                     .kind = part.kind,
                     .dtype = part.dtype,
                     .shape = part.shape,
                     .shard = part.shard,
                     .offset = part.offset});
  }
  const auto manifest = checkpoint::FormatSlotManifest(parts);
  RETURN_IF_ERROR(ranks_.AllOk(manifest.status(), comm::kDiskDeadline));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> hashes,
                   ranks_.Gather(base::Fnv1a(*manifest), comm::kDiskDeadline));
  const std::string_view all(reinterpret_cast<const char*>(hashes.data()),
                             hashes.size() * sizeof(uint64_t));
  const absl::Status opened =
      ranks_.AllOk(Open(slots, key, *manifest, base::Fnv1a(all)), comm::kDiskDeadline);
  if (!opened.ok()) RemoveIfUnused();
  RETURN_IF_ERROR(opened);
  return tensor::HostPages{.bytes = file_->data(), .owner = file_};
}

absl::Status Snapshots::Open(const engine::SnapshotSlots& slots, const SnapshotKey& key,
                             const std::string& manifest, uint64_t layout) {
  ASSIGN_OR_RETURN(file_,
                   SnapshotFile::Open({.root = options_.root,
                                       .shape = {.slots = slots.count,
                                                 .rank = static_cast<uint32_t>(ranks_.rank()),
                                                 .ranks = static_cast<uint32_t>(ranks_.size()),
                                                 .key = key,
                                                 .layout = layout,
                                                 .slot_bytes = slots.slot_bytes},
                                       .manifest = manifest,
                                       .lock_wait = options_.lock_wait}));
  return absl::OkStatus();
}

void Snapshots::Clear(uint32_t slot) { file_->Clear(slot); }

// No step has a number that no version can have.
void Snapshots::Begin(uint32_t slot, uint64_t step) { file_->Begin(slot, step).IgnoreError(); }

absl::Status Snapshots::Stage(uint32_t slot, const engine::StagedStep& step,
                              std::span<const uint64_t> sums) {
  checkpoint::SnapshotRecord record{.version = step.step,
                                    .attempt = attempt_,
                                    .step = step.step,
                                    .skipped_steps = static_cast<uint64_t>(step.skipped_steps),
                                    .loss = step.loss};
  {
    const absl::MutexLock lock(&mutex_);
    record.samples = step.step * run_.samples_per_step;
    record.validation_loss = run_.validation_loss;
    record.validation_step = run_.validation_step;
    record.spec_hash = run_.hash;
  }
  used_ = true;
  return file_->Stage(slot, record, sums);
}

void Snapshots::set_run(const SnapshotRun& run) {
  const absl::MutexLock lock(&mutex_);
  run_ = run;
}

absl::StatusOr<std::optional<HeldVersion>> Snapshots::Choose(const WantedVersion& wanted,
                                                             int threads) {
  if (file_ == nullptr) return std::optional<HeldVersion>();
  while (true) {
    const AllTold own = TellOf(*file_);
    ASSIGN_OR_RETURN(const std::vector<AllTold> all, ranks_.Gather(own, comm::kDiskDeadline));
    const Told newest = NewestOfAll(all, wanted);
    if (newest.version == 0) return std::optional<HeldVersion>();
    const auto slot =
        static_cast<uint32_t>(std::find(own.begin(), own.end(), newest) - own.begin());
    const absl::Status intact = VerifyAll(*file_, slot, threads);
    const std::optional<checkpoint::SnapshotRecord> record = file_->Staged(slot);
    if (!intact.ok()) {
      spdlog::warn("rank {}: passed over step {} in memory: {}", ranks_.rank(), newest.version,
                   base::MessageOf(intact));
      file_->Clear(slot);
    }
    ASSIGN_OR_RETURN(const bool good, ranks_.AllAgree(intact.ok(), comm::kDiskDeadline));
    if (good) return HeldVersion{.slot = slot, .record = *record};
  }
}

// What is older came before it: a start from elsewhere clears all. Parity may be made of that.
absl::Status Snapshots::KeepOnly(const HeldVersion& version) {
  const checkpoint::PinnedVersions pins = file_->pins();
  for (uint32_t slot = 0; slot < file_->shape().slots; ++slot) {
    const auto other = file_->Staged(slot);
    const bool before = other.has_value() && other->version < version.record.version;
    const bool wanted = before && std::find(pins.begin(), pins.end(), other->version) != pins.end();
    if (slot != version.slot && !wanted) file_->Clear(slot);
  }
  return ranks_.AllAgree(true, comm::kDiskDeadline).status();
}

// Others may be about to go on from theirs: theirs stay.
void Snapshots::RemoveIfUnused() {
  if (file_ == nullptr || file_->found() || used_) return;
  std::error_code ignored;
  std::filesystem::remove(file_->path(), ignored);
  std::filesystem::remove(std::filesystem::path(file_->path()).parent_path(), ignored);
}

void Snapshots::Remove() {
  if (file_ != nullptr) file_->Remove();
}

}  // namespace trireme::worker
