#include "worker/snapshots.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/client/snapshot_sweep.h"
#include "checkpoint/format/slot_manifest.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/fnv1a.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/own_program.h"
#include "runtime/base/random_hex.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "worker/run_files.h"

namespace trireme::worker {

using checkpoint::SnapshotFile;
using checkpoint::SnapshotKey;
using checkpoint::SnapshotShape;

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

// What a rank's file takes, and of which file system in memory.
struct Need {
  uint64_t memory = 0;  // alike for ranks that share it
  uint64_t file_bytes = 0;
  uint64_t all_bytes = 0;  // that it can hold for all of them; 0: it has no bound
};

Need NeedIn(const std::string& root, uint64_t file_bytes) {
  Need need{.file_bytes = file_bytes};
  struct stat about {};
  struct statvfs space {};
  if (stat(root.c_str(), &about) != 0 || statvfs(root.c_str(), &space) != 0) return need;
  need.memory = base::Fnv1a(absl::StrCat(base::BootId(), " ", about.st_dev));
  need.all_bytes = uint64_t{space.f_blocks} * space.f_frsize;
  return need;
}

// Of the ranks that share a memory.
struct Shared {
  int first_rank = -1;
  int ranks = 0;
  uint64_t bytes = 0;
};

Shared SharedOf(const std::vector<Need>& needs, uint64_t memory) {
  Shared shared;
  for (size_t rank = 0; rank < needs.size(); ++rank) {
    if (needs[rank].memory != memory) continue;
    if (shared.ranks++ == 0) shared.first_rank = static_cast<int>(rank);
    shared.bytes += needs[rank].file_bytes;
  }
  return shared;
}

// Of memory, by an attempt before this one.
uint64_t TakenBy(const std::string& file) {
  struct stat about {};
  return lstat(file.c_str(), &about) == 0 ? static_cast<uint64_t>(about.st_blocks) * 512 : 0;
}
// By files of one layout.
uint64_t TakenIn(const std::string& folder, const std::string& end) {
  uint64_t taken = 0;
  base::VisitNames(folder, [&](const std::string& name) {
    if (name.ends_with(end)) taken += TakenBy(folder + "/" + name);
  }).IgnoreError();
  return taken;
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

Snapshots::~Snapshots() {
  if (remover_.joinable()) remover_.join();
}

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

// The layout is not known yet. Where it is another one, the files of the old are given back late.
uint64_t Snapshots::BytesThere() const {
  const auto key = checkpoint::ReadSnapshotKey(options_.run_folder);
  if (!key.ok()) return 0;
  const std::string folder = checkpoint::SnapshotFolder(options_.root, *key);
  const std::string begin = checkpoint::SnapshotNameBegin(static_cast<uint32_t>(ranks_.rank()));
  uint64_t most = 0;
  base::VisitNames(folder, [&](const std::string& name) {
    if (name.starts_with(begin)) most = std::max(most, TakenBy(folder + "/" + name));
  }).IgnoreError();
  return most;
}

// Whether each machine's memory could hold its ranks' files, if there were nothing else in it: the
// same on all ranks. Where there is, the first rank there makes room of what other runs have left.
absl::Status Snapshots::CheckMachines(uint64_t file_bytes, const std::string& folder,
                                      const std::string& name_end) {
  ASSIGN_OR_RETURN(const std::vector<Need> needs,
                   ranks_.Gather(NeedIn(options_.root, file_bytes), comm::kDiskDeadline));
  for (const Need& need : needs) {
    const Shared shared = SharedOf(needs, need.memory);
    if (need.all_bytes == 0 || shared.bytes <= need.all_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "snapshots of ", base::Counted(shared.ranks, "rank"), " on the machine of rank ",
        shared.first_rank, " take ", base::ReadableBytes(shared.bytes), ", and ", options_.root,
        " there can hold ", base::ReadableBytes(need.all_bytes),
        " in all; give it more (mount -o remount,size=... ", options_.root,
        "; of a container --shm-size), or set snapshots.every_step: false"));
  }
  const Shared here = SharedOf(needs, needs[static_cast<size_t>(ranks_.rank())].memory);
  if (here.first_rank == ranks_.rank()) {
    const uint64_t taken = TakenIn(folder, name_end);
    const uint64_t wanted = here.bytes > taken ? here.bytes - taken : 0;
    for (const auto& left : checkpoint::MakeRoom(
             {.root = options_.root, .idle = options_.idle, .except = folder}, wanted)) {
      spdlog::warn(
          "rank {}: {} removed, for this run needs its room: {} of snapshots, up to step {}; the "
          "run whose snapshots.key is the end of that name goes on from its last checkpoint",
          ranks_.rank(), left.folder, base::ReadableBytes(left.bytes), left.step);
    }
  }
  // Nobody takes room before it is made.
  return ranks_.AllAgree(true, comm::kDiskDeadline).status();
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
  SnapshotShape shape = ShapeOf(slots, key, base::Fnv1a(all));
  shape.manifest_bytes = manifest->size();
  const auto places = checkpoint::PlacesOf(shape);
  RETURN_IF_ERROR(ranks_.AllOk(places.status(), comm::kDiskDeadline));
  const std::string folder = checkpoint::SnapshotFolder(options_.root, key);
  const std::string name_end = checkpoint::SnapshotNameEnd(shape.layout, shape.slots);
  RETURN_IF_ERROR(CheckMachines(places->file_bytes, folder, name_end));
  const absl::Status opened = ranks_.AllOk(Open(shape, *manifest), comm::kDiskDeadline);
  if (!opened.ok()) {
    RemoveIfUnused();
    rmdir(folder.c_str());  // unless something is in it
  }
  // It would hold them, so others have taken the room.
  if (absl::IsResourceExhausted(opened)) return base::NoRoomHere(opened);
  RETURN_IF_ERROR(opened);
  return tensor::HostPages{.bytes = file_->data(), .owner = file_};
}

SnapshotShape Snapshots::ShapeOf(const engine::SnapshotSlots& slots, const SnapshotKey& key,
                                 uint64_t layout) const {
  return {.slots = slots.count,
          .rank = static_cast<uint32_t>(ranks_.rank()),
          .ranks = static_cast<uint32_t>(ranks_.size()),
          .key = key,
          .layout = layout,
          .slot_bytes = slots.slot_bytes};
}

absl::Status Snapshots::Open(const SnapshotShape& shape, const std::string& manifest) {
  ASSIGN_OR_RETURN(file_, SnapshotFile::Open({.root = options_.root,
                                              .shape = shape,
                                              .manifest = manifest,
                                              .lock_wait = options_.lock_wait}));
  return absl::OkStatus();
}

void Snapshots::Clear(uint32_t slot) { file_->Clear(slot); }

// No step has a number that no version can have. At the second one all ranks have staged the first:
// what another layout has left is needed no more.
void Snapshots::Begin(uint32_t slot, uint64_t step) {
  file_->Begin(slot, step).IgnoreError();
  if (begun_ < 2 && ++begun_ == 2) remover_ = std::thread([file = file_] { file->RemoveOthers(); });
}

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
  MarkTime();
  return file_->Stage(slot, record, sums);
}

// What is written to a mapped file sets its time once, where a page is touched first. Of several
// runs that are over, room is made of the one that was at work least lately.
void Snapshots::MarkTime() {
  const auto now = std::chrono::steady_clock::now();
  if (now - marked_ < std::chrono::minutes(1)) return;
  marked_ = now;
  utimensat(AT_FDCWD, file_->path().c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
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
    ASSIGN_OR_RETURN(std::optional<HeldVersion> elsewhere,
                     TakeElsewhere(NewestElsewhere(wanted), newest.version));
    if (elsewhere) return elsewhere;
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
    if (good) return HeldVersion{.slot = slot, .record = *record, .elsewhere = nullptr};
  }
}

std::optional<checkpoint::SnapshotRecord> Snapshots::NewestElsewhere(const WantedVersion& wanted) {
  if (!others_) {
    std::vector<std::string> passed_over;
    const std::string folder = std::filesystem::path(file_->path()).parent_path();
    others_ = checkpoint::FindSnapshotSets(folder, file_->shape().layout, file_->shape().slots,
                                           options_.lock_wait, &passed_over);
    for (const std::string& why : passed_over) {
      spdlog::warn("rank {}: memory of another layout is not used: {}", ranks_.rank(), why);
    }
  }
  std::optional<checkpoint::SnapshotRecord> newest;
  for (const checkpoint::SnapshotSet& set : *others_) {
    for (const checkpoint::SnapshotRecord& each : checkpoint::StagedByAll(set)) {
      const bool usable =
          IsWanted({each.version, each.attempt, each.spec_hash}, wanted) &&
          std::find(passed_over_.begin(), passed_over_.end(), each.version) == passed_over_.end();
      if (usable && (!newest || each.version > newest->version)) newest = each;
    }
  }
  return newest;
}

absl::StatusOr<std::optional<HeldVersion>> Snapshots::TakeElsewhere(
    const std::optional<checkpoint::SnapshotRecord>& newest, uint64_t newer_than) {
  Told own;
  if (newest) own = {newest->version, newest->attempt, newest->spec_hash};
  ASSIGN_OR_RETURN(const std::vector<Told> all, ranks_.Gather(own, comm::kDiskDeadline));
  const bool alike = std::count(all.begin(), all.end(), all[0]) == std::ssize(all);
  if (!alike || all[0].version <= newer_than) return std::optional<HeldVersion>();
  std::shared_ptr<const checkpoint::SlotSource> source;
  absl::Status made = absl::NotFoundError("no memory of another layout");
  for (const checkpoint::SnapshotSet& set : *others_) {
    auto each = checkpoint::SlotSource::Make(set, *newest);
    made = each.status();
    if (!each.ok()) continue;
    source = *std::move(each);
    break;
  }
  if (!made.ok()) {
    spdlog::warn("rank {}: passed over step {} in memory of another layout: {}", ranks_.rank(),
                 newest->version, base::MessageOf(made));
  }
  ASSIGN_OR_RETURN(const bool good, ranks_.AllAgree(source != nullptr, comm::kDiskDeadline));
  if (good) return HeldVersion{.slot = 0, .record = *newest, .elsewhere = std::move(source)};
  passed_over_.push_back(newest->version);
  return std::optional<HeldVersion>();
}

void Snapshots::PassOver(const HeldVersion& version) {
  if (version.elsewhere == nullptr) return file_->Clear(version.slot);
  passed_over_.push_back(version.record.version);
}

// What is older came before it: a start from elsewhere clears all. Parity may be made of that.
absl::Status Snapshots::KeepOnly(const HeldVersion& version) {
  const checkpoint::PinnedVersions pins = file_->pins();
  for (uint32_t slot = 0; slot < file_->shape().slots; ++slot) {
    const auto other = file_->Staged(slot);
    const bool before = other.has_value() && other->version < version.record.version;
    const bool wanted = before && std::find(pins.begin(), pins.end(), other->version) != pins.end();
    const bool is_it = version.elsewhere == nullptr && slot == version.slot;
    if (!is_it && !wanted) file_->Clear(slot);
  }
  others_.emplace();
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
