#include "checkpoint/client/slot_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

// What says that files are of one set.
using SetKey = std::tuple<uint64_t, uint32_t, uint32_t>;  // layout, ranks, slots

bool IsFree(const SnapshotReader& file, Clock::time_point end) {
  while (!file.IsUnheld()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Of one step of one attempt of one run.
bool AreAlike(const SnapshotRecord& a, const SnapshotRecord& b) {
  return a.version == b.version && a.attempt == b.attempt && a.spec_hash == b.spec_hash;
}

class SlotPartReader final : public StoredPart {
 public:
  SlotPartReader(const SnapshotReader& file, uint32_t slot, const std::vector<SlotPart>& parts,
                 size_t first)
      : file_(file), slot_(slot), parts_(parts), first_(first), checked_(file.pieces()) {}

  absl::StatusOr<uint64_t> OffsetOf(size_t number) override {
    return parts_[number - first_].offset;
  }
  absl::Status Read(uint64_t offset, std::span<std::byte> target, std::string_view what) override {
    const uint64_t end = offset + target.size();
    for (uint64_t piece = offset / kPieceBytes; piece * kPieceBytes < end; ++piece) {
      if (checked_[piece]) continue;
      const absl::Status intact = file_.Verify(slot_, piece, piece + 1);
      if (!intact.ok()) {
        return absl::DataLossError(base::Text(base::MessageOf(intact), " (", what, " was wanted)"));
      }
      checked_[piece] = true;
    }
    const std::span<const std::byte> bytes = file_.bytes_of(slot_);
    std::memcpy(target.data(), bytes.data() + offset, target.size());
    return absl::OkStatus();
  }

 private:
  const SnapshotReader& file_;
  const uint32_t slot_;
  const std::vector<SlotPart>& parts_;
  const size_t first_;  // of its shards
  std::vector<bool> checked_;
};

}  // namespace

std::vector<SnapshotSet> FindSnapshotSets(const std::string& folder, uint64_t own, uint32_t slots,
                                          std::chrono::milliseconds wait,
                                          std::vector<std::string>* passed_over) {
  const Clock::time_point end = Clock::now() + wait;
  const auto pass_over = [&](const std::string& why) {
    if (passed_over != nullptr) passed_over->push_back(why);
  };
  std::map<SetKey, std::map<uint32_t, std::shared_ptr<const SnapshotReader>>> sets;
  base::VisitNames(folder, [&](const std::string& name) {
    if (!name.ends_with(kSnapshotFileEnding)) return;
    auto opened = SnapshotReader::Open(absl::StrCat(folder, "/", name));
    if (!opened.ok()) return pass_over(base::MessageOf(opened.status()));
    const SnapshotShape& shape = (*opened)->shape();
    if (shape.layout == own && shape.slots == slots) return;
    sets[{shape.layout, shape.ranks, shape.slots}][shape.rank] = *std::move(opened);
  }).IgnoreError();
  std::vector<SnapshotSet> complete;
  for (const auto& [key, files] : sets) {
    const uint32_t ranks = std::get<1>(key);
    const auto held = std::find_if(files.begin(), files.end(),
                                   [&](const auto& file) { return !IsFree(*file.second, end); });
    if (files.size() < ranks) {
      pass_over(absl::StrCat(folder, " has the memory of ", files.size(), " of ", ranks, " ranks"));
    } else if (held != files.end()) {
      pass_over(absl::StrCat(held->second->path(), " is held by a process that lives"));
    } else {
      SnapshotSet& set = complete.emplace_back();
      for (const auto& [rank, file] : files) set.push_back(file);
    }
  }
  return complete;
}

std::vector<SnapshotRecord> StagedByAll(const SnapshotSet& set) {
  std::vector<SnapshotRecord> all;
  for (uint32_t slot = 0; slot < set.front()->shape().slots; ++slot) {
    const std::optional<SnapshotRecord> record = set.front()->Staged(slot);
    if (!record.has_value()) continue;
    const bool everywhere = std::all_of(set.begin(), set.end(), [&](const auto& file) {
      const auto at = file->SlotOf(record->version);
      const auto other = at.has_value() ? file->Staged(*at) : std::nullopt;
      return other.has_value() && AreAlike(*other, *record);
    });
    if (everywhere) all.push_back(*record);
  }
  std::sort(all.begin(), all.end(),
            [](const SnapshotRecord& a, const SnapshotRecord& b) { return a.version > b.version; });
  return all;
}

absl::StatusOr<std::unique_ptr<SlotSource>> SlotSource::Make(SnapshotSet set,
                                                             const SnapshotRecord& version) {
  std::unique_ptr<SlotSource> source(new SlotSource);
  source->where_ = std::filesystem::path(set.front()->path()).parent_path();
  for (std::shared_ptr<const SnapshotReader>& file : set) {
    const std::optional<uint32_t> slot = file->SlotOf(version.version);
    const auto record = slot.has_value() ? file->Staged(*slot) : std::nullopt;
    if (!record.has_value() || !AreAlike(*record, version)) {
      return absl::DataLossError(
          absl::StrCat(file->path(), ": step ", version.version, " is not there any more"));
    }
    ASSIGN_OR_RETURN(std::vector<SlotPart> parts,
                     ParseSlotManifest(file->manifest(), file->shape().slot_bytes, file->path()));
    source->ranks_.push_back(
        {.file = std::move(file), .slot = *slot, .record = *record, .parts = std::move(parts)});
  }
  return source;
}

// What several ranks have alike is read from the first of them.
std::vector<StoredShard> SlotSource::shards() const {
  std::vector<StoredShard> all;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const layout::Shard*>> seen;
  size_t number = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const SlotPart& part : ranks_[rank].parts) {
      const size_t own = number++;
      std::vector<const layout::Shard*>& others = seen[{part.kind, part.name}];
      const bool again = std::any_of(others.begin(), others.end(), [&](const layout::Shard* other) {
        return *other == part.shard;
      });
      if (again) continue;
      others.push_back(&part.shard);
      all.push_back({.name = part.name,
                     .kind = part.kind,
                     .dtype = part.dtype,
                     .shape = &part.shape,
                     .shard = &part.shard,
                     .part = static_cast<uint32_t>(rank),
                     .number = own});
    }
  }
  return all;
}

absl::StatusOr<std::unique_ptr<StoredPart>> SlotSource::OpenPart(uint32_t part) const {
  size_t first = 0;
  for (uint32_t rank = 0; rank < part; ++rank) first += ranks_[rank].parts.size();
  const Held& held = ranks_[part];
  return std::make_unique<SlotPartReader>(*held.file, held.slot, held.parts, first);
}

absl::Status SlotSource::CheckUnchanged() const {
  for (const Held& held : ranks_) {
    if (held.file->Staged(held.slot) == held.record) continue;
    return absl::DataLossError(
        absl::StrCat(held.file->path(), " was written to while it was read"));
  }
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
