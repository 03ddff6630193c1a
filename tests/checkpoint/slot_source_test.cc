// The memory of ranks as a source of the mover: what they have staged at one layout comes back at
// any other, bit for bit, or is refused.
#include "checkpoint/client/slot_source.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/format/piece_table.h"
#include "checkpoint/format/slot_manifest.h"
#include "runtime/base/random_hex.h"
#include "runtime/checksum/lane_sums.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using std::chrono::milliseconds;

// Where ranks that have died have left their memory.
struct LeftMemory {
  LeftMemory() : root("/dev/shm/trireme-test-" + base::RandomHex(16)) {
    fs::create_directory(root);
  }
  ~LeftMemory() { fs::remove_all(root); }
  std::string folder() const { return SnapshotFolder(root, SnapshotKey{}); }
  std::vector<SnapshotSet> Sets(std::vector<std::string>* passed_over = nullptr) const {
    return FindSnapshotSets(folder(), 99, 2, milliseconds(0), passed_over);
  }
  const std::string root;
};

struct SlotLayout {
  std::vector<SlotPart> parts;
  uint64_t bytes = 0;
};

SlotLayout LayOut(const RankState& state) {
  SlotLayout layout;
  for (const StateShard& shard : state.shards()) {
    layout.parts.push_back({.name = shard.name,
                            .kind = shard.kind,
                            .dtype = shard.dtype,
                            .shape = shard.shape,
                            .shard = shard.shard,
                            .offset = layout.bytes});
    layout.bytes = (layout.bytes + shard.data.size() + 63) / 64 * 64;
  }
  layout.bytes = std::max<uint64_t>(layout.bytes, 64);
  return layout;
}

std::unique_ptr<SnapshotFile> FileOf(const LeftMemory& memory, const SlotLayout& layout,
                                     uint32_t rank, uint32_t ranks) {
  auto file = SnapshotFile::Open(
      {.root = memory.root,
       .shape = {.slots = 2, .rank = rank, .ranks = ranks, .layout = 7, .slot_bytes = layout.bytes},
       .manifest = *FormatSlotManifest(layout.parts)});
  INFO(file.status().ToString());
  REQUIRE(file.ok());
  return *std::move(file);
}

// Stages `version`, the state of that salt, in slot version mod 2.
void StageState(SnapshotFile& file, RankState& state, const SlotLayout& layout, uint64_t version) {
  const auto slot = static_cast<uint32_t>(version % 2);
  state.Fill(version);
  REQUIRE(file.Begin(slot, version).ok());
  const std::span<std::byte> data = file.data_of(slot);
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const std::span<const std::byte> from = state.shards()[i].data;
    std::copy(from.begin(), from.end(),
              data.begin() + static_cast<std::ptrdiff_t>(layout.parts[i].offset));
  }
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < data.size(); at += kPieceBytes) {
    sums.push_back(checksum::SumOfPiece(data.subspan(at, std::min(kPieceBytes, data.size() - at))));
  }
  REQUIRE(file.Stage(slot, {.version = version, .attempt = 3, .step = version}, sums).ok());
}

void StageAllRanks(const LeftMemory& memory, std::vector<RankState>& states, uint64_t version) {
  for (uint32_t rank = 0; rank < states.size(); ++rank) {
    const SlotLayout layout = LayOut(states[rank]);
    const auto file = FileOf(memory, layout, rank, static_cast<uint32_t>(states.size()));
    StageState(*file, states[rank], layout, version);
  }
}

// At a layout drawn anew; Ok: it is the state of `version`.
absl::Status RestoreElsewhere(const SnapshotSet& set, const SnapshotRecord& record,
                              Random& random) {
  auto source = SlotSource::Make(set, record);
  if (!source.ok()) return source.status();
  for (RankState& target :
       RandomLayout(random, SampleTensors(), static_cast<int>(Draw(random, 1, 6)))) {
    const absl::Status status = RestoreFrom(**source, target.shards());
    if (!status.ok()) return status;
    if (!target.Holds(record.version)) return absl::InternalError("other numbers");
  }
  return (*source)->CheckUnchanged();
}

}  // namespace

TEST_CASE("slot source: state staged at one layout is restored at others bit for bit") {
  Random random(41);
  for (int round = 0; round < 6; ++round) {
    const LeftMemory memory;
    auto states = RandomLayout(random, SampleTensors(), static_cast<int>(Draw(random, 1, 5)));
    StageAllRanks(memory, states, 8);
    StageAllRanks(memory, states, 9);
    const auto sets = memory.Sets();
    REQUIRE(sets.size() == 1);
    const auto staged = StagedByAll(sets[0]);
    REQUIRE(staged.size() == 2);
    CHECK(staged[0].version == 9);
    CHECK(staged[1].version == 8);
    for (int layouts = 0; layouts < 3; ++layouts) {
      CHECK(RestoreElsewhere(sets[0], staged[0], random).ToString() == "OK");
      CHECK(RestoreElsewhere(sets[0], staged[1], random).ToString() == "OK");
    }
  }
}

TEST_CASE("slot source: replicas are read once, from the first that has a shard") {
  Random random(43);
  const LeftMemory memory;
  std::vector<RankState> states;
  states.reserve(3);  // a copy's shards would lie in the memory of the first
  for (int replica = 0; replica < 3; ++replica) {
    Random same(5);
    for (RankState& state : RandomLayout(same, SampleTensors(), 1)) {
      states.push_back(std::move(state));
    }
  }
  StageAllRanks(memory, states, 8);
  const auto sets = memory.Sets();
  REQUIRE(sets.size() == 1);
  const auto record = StagedByAll(sets[0]).front();
  const auto source = SlotSource::Make(sets[0], record);
  REQUIRE(source.ok());
  for (const StoredShard& shard : (*source)->shards()) CHECK(shard.part == 0);
  CHECK(RestoreElsewhere(sets[0], record, random).ToString() == "OK");
}

TEST_CASE("slot source: only what all ranks hold whole of one attempt is of use") {
  Random random(47);
  const LeftMemory memory;
  auto states = RandomLayout(random, SampleTensors(), 2);
  StageAllRanks(memory, states, 8);
  // Rank 1 has died before it could stage 9.
  const SlotLayout layout = LayOut(states[0]);
  StageState(*FileOf(memory, layout, 0, 2), states[0], layout, 9);
  const auto sets = memory.Sets();
  REQUIRE(sets.size() == 1);
  const auto staged = StagedByAll(sets[0]);
  REQUIRE(staged.size() == 1);
  CHECK(staged[0].version == 8);
  SnapshotRecord other = staged[0];
  other.attempt = 4;
  CHECK(absl::IsDataLoss(SlotSource::Make(sets[0], other).status()));
}

TEST_CASE("slot source: a flipped bit is found before a byte of its piece is used") {
  Random random(53);
  const LeftMemory memory;
  auto states = RandomLayout(random, SampleTensors(), 2);
  StageAllRanks(memory, states, 8);
  const SlotLayout layout = LayOut(states[1]);
  REQUIRE_FALSE(layout.parts.empty());
  FileOf(memory, layout, 1, 2)->data_of(0)[layout.parts.back().offset] ^= std::byte{1};
  const auto sets = memory.Sets();
  REQUIRE(sets.size() == 1);
  const absl::Status found = RestoreElsewhere(sets[0], StagedByAll(sets[0]).front(), random);
  CHECK_THAT(found.ToString(), Contains("DATA_LOSS") && Contains("rank-00001"));
}

TEST_CASE("slot source: memory that a rank still holds, or of which a rank's is missing, is left") {
  Random random(59);
  const LeftMemory memory;
  std::vector<std::string> why;
  CHECK(memory.Sets(&why).empty());
  auto states = RandomLayout(random, SampleTensors(), 3);
  StageAllRanks(memory, states, 8);
  {
    const auto alive = FileOf(memory, LayOut(states[2]), 2, 3);
    CHECK(memory.Sets(&why).empty());
    REQUIRE(why.size() == 1);
    CHECK_THAT(why[0], Contains("rank-00002") && Contains("a process that lives"));
  }
  CHECK(memory.Sets().size() == 1);
  // Who dies in time is waited for.
  auto dying = FileOf(memory, LayOut(states[2]), 2, 3);
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(30));
    dying.reset();
  });
  const auto waited = FindSnapshotSets(memory.folder(), 99, 2, std::chrono::minutes(1));
  end.join();
  REQUIRE(waited.size() == 1);
  // One's own layout is no other.
  CHECK(FindSnapshotSets(memory.folder(), 7, 2, milliseconds(0)).empty());
  CHECK(FindSnapshotSets(memory.folder(), 7, 4, milliseconds(0)).size() == 1);
  // A rank that begins to write again is seen by who has read.
  const auto record = StagedByAll(waited[0]).front();
  const auto source = SlotSource::Make(waited[0], record);
  REQUIRE(source.ok());
  CHECK((*source)->CheckUnchanged().ok());
  const SlotLayout layout = LayOut(states[1]);
  StageState(*FileOf(memory, layout, 1, 3), states[1], layout, 10);
  CHECK(absl::IsDataLoss((*source)->CheckUnchanged()));
  why.clear();
  fs::remove((*waited[0][1]).path());
  CHECK(memory.Sets(&why).empty());
  REQUIRE(why.size() == 1);
  CHECK_THAT(why[0], Contains("2 of 3 ranks"));
}

}  // namespace trireme::checkpoint
