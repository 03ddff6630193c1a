// Pins: which slot a step may write, and that a version pinned in time stays for as long as the pin
// stands, whatever its rank does meanwhile.
#include "checkpoint/format/snapshot_pins.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_reader.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/random_hex.h"
#include "runtime/checksum/lane_sums.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr size_t kStateBytes = 3 * kPieceBytes / 2;

class PinnedRank {
 public:
  PinnedRank() : root_("/dev/shm/trireme-test-" + base::RandomHex(16)) {
    fs::create_directory(root_);
    Start();
  }
  ~PinnedRank() { fs::remove_all(root_); }

  void Start(uint32_t slots = 4) {
    file_ = nullptr;
    auto file = SnapshotFile::Open({.root = root_,
                                    .shape = {.slots = slots, .slot_bytes = kStateBytes},
                                    .manifest = "all in one"});
    REQUIRE(file.ok());
    file_ = *std::move(file);
  }
  SnapshotFile& file() { return *file_; }
  std::unique_ptr<SnapshotReader> Reader() const {
    auto reader = SnapshotReader::Open(file_->path());
    INFO(reader.status().ToString());
    REQUIRE(reader.ok());
    return *std::move(reader);
  }

  // As the engine does it: a slot is chosen between two steps, then written. False: it could not.
  bool Step() {
    const uint64_t version = version_ + 1;
    const uint32_t slot = file_->NextSlot(state_);
    if (slot == state_ || !file_->Begin(slot, version).ok()) return false;
    const std::span<std::byte> data = file_->data_of(slot);
    for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte((i * 7 + version) % 251);
    std::vector<uint64_t> sums;
    for (size_t at = 0; at < data.size(); at += kPieceBytes) {
      sums.push_back(
          checksum::SumOfPiece(data.subspan(at, std::min(kPieceBytes, data.size() - at))));
    }
    if (!file_->Stage(slot, {.version = version, .attempt = 1, .step = version}, sums).ok()) {
      return false;
    }
    state_ = slot;
    version_ = version;
    return true;
  }
  uint64_t version() const { return version_; }

 private:
  const std::string root_;
  std::unique_ptr<SnapshotFile> file_;
  uint32_t state_ = 0;
  uint64_t version_ = 0;
};

// Whether the version is there, whole, with its own bytes.
bool IsWhole(const SnapshotReader& reader, uint64_t version) {
  const auto slot = reader.SlotOf(version);
  if (!slot.has_value()) return false;
  if (!reader.Verify(*slot, 0, reader.pieces()).ok()) return false;
  const std::span<const std::byte> data = reader.bytes_of(*slot);
  return data.front() == std::byte(version % 251) &&
         data.back() == std::byte(((data.size() - 1) * 7 + version) % 251);
}

SlotState Holding(uint64_t version) {
  if (version == 0) return {};
  return {.phase = SnapshotPhase::kStaged, .version = version};
}

}  // namespace

TEST_CASE("pins: of any slots a step writes the oldest that is neither the state nor pinned") {
  int cases = 0;
  for (uint32_t count = 2; count <= 5; ++count) {
    // Versions 0 to 4 in each slot, 0 being none; the newest is the state.
    std::vector<uint64_t> versions(count);
    const auto check = [&] {
      const auto state = static_cast<uint32_t>(std::max_element(versions.begin(), versions.end()) -
                                               versions.begin());
      std::vector<SlotState> slots(count);
      std::transform(versions.begin(), versions.end(), slots.begin(), Holding);
      for (uint64_t first = 0; first <= 5; ++first) {
        for (uint64_t second = 0; second <= 5; ++second) {
          const PinnedVersions pins{first, second};
          const uint32_t next = NextSlot(slots, state, pins);
          std::set<uint64_t> kept;
          if (count >= 3) kept.insert(first);
          if (count >= 4) kept.insert(second);
          kept.erase(0);
          std::vector<uint64_t> may;
          for (uint32_t slot = 0; slot < count; ++slot) {
            if (slot != state && !kept.contains(versions[slot])) may.push_back(versions[slot]);
          }
          if (may.empty()) continue;  // versions that stand twice, which no rank makes
          ++cases;
          if (next == state || kept.contains(versions[next]) ||
              versions[next] != *std::min_element(may.begin(), may.end())) {
            FAIL("slot " << next << " of " << count << ", pins " << first << " and " << second);
          }
        }
      }
    };
    const std::function<void(uint32_t)> fill = [&](uint32_t slot) {
      if (slot == count) return check();
      for (versions[slot] = 0; versions[slot] <= 4; ++versions[slot]) {
        const auto end = versions.begin() + slot;
        const bool twice =
            versions[slot] > 0 && std::find(versions.begin(), end, versions[slot]) != end;
        if (!twice) fill(slot + 1);
      }
    };
    fill(0);
  }
  CHECK(cases > 10'000);
}

TEST_CASE("pins: a version that was begun and never staged is not kept") {
  std::vector<SlotState> slots{Holding(7), {SnapshotPhase::kWriting, 8}, Holding(6), Holding(5)};
  CHECK(NextSlot(slots, 0, {8, 5}) == 1);
  slots[1] = Holding(8);
  CHECK(NextSlot(slots, 1, {8, 5}) == 2);
}

TEST_CASE("pins: a version to come is kept when it has come, until its pin goes") {
  PinnedRank rank;
  const auto reader = rank.Reader();
  CHECK(reader->Pin(0, 3));
  CHECK(reader->Pin(1, 5));
  while (rank.version() < 40) REQUIRE(rank.Step());
  CHECK(IsWhole(*reader, 3));
  CHECK(IsWhole(*reader, 5));
  CHECK(IsWhole(*reader, 40));
  // Who pins may die: the next one finds what is pinned.
  const auto next = rank.Reader();
  CHECK(next->pins() == PinnedVersions{3, 5});
  CHECK(next->Pin(0, 41));
  while (rank.version() < 50) REQUIRE(rank.Step());
  CHECK_FALSE(next->SlotOf(3).has_value());
  CHECK(IsWhole(*next, 5));
  CHECK(IsWhole(*next, 41));
  CHECK_FALSE(next->Pin(0, 49));  // 50 has begun: 49 may be gone before the rank looks
}

TEST_CASE("pins: what is pinned in time stays beside a rank that never waits") {
  PinnedRank rank;
  std::atomic<bool> stop = false, failed = false;
  std::atomic<uint64_t> done = 0;
  std::thread writer([&] {
    while (!stop) {
      if (!rank.Step()) failed = true;
      done = rank.version();
      std::this_thread::yield();
    }
  });
  const auto reader = rank.Reader();
  const auto until = [&](uint64_t version) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (done < version && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return done >= version;
  };
  int in_time = 0, late = 0, lost = 0;
  for (int round = 0; round < 200; ++round) {
    // From one that has been followed to what is three steps off.
    if (!until(2)) break;
    const uint64_t version = done + static_cast<uint64_t>(round % 5) - 1;
    if (!reader->Pin(static_cast<uint32_t>(round % 2), version)) {
      ++late;
      continue;
    }
    ++in_time;
    if (!until(version + 6)) break;
    if (!IsWhole(*reader, version)) ++lost;
  }
  stop = true;
  writer.join();
  CHECK_FALSE(failed);
  CHECK(lost == 0);
  CHECK(in_time >= 40);
  CHECK(late >= 10);
}

TEST_CASE("pins: a reader takes no file that others can write, that is damaged or none") {
  PinnedRank rank;
  const std::string path = rank.file().path();
  const auto refused = [&] { return SnapshotReader::Open(path).status().ToString(); };
  CHECK(rank.Reader()->manifest() == "all in one");
  CHECK(rank.Reader()->IsNamed());
  chmod(path.c_str(), 0620);
  CHECK_THAT(refused(), Contains("PERMISSION_DENIED") && Contains(path));
  chmod(path.c_str(), 0600);
  const fs::path folder = fs::path(path).parent_path();
  chmod(folder.c_str(), 0770);
  CHECK_THAT(refused(), Contains("PERMISSION_DENIED"));
  chmod(folder.c_str(), 0700);
  const auto before = rank.Reader();
  fs::rename(path, path + ".old");
  CHECK_FALSE(before->IsNamed());
  CHECK_THAT(refused(), Contains("NOT_FOUND"));
  fs::create_symlink(path + ".old", path);
  CHECK_FALSE(SnapshotReader::Open(path).ok());
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(SnapshotReader::Open(path).ok());
  fs::remove(path);
  std::ofstream(path) << "short";
  chmod(path.c_str(), 0600);
  CHECK_THAT(refused(), Contains("DATA_LOSS") && Contains(path));
  fs::rename(path + ".old", path);
  fs::resize_file(path, fs::file_size(path) - 1);
  CHECK_THAT(refused(), Contains("DATA_LOSS") && Contains("its header says"));
}

TEST_CASE("pins: of two slots none can be pinned") {
  PinnedRank rank;
  rank.Start(2);
  CHECK(PinsThatCount(2) == 0);
  CHECK(PinsThatCount(3) == 1);
  CHECK(PinsThatCount(8) == 2);
  while (rank.version() < 5) REQUIRE(rank.Step());
  CHECK(IsWhole(*rank.Reader(), 4));
}

}  // namespace trireme::checkpoint
