// Ranks as threads and their files of snapshots: which version they go on from, whatever each of
// them holds and whatever has happened to it.
#include "worker/snapshots.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/client/snapshot_reader.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/random_hex.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/comm/local/local_fabric.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr uint64_t kSlotBytes = uint64_t{2} << 20;
constexpr uint64_t kRun = 77;  // a hash

// A run folder, and a file system in memory.
struct RunPlace {
  RunPlace() : root("/dev/shm/trireme-test-" + base::RandomHex(16)), run(root + "/run") {
    fs::create_directories(run);
  }
  ~RunPlace() { fs::remove_all(root); }
  uint64_t slot_bytes = kSlotBytes;
  std::string folder() const {
    return checkpoint::SnapshotFolder(root, *checkpoint::ReadSnapshotKey(run));
  }
  const std::string root, run;
};

// Of whatever layout. "": none.
std::string FileOfRank(const std::string& folder, int rank) {
  std::string path;
  base::VisitNames(folder, [&](const std::string& name) {
    if (name.starts_with(absl::StrCat("rank-0000", rank, "-"))) path = folder + "/" + name;
  }).IgnoreError();
  return path;
}

// One rank of one start.
struct SlotRank {
  Snapshots& snapshots;
  std::span<std::byte> memory;
  int number = 0;

  absl::Status Stage(uint32_t slot, uint64_t step) {
    const std::span<std::byte> data = memory.subspan(slot * kSlotBytes, kSlotBytes);
    snapshots.Begin(slot, step);
    std::memset(data.data(), static_cast<int>(step), data.size());
    std::vector<uint64_t> sums;
    for (size_t at = 0; at < data.size(); at += checkpoint::kPieceBytes) {
      sums.push_back(checksum::SumOfPiece(data.subspan(at, checkpoint::kPieceBytes)));
    }
    return snapshots.Stage(slot, {.step = step, .loss = 1.5, .skipped_steps = 2}, sums);
  }
};

using Work = std::function<absl::Status(SlotRank&)>;

void CheckOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

absl::Status StartRank(const RunPlace& place, comm::Fabric& fabric, uint32_t attempt,
                       const Work& work, uint32_t slots) {
  ASSIGN_OR_RETURN(const auto agreement, comm::Agreement::Make(fabric, std::chrono::minutes(1)));
  Snapshots snapshots(*agreement, {.run_folder = place.run,
                                   .root = place.root,
                                   .attempt = attempt,
                                   .lock_wait = std::chrono::milliseconds(0)});
  ASSIGN_OR_RETURN(
      const tensor::HostPages pages,
      snapshots.Pages({.count = slots,
                       .slot_bytes = place.slot_bytes,
                       .parts = {{.name = "weight",
                                  .kind = "parameter",
                                  .shape = {8},
                                  .shard = layout::Shard::Whole(layout::Box::Whole({8}))}}}));
  snapshots.set_run(
      {.hash = kRun, .samples_per_step = 10, .validation_loss = 0.25, .validation_step = 3});
  SlotRank rank{snapshots, pages.bytes, fabric.rank()};
  return work(rank);
}

// `work` on each of so many ranks of a start. What each rank ends with; to the others it has ended
// well, lest they be told of a lost peer.
std::vector<absl::Status> Start(const RunPlace& place, int ranks, uint32_t attempt,
                                const Work& work, uint32_t slots = 2) {
  std::vector<absl::Status> ends(static_cast<size_t>(ranks));
  CheckOk(comm::RunRanks(ranks, [&](comm::Fabric& fabric) {
    ends[static_cast<size_t>(fabric.rank())] = StartRank(place, fabric, attempt, work, slots);
    return absl::OkStatus();
  }));
  return ends;
}

// What each rank has staged in slots 0 and 1; 0: nothing.
using Steps = std::vector<std::pair<uint64_t, uint64_t>>;

void StageAll(const RunPlace& place, const Steps& steps, uint32_t attempt = 4) {
  CheckOk(
      Start(place, static_cast<int>(steps.size()), attempt, [&](SlotRank& rank) -> absl::Status {
        const auto& [first, second] = steps[static_cast<size_t>(rank.number)];
        if (first > 0) RETURN_IF_ERROR(rank.Stage(0, first));
        if (second > 0) RETURN_IF_ERROR(rank.Stage(1, second));
        return absl::OkStatus();
      }));
}

// The step that all ranks of the next start have chosen; 0: none. -1: not alike.
int64_t ChosenStep(const RunPlace& place, int ranks, const WantedVersion& wanted = {kRun, 100, 0}) {
  std::vector<int64_t> chosen(static_cast<size_t>(ranks), -1);
  CheckOk(Start(place, ranks, 5, [&](SlotRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto held, rank.snapshots.Choose(wanted, 2));
    auto& own = chosen[static_cast<size_t>(rank.number)];
    own = held ? static_cast<int64_t>(held->record.step) : 0;
    const auto byte = held ? static_cast<std::byte>(held->record.step) : std::byte{0};
    if (held && rank.memory[held->slot * kSlotBytes] != byte) own = -1;
    return absl::OkStatus();
  }));
  return std::count(chosen.begin(), chosen.end(), chosen[0]) == ranks ? chosen[0] : -1;
}

}  // namespace

TEST_CASE("snapshots: ranks go on from the newest version that all of them hold whole") {
  const auto [steps, expected] = GENERATE(table<Steps, int64_t>({
      {{{5, 6}, {5, 6}, {5, 6}}, 6},
      {{{5, 6}, {7, 6}, {5, 6}}, 6},
      {{{5, 6}, {5, 4}, {5, 6}}, 5},
      {{{6, 5}, {5, 6}, {6, 5}}, 6},
      {{{5, 6}, {5, 6}, {7, 8}}, 0},
      {{{5, 6}, {5, 6}, {0, 0}}, 0},
      {{{5, 6}, {0, 6}, {0, 6}}, 6},
      {{{5, 6}, {5, 6}, {5, 0}}, 5},
  }));
  const RunPlace place;
  StageAll(place, steps);
  CHECK(ChosenStep(place, 3) == expected);
}

TEST_CASE(
    "snapshots: what is of another run, of steps to come or of attempts before is not wanted") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}});
  CHECK(ChosenStep(place, 2, {kRun + 1, 100, 0}) == 0);
  CHECK(ChosenStep(place, 2, {kRun, 5, 0}) == 5);
  CHECK(ChosenStep(place, 2, {kRun, 4, 0}) == 0);
  CHECK(ChosenStep(place, 2, {kRun, 100, 4}) == 6);
  CHECK(ChosenStep(place, 2, {kRun, 100, 5}) == 0);
}

TEST_CASE(
    "snapshots: a version that has failed, and what came after it, are passed over and kept") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}});
  CHECK(ChosenStep(place, 2, {kRun, 100, 0, 7}) == 6);
  CHECK(ChosenStep(place, 2, {kRun, 100, 0, 6}) == 5);
  CHECK(ChosenStep(place, 2, {kRun, 100, 4, 6}) == 5);
  CHECK(ChosenStep(place, 2, {kRun, 100, 0, 5}) == 0);
  CHECK(ChosenStep(place, 2, {kRun, 100, 0, 1}) == 0);
  // Whoever may take it finds it still.
  CHECK(ChosenStep(place, 2) == 6);
}

TEST_CASE("snapshots: a version of a start that no keeper counts is of no attempt") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}}, 0);
  CHECK(ChosenStep(place, 2, {kRun, 100, 1}) == 0);
  CHECK(ChosenStep(place, 2) == 6);
  // A file that a node has kept from an earlier start does not go with those of a later one.
  const std::string kept = FileOfRank(place.folder(), 1);
  fs::copy(kept, place.root + "/kept");
  StageAll(place, {{5, 6}, {5, 6}}, 0);
  CHECK(ChosenStep(place, 2) == 6);
  std::ofstream(kept, std::ios::binary | std::ios::in)
      << std::ifstream(place.root + "/kept", std::ios::binary).rdbuf();
  CHECK(ChosenStep(place, 2) == 0);
}

TEST_CASE("snapshots: a flipped bit on one rank takes all of them to the version before") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}, {5, 6}});
  const auto flip = [](SlotRank& rank, uint32_t slot) {
    rank.memory[slot * kSlotBytes + 3 * checkpoint::kPieceBytes + 17] ^= std::byte{4};
    return absl::OkStatus();
  };
  CheckOk(Start(place, 3, 5, [&](SlotRank& rank) {
    return rank.number == 1 ? flip(rank, 1) : absl::OkStatus();
  }));
  CHECK(ChosenStep(place, 3) == 5);
  CheckOk(Start(place, 3, 5, [&](SlotRank& rank) {
    return rank.number == 2 ? flip(rank, 0) : absl::OkStatus();
  }));
  CHECK(ChosenStep(place, 3) == 0);
}

TEST_CASE("snapshots: a record says what the run was at its step") {
  const RunPlace place;
  StageAll(place, {{5, 6}});
  std::optional<HeldVersion> held;
  CheckOk(Start(place, 1, 5, [&](SlotRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(held, rank.snapshots.Choose({kRun, 100, 0}, 1));
    return absl::OkStatus();
  }));
  REQUIRE(held.has_value());
  const checkpoint::SnapshotRecord& record = held->record;
  CHECK((record.version == 6 && record.step == 6 && record.samples == 60));
  CHECK((record.attempt == 4 && record.spec_hash == kRun && record.skipped_steps == 2));
  CHECK((record.loss == 1.5 && record.validation_loss == 0.25 && record.validation_step == 3));
}

TEST_CASE("snapshots: who goes on from a version leaves no other one to go on from") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 4}});
  CheckOk(Start(place, 2, 5, [&](SlotRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto held, rank.snapshots.Choose({kRun, 100, 0}, 1));
    if (!held || held->record.step != 5) return absl::InternalError("not the one of both");
    return rank.snapshots.KeepOnly(*held);
  }));
  // Else rank 0's 6, of the attempt before, could meet another 6.
  StageAll(place, {{0, 0}, {0, 6}});
  CHECK(ChosenStep(place, 2) == 5);
}

// Parity may be made of it, and a start from elsewhere has cleared what did not lead to this one.
TEST_CASE("snapshots: who goes on from a version leaves older ones that are pinned") {
  const RunPlace place;
  constexpr uint32_t kSlots = 4;
  const std::array<uint64_t, kSlots> staged{3, 4, 5, 6};
  CheckOk(Start(
      place, 1, 4,
      [&](SlotRank& rank) -> absl::Status {
        for (uint32_t slot = 0; slot < kSlots; ++slot) {
          RETURN_IF_ERROR(rank.Stage(slot, staged[slot]));
        }
        return absl::OkStatus();
      },
      kSlots));
  const auto reader = checkpoint::SnapshotReader::Open(FileOfRank(place.folder(), 0));
  REQUIRE(reader.ok());
  (*reader)->Pin(0, 3);
  (*reader)->Pin(1, 6);
  CheckOk(Start(
      place, 1, 5,
      [&](SlotRank& rank) -> absl::Status {
        ASSIGN_OR_RETURN(const auto held, rank.snapshots.Choose({kRun, 5, 0}, 1));
        if (!held || held->record.step != 5) return absl::InternalError("not 5");
        RETURN_IF_ERROR(rank.snapshots.KeepOnly(*held));
        // 4 and 6 have gone, and 3 is to stay.
        const uint32_t next = rank.snapshots.NextSlot(held->slot);
        return next == 1 || next == 3 ? absl::OkStatus() : absl::InternalError("another's slot");
      },
      kSlots));
  CHECK((*reader)->SlotOf(3) == 0);
  CHECK_FALSE((*reader)->SlotOf(4).has_value());
  CHECK((*reader)->SlotOf(5) == 2);
  CHECK_FALSE((*reader)->SlotOf(6).has_value());
}

// The step at which all ranks go on, and whether in memory of another layout; -1: not alike.
std::pair<int64_t, bool> ChosenElsewhere(const RunPlace& place, int ranks,
                                         const WantedVersion& wanted = {kRun, 100, 0}) {
  std::vector<std::pair<int64_t, bool>> chosen(static_cast<size_t>(ranks));
  CheckOk(Start(place, ranks, 5, [&](SlotRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto held, rank.snapshots.Choose(wanted, 1));
    auto& own = chosen[static_cast<size_t>(rank.number)];
    if (held) own = {static_cast<int64_t>(held->record.step), held->elsewhere != nullptr};
    return absl::OkStatus();
  }));
  const bool alike = std::count(chosen.begin(), chosen.end(), chosen[0]) == ranks;
  return alike ? chosen[0] : std::pair(int64_t{-1}, false);
}

using Chosen = std::pair<int64_t, bool>;

TEST_CASE("snapshots: ranks of another number go on from what those before have left") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}, {5, 4}});
  CHECK(ChosenElsewhere(place, 2) == Chosen(5, true));
  CHECK(ChosenElsewhere(place, 4) == Chosen(5, true));
  CHECK(ChosenElsewhere(place, 2, {kRun, 4, 0}) == Chosen(0, false));
  CHECK(ChosenElsewhere(place, 2, {kRun + 1, 100, 0}) == Chosen(0, false));
  CHECK(ChosenElsewhere(place, 2, {kRun, 100, 5}) == Chosen(0, false));
  // Of one's own layout there is a newer one; an older one; one as new.
  CHECK(ChosenElsewhere(place, 3) == Chosen(5, false));
  StageAll(place, {{7, 0}, {7, 0}});
  CHECK(ChosenElsewhere(place, 2) == Chosen(7, false));
  CHECK(ChosenElsewhere(place, 3) == Chosen(7, true));
  // What was passed over is not chosen again.
  std::vector<int64_t> second(3, -1);
  CheckOk(Start(place, 3, 5, [&](SlotRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto first, rank.snapshots.Choose({kRun, 100, 0}, 1));
    rank.snapshots.PassOver(*first);
    ASSIGN_OR_RETURN(const auto next, rank.snapshots.Choose({kRun, 100, 0}, 1));
    if (next && next->elsewhere == nullptr) {
      second[static_cast<size_t>(rank.number)] = static_cast<int64_t>(next->record.step);
    }
    return absl::OkStatus();
  }));
  CHECK(second == std::vector<int64_t>{5, 5, 5});
}

TEST_CASE("snapshots: what another layout has left stays until all have staged a step") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}, {5, 6}});
  const auto begin_at = [&](int steps) {
    CheckOk(Start(place, 2, 5, [&](SlotRank& rank) -> absl::Status {
      ASSIGN_OR_RETURN(const auto held, rank.snapshots.Choose({kRun, 100, 0}, 1));
      if (!held || held->elsewhere == nullptr) return absl::InternalError("not of the others");
      RETURN_IF_ERROR(rank.snapshots.KeepOnly(*held));
      for (int step = 0; step < steps; ++step) {
        RETURN_IF_ERROR(rank.Stage(static_cast<uint32_t>(step), 7 + static_cast<uint64_t>(step)));
      }
      return absl::OkStatus();
    }));
  };
  begin_at(1);
  CHECK(FileOfRank(place.folder(), 2) != "");
  // Not all have staged 7, as one may have died: the old one is still good.
  CheckOk(Start(place, 2, 5, [&](SlotRank& rank) -> absl::Status {
    if (rank.number == 0) rank.snapshots.Clear(0);
    return absl::OkStatus();
  }));
  begin_at(2);
  CHECK(FileOfRank(place.folder(), 2) == "");
  CHECK(ChosenElsewhere(place, 2) == Chosen(8, false));
}

TEST_CASE("snapshots: a run that needs them no more leaves nothing, and takes no other's") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}, {5, 6}});
  const std::string folder = place.folder();
  CHECK(fs::exists(FileOfRank(folder, 2)));
  // On fewer ranks: the file of the third is nobody's.
  CheckOk(Start(place, 2, 5, [&](SlotRank& rank) -> absl::Status {
    RETURN_IF_ERROR(rank.Stage(0, 7));
    if (rank.number == 0) rank.snapshots.Remove();
    return absl::OkStatus();
  }));
  CHECK_FALSE(fs::exists(FileOfRank(folder, 0)));
  CHECK_FALSE(fs::exists(FileOfRank(folder, 2)));
  StageAll(place, {{5, 6}});
  CheckOk(Start(place, 1, 5, [&](SlotRank& rank) -> absl::Status {
    rank.snapshots.Remove();
    std::fill_n(rank.memory.begin(), 100, std::byte{1});  // it is there as long as it is mapped
    return absl::OkStatus();
  }));
  CHECK_FALSE(fs::exists(folder));
}

TEST_CASE("snapshots: a start that staged nothing leaves none, unless it was there before") {
  const RunPlace place;
  const auto end_early = [](SlotRank& rank) {
    rank.snapshots.RemoveIfUnused();
    return absl::OkStatus();
  };
  CheckOk(Start(place, 2, 5, end_early));
  CHECK_FALSE(fs::exists(place.folder()));
  StageAll(place, {{5, 6}, {5, 6}});
  CheckOk(Start(place, 2, 5, end_early));
  CHECK(ChosenStep(place, 2) == 6);
  fs::remove_all(place.folder());
  CheckOk(Start(place, 2, 5, [](SlotRank& rank) -> absl::Status {
    RETURN_IF_ERROR(rank.Stage(0, 7));
    rank.snapshots.RemoveIfUnused();
    return absl::OkStatus();
  }));
  CHECK(ChosenStep(place, 2) == 7);
}

TEST_CASE("snapshots: the key stays with the run folder, and one that is none is drawn anew") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}});
  const std::string path = place.run + "/snapshots.key";
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  const auto key = checkpoint::ReadSnapshotKey(place.run);
  REQUIRE(key.ok());
  CHECK(ChosenStep(place, 2) == 6);
  CHECK(*checkpoint::ReadSnapshotKey(place.run) == *key);
  std::ofstream(path) << "none\n";
  CHECK(absl::IsDataLoss(checkpoint::ReadSnapshotKey(place.run).status()));
  CHECK(ChosenStep(place, 2) == 0);
  CHECK(*checkpoint::ReadSnapshotKey(place.run) != *key);
  fs::remove(path);
  CHECK(absl::IsNotFound(checkpoint::ReadSnapshotKey(place.run).status()));
}

TEST_CASE("snapshots: where one rank gets no memory, all are told whose and why") {
  const RunPlace place;
  StageAll(place, {{5, 6}, {5, 6}});
  fs::permissions(place.folder(), fs::perms::all);
  const auto statuses = Start(place, 2, 5, [](SlotRank&) { return absl::OkStatus(); });
  for (const absl::Status& status : statuses) {
    CHECK(absl::IsPermissionDenied(status));
    CHECK_THAT(std::string(status.message()), Contains("rank 0: ") && Contains("by others"));
  }
}

// A bound of files in place of a file system that is full.
struct FullMemory {
  explicit FullMemory(uint64_t bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit low{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  }
  ~FullMemory() {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  }
  rlimit before{};
  sighandler_t handler;
};

TEST_CASE("snapshots: where others have taken the room that is not for good") {
  RunPlace place;
  const FullMemory full(kSlotBytes);
  for (const absl::Status& status :
       Start(place, 2, 1, [](SlotRank&) { return absl::OkStatus(); })) {
    CHECK(base::ExitCodeOf(status) == base::kNoRoomHere);
    CHECK(comm::RankOfVerdict(status) == 0);
    CHECK_THAT(std::string(status.message()), Contains("rank 0: snapshots of this rank take"));
  }
  CHECK_FALSE(fs::exists(place.folder()));
}

TEST_CASE("snapshots: a run at work says so of its file, as long as it stages versions") {
  const RunPlace place;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(5);
  fs::file_time_type then;
  CheckOk(Start(place, 1, 4, [&](SlotRank& rank) -> absl::Status {
    const std::string path = FileOfRank(place.folder(), 0);
    fs::last_write_time(path, old);
    RETURN_IF_ERROR(rank.Stage(0, 5));
    then = fs::last_write_time(path);
    return absl::OkStatus();
  }));
  CHECK(then > old + std::chrono::hours(4));
}

TEST_CASE("snapshots: what a machine could not hold for all its ranks does not fit there") {
  RunPlace place;
  struct statvfs space {};
  REQUIRE(statvfs(place.root.c_str(), &space) == 0);
  // Of two slots, three quarters for each rank.
  const uint64_t all_bytes = uint64_t{space.f_blocks} * space.f_frsize;
  place.slot_bytes = all_bytes / 8 * 3 / kSlotBytes * kSlotBytes;
  const FullMemory full(kSlotBytes);  // where the sum is not made, nothing is taken either
  for (const absl::Status& status :
       Start(place, 2, 1, [](SlotRank&) { return absl::OkStatus(); })) {
    CHECK(base::ExitCodeOf(status) == base::kDoesNotFit);
    CHECK_THAT(
        std::string(status.message()),
        Contains("snapshots of 2 ranks on the machine of rank 0 take") && Contains("in all"));
  }
  CHECK_FALSE(fs::exists(place.folder()));
}

}  // namespace trireme::worker
