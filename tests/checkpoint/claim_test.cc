// Who may write into a folder of checkpoints, and what becomes of the damaged ones in it.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <optional>

#include "checkpoint/client/writer_claim.h"
#include "runtime/base/exit_code.h"
#include "tests/checkpoint/saved_state.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Code = absl::StatusCode;

absl::Status Begin(const std::string& root, uint64_t step, std::vector<SetAside>* aside = nullptr) {
  auto claim = WriterClaim::Take(root);
  if (!claim.ok()) return claim.status();
  auto renamed = claim->BeginAfter(step, DamagedAfter(root, step));
  if (renamed.ok() && aside != nullptr) *aside = *std::move(renamed);
  return renamed.status();
}

TEST_CASE("one run at a time claims a folder, and none before the checkpoints in it") {
  TemporaryFolder parent;
  const std::string root = parent.path() + "/a/b";
  {
    const auto claim = WriterClaim::Take(root);
    REQUIRE(claim.ok());
    const auto second = WriterClaim::Take(root);
    CHECK(second.status().code() == Code::kAborted);
    // It passes, so whoever ends by it is started again.
    CHECK(base::ExitCodeOf(second.status()) == base::kJobFailed);
    CHECK(std::string(second.status().message()).find("another run") != std::string::npos);
    REQUIRE(Save(root, 5, ThreeRanks(5)).ok());
  }
  CHECK(Begin(root, 5).ok());
  const auto early = Begin(root, 4);
  CHECK(early.code() == Code::kFailedPrecondition);
  CHECK(std::string(early.message()).find("step 5") != std::string::npos);
  CHECK(NewestHolds(root, 5, 5));
}

TEST_CASE("a folder that is held is waited for, and no longer than told") {
  TemporaryFolder root;
  const auto links = base::Links::kFollow;
  std::optional<WriterClaim> other;
  const auto hold = [&] { other.emplace(*WriterClaim::Take(root.path())); };
  int looks = 0;
  ClaimWait wait{.longest = std::chrono::hours(1), .pause = std::chrono::milliseconds(0)};
  wait.go_on = [&](const absl::Status& held) {
    CHECK(held.message().find("another run") != std::string::npos);
    if (++looks == 3) other.reset();
    return true;
  };
  hold();
  CHECK(WriterClaim::Take(root.path(), links, wait).ok());
  CHECK(looks == 3);
  // Whoever is asked to stop waits no longer.
  hold();
  CHECK(IsClaimed(root.path()));
  wait.go_on = [&](const absl::Status&) { return ++looks < 5; };
  CHECK(absl::IsAborted(WriterClaim::Take(root.path(), links, wait).status()));
  CHECK(looks == 5);
  // Nor does anybody without end.
  wait = {.longest = std::chrono::milliseconds(2), .pause = std::chrono::milliseconds(0)};
  CHECK(absl::IsAborted(WriterClaim::Take(root.path(), links, wait).status()));
  other.reset();
  CHECK_FALSE(IsClaimed(root.path()));
  // What does not pass is not waited for.
  std::ofstream(root.path() + "/file") << "no folder";
  wait = {.longest = std::chrono::hours(1)};
  CHECK_FALSE(WriterClaim::Take(root.path() + "/file/checkpoints", links, wait).ok());
  CHECK_FALSE(IsClaimed(root.path() + "/file/checkpoints"));
}

TEST_CASE("a damaged checkpoint of a step to come is renamed, whichever of its files it is") {
  TemporaryFolder whole;
  REQUIRE(Save(whole.path(), 9, ThreeRanks(9)).ok());
  const std::vector<std::string> files = NamesIn(whole.path() + "/step-00000009");
  REQUIRE(files.size() == 4);
  for (const std::string& name : files) {
    for (const char* how : {"flipped", "cut", "emptied", "deleted"}) {
      TemporaryFolder root;
      REQUIRE(Save(root.path(), 5, ThreeRanks(5)).ok());
      REQUIRE(Save(root.path(), 9, ThreeRanks(9)).ok());
      const std::string folder = root.path() + "/step-00000009";
      const std::string path = folder + "/" + name;
      const uint64_t bytes = fs::file_size(path);
      if (how == std::string("flipped")) FlipByte(path, bytes / 2);
      if (how == std::string("cut")) fs::resize_file(path, bytes / 2);
      if (how == std::string("emptied")) fs::resize_file(path, 0);
      if (how == std::string("deleted")) fs::remove(path);
      INFO(name << " " << how);
      std::vector<SetAside> aside;
      REQUIRE(Begin(root.path(), 5, &aside).ok());
      REQUIRE(aside.size() == 1);
      CHECK(aside[0].folder == root.path() + "/step-00000009.damaged");
      CHECK(aside[0].reason.ToString().find(name) != std::string::npos);
      CHECK(NamesIn(root.path()) ==
            std::vector<std::string>{".lock", "step-00000005", "step-00000009.damaged"});
      // The run comes to that step, and to it again.
      REQUIRE(Save(root.path(), 9, ThreeRanks(10)).ok());
      CHECK(NewestHolds(root.path(), 9, 10));
      FlipByte(folder + "/rank-000.safetensors", 40);
      REQUIRE(Begin(root.path(), 5, &aside).ok());
      CHECK(aside[0].folder == root.path() + "/step-00000009.damaged-2");
      CHECK(fs::exists(root.path() + "/step-00000009.damaged"));
    }
  }
}

TEST_CASE("nothing is renamed where one later checkpoint is good, or cannot be judged") {
  TemporaryFolder root;
  for (uint64_t step : {5, 6, 7}) REQUIRE(Save(root.path(), step, ThreeRanks(step)).ok());
  FlipByte(root.path() + "/step-00000007/rank-001.safetensors", 30);
  const auto before = NamesIn(root.path());
  const absl::Status good = Begin(root.path(), 5);
  CHECK(good.code() == Code::kFailedPrecondition);
  CHECK(good.ToString().find("step 6") != std::string::npos);
  // Of a newer format: nobody here can say what it is worth.
  auto claim = WriterClaim::Take(root.path());
  REQUIRE(claim.ok());
  const Skipped newer{root.path() + "/step-00000007", absl::UnimplementedError("version 2")};
  CHECK(claim->BeginAfter(6, std::span(&newer, 1)).status().code() == Code::kUnimplemented);
  auto after = NamesIn(root.path());
  std::erase(after, ".lock");
  CHECK(after == before);
  // Only headers are read here: what all ranks have judged counts.
  CHECK(claim->BeginAfter(6).status().code() == Code::kFailedPrecondition);
  FlipByte(root.path() + "/step-00000007/rank-001.safetensors", 30);
  const Skipped judged{root.path() + "/step-00000007", absl::DataLossError("piece 3")};
  CHECK(claim->BeginAfter(6, std::span(&judged, 1)).value().size() == 1);
}

TEST_CASE("each claim has an epoch of its own, which counts up over what was there") {
  TemporaryFolder root;
  Epoch last = Epoch::kNone;
  for (int round = 0; round < 5; ++round) {
    auto claim = WriterClaim::Take(root.path());
    REQUIRE(claim.ok());
    CHECK(static_cast<uint64_t>(claim->epoch()) >> 32 == (static_cast<uint64_t>(last) >> 32) + 1);
    CHECK(CheckEpoch(root.path(), claim->epoch()).ok());
    CHECK(CheckEpoch(root.path(), last).ok() == (last == Epoch::kNone));
    last = claim->epoch();
  }
  // What is no epoch, as an older program leaves it, counts as none.
  for (const char* text : {"", "x", "00000007123456780\n", "0000000g12345678\n"}) {
    WriteAll(root.path() + "/.lock", text);
    const auto claim = WriterClaim::Take(root.path());
    REQUIRE(claim.ok());
    CHECK(static_cast<uint64_t>(claim->epoch()) >> 32 == 1);
    CHECK(ReadAll(root.path() + "/.lock") == EpochText(claim->epoch()) + "\n");
  }
  // Nor where that is lost: what lies hidden says whom there has been.
  for (const std::string& hidden : {PartialFolder(root.path(), 3, Epoch{7ull << 32 | 5}),
                                    RemovedFolder(root.path(), Epoch{9ull << 32})}) {
    fs::remove(root.path() + "/.lock");
    fs::create_directory(hidden);
    const auto claim = WriterClaim::Take(root.path());
    REQUIRE(claim.ok());
    CHECK(static_cast<uint64_t>(claim->epoch()) >> 32 == (hidden.ends_with(".removed") ? 10 : 8));
    CHECK_FALSE(fs::exists(hidden));
  }
}

// The old attempt's claim is gone with its rank 0; what it once held lives on in its other ranks.
TEST_CASE("what is left of an older attempt changes nothing of a newer one's") {
  TemporaryFolder root;
  const auto claim_of = [&] { return WriterClaim::Take(root.path())->epoch(); };
  const Epoch old = claim_of();
  REQUIRE(Save(root.path(), 10, ThreeRanks(10), old).ok());
  const auto old_folder = CheckpointWriter::Prepare(root.path(), 20, old);
  REQUIRE(old_folder.ok());
  const auto old_states = ThreeRanks(1), new_states = ThreeRanks(2);
  REQUIRE(CheckpointWriter::WriteRank(*old_folder, 0, old_states[0].shards()).ok());
  REQUIRE(CheckpointWriter::WriteRank(*old_folder, 1, old_states[1].shards()).ok());
  fs::create_directories(RemovedFolder(root.path(), old) + "/step-00000003");

  const Epoch now = claim_of();
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
  const auto folder = CheckpointWriter::Prepare(root.path(), 20, now);
  REQUIRE(folder.ok());
  CHECK(*folder != *old_folder);
  CHECK_FALSE(fs::exists(*old_folder));
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*folder, rank, new_states[rank].shards()).ok());
    // A rank of the old attempt that was stopped on its way writes now.
    CHECK_FALSE(CheckpointWriter::WriteRank(*old_folder, 2, old_states[2].shards()).ok());
    CHECK(CheckpointWriter::ReadBack(*folder, rank).ok());
  }
  const auto over = [](const absl::Status& status) {
    return status.code() == Code::kFailedPrecondition &&
           status.ToString().find("newer attempt") != std::string::npos;
  };
  CHECK(over(CheckpointWriter::Prepare(root.path(), 20, old).status()));
  CHECK(over(CheckpointWriter::Prune(root.path(), {.keep = 1, .newest = 10, .epoch = old})));
  CHECK(CheckpointWriter::Abandon(root.path(), 20, old).ok());
  CHECK(over(SetAsideDamaged(root.path(), 10, old).status()));
  REQUIRE(CheckpointWriter::Commit(root.path(), 20, InfoOf(20, 3), now).ok());
  CHECK(NewestHolds(root.path(), 20, 2));
}

TEST_CASE("who has written his last leaves nothing hidden, unless a newer one writes there") {
  TemporaryFolder root;
  const Epoch old = WriterClaim::Take(root.path())->epoch();
  auto claim = WriterClaim::Take(root.path());
  REQUIRE(claim.ok());
  REQUIRE(Save(root.path(), 10, ThreeRanks(10), claim->epoch()).ok());
  CHECK(claim->EmptyHidden().ok());
  // What a clean-up that failed, a save that could not be given up, and a late one have left.
  const auto leave = [&](Epoch own) {
    fs::create_directories(RemovedFolder(root.path(), own) + "/step-00000003");
    WriteAll(RemovedFolder(root.path(), own) + "/step-00000003/rank-000.safetensors", "old");
    fs::create_directories(PartialFolder(root.path(), 20, own));
    fs::create_directories(PartialFolder(root.path(), 30, old));
    fs::create_directories(RemovedFolder(root.path(), old));
  };
  leave(claim->epoch());
  CHECK(claim->EmptyHidden().ok());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
  // Of a node to which no lock reaches.
  const Epoch newer{static_cast<uint64_t>(claim->epoch()) + (uint64_t{1} << 32)};
  WriteAll(root.path() + "/.lock", EpochText(newer) + "\n");
  leave(newer);
  const auto names = NamesIn(root.path());
  CHECK(absl::IsFailedPrecondition(claim->EmptyHidden()));
  CHECK(NamesIn(root.path()) == names);
  CHECK(fs::exists(RemovedFolder(root.path(), newer) + "/step-00000003/rank-000.safetensors"));
}

TEST_CASE("an older attempt that had everything written still cannot put it in place") {
  TemporaryFolder root;
  const Epoch old = WriterClaim::Take(root.path())->epoch();
  const auto old_folder = CheckpointWriter::Prepare(root.path(), 20, old);
  const auto states = ThreeRanks(1);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*old_folder, rank, states[rank].shards()).ok());
  }
  const Epoch now = WriterClaim::Take(root.path())->epoch();
  REQUIRE(Save(root.path(), 10, ThreeRanks(10), now).ok());
  const absl::Status late = CheckpointWriter::Commit(root.path(), 20, InfoOf(20, 3), old).status();
  CHECK(late.code() == Code::kFailedPrecondition);
  CHECK(late.ToString().find("newer attempt") != std::string::npos);
  CHECK(NewestHolds(root.path(), 10, 10));
}

}  // namespace
}  // namespace trireme::checkpoint
