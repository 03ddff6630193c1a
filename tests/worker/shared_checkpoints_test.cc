// Ranks as threads choose and save together: what each reads, on what they agree, and what a bad
// disk under one of them does.
#include "worker/shared_checkpoints.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "checkpoint/client/writer.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/checkpoint/saved_state.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointWriter;
using checkpoint::Epoch;
using checkpoint::FlipByte;
using checkpoint::NamesIn;
using checkpoint::RankState;
using checkpoint::StepFolderName;
using checkpoint::TemporaryFolder;
using checkpoint::ThreeRanks;
using checkpoint::WriterClaim;
using Code = absl::StatusCode;

// Looks before each vote.
class Rank final : public comm::Agreement {
 public:
  using comm::Agreement::Agreement;
  absl::StatusOr<bool> AllAgree(bool yes, Milliseconds deadline) override {
    if (look) look(yes);
    return comm::Agreement::AllAgree(yes, deadline);
  }
  std::function<void(bool yes)> look;
};

// `work` on every rank.
void OnRanks(int ranks, const std::function<void(Rank&)>& work) {
  const auto statuses = comm::RunRanks(ranks, [&](comm::Fabric& fabric) -> absl::Status {
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    ASSIGN_OR_RETURN(auto group, fabric.Group(all, "world"));
    Rank rank(std::move(group), std::chrono::minutes(1));
    work(rank);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

std::vector<absl::StatusOr<Choice>> ChooseAll(int ranks, const std::string& root,
                                              const std::string& resume) {
  std::vector<absl::StatusOr<Choice>> all(static_cast<size_t>(ranks), absl::UnknownError(""));
  OnRanks(ranks, [&](Rank& rank) {
    all[static_cast<size_t>(rank.rank())] = ChooseCheckpoint(rank, {root}, resume);
  });
  return all;
}

// The step that all have chosen; 0: from the start.
uint64_t StepOf(const std::vector<absl::StatusOr<Choice>>& all) {
  REQUIRE(all[0].ok());
  const uint64_t step = all[0]->checkpoint ? all[0]->checkpoint->info().step : 0;
  for (const auto& each : all) {
    REQUIRE(each.ok());
    REQUIRE((each->checkpoint ? each->checkpoint->info().step : 0) == step);
  }
  return step;
}

void SaveSteps(const std::string& root, const std::vector<uint64_t>& steps) {
  for (const uint64_t step : steps) {
    REQUIRE(checkpoint::Save(root, step, ThreeRanks(step)).ok());
  }
}

TEST_CASE("all ranks go on from one checkpoint, whatever number wrote it") {
  TemporaryFolder root;
  for (const int ranks : {1, 2, 5, 65}) CHECK(StepOf(ChooseAll(ranks, root.path(), "auto")) == 0);
  SaveSteps(root.path(), {10, 20});
  for (const int ranks : {1, 2, 3, 5, 65, 300}) {
    CHECK(StepOf(ChooseAll(ranks, root.path(), "auto")) == 20);
    CHECK(StepOf(ChooseAll(ranks, root.path(), root.path() + "/step-00000010")) == 10);
  }
}

TEST_CASE("damage that one rank alone reads sends all of them back to the one before") {
  TemporaryFolder whole;
  SaveSteps(whole.path(), {20});
  for (const std::string& name : NamesIn(whole.path() + "/step-00000020")) {
    for (const int ranks : {1, 2, 5, 65}) {
      TemporaryFolder root;
      SaveSteps(root.path(), {10, 20});
      const std::string path = root.path() + "/step-00000020/" + name;
      FlipByte(path, fs::file_size(path) - 2);
      const auto all = ChooseAll(ranks, root.path(), "auto");
      INFO(name << " " << ranks);
      CHECK(StepOf(all) == 10);
      REQUIRE(all[0]->damaged.size() == 1);
      CHECK(all[0]->damaged[0].folder == root.path() + "/step-00000020");
      CHECK(all[0]->damaged[0].reason.ToString().find(name) != std::string::npos);
      // The one that was named is refused, not replaced by another.
      for (const auto& each : ChooseAll(ranks, root.path(), root.path() + "/step-00000020")) {
        CHECK(each.status().code() == Code::kDataLoss);
      }
      // The claim lets the run go on, with the damaged one set aside.
      auto claim = WriterClaim::Take(root.path());
      REQUIRE(claim.ok());
      const auto aside = claim->BeginAfter(10, all[0]->damaged);
      REQUIRE(aside.ok());
      CHECK(aside->size() == 1);
      CHECK(fs::exists(root.path() + "/step-00000020.damaged"));
    }
  }
}

TEST_CASE("where none is intact all ranks are told so, and of each") {
  TemporaryFolder root;
  SaveSteps(root.path(), {10, 20, 30});
  FlipByte(root.path() + "/step-00000010/rank-001.safetensors", 60);
  fs::remove(root.path() + "/step-00000020/manifest.json");
  fs::resize_file(root.path() + "/step-00000030/rank-002.safetensors", 9);
  const auto all = ChooseAll(4, root.path(), "auto");
  for (const auto& each : all) {
    CHECK(each.status().code() == Code::kDataLoss);
    for (const char* name : {"step-00000010", "step-00000020", "step-00000030"}) {
      CHECK(each.status().ToString().find(name) != std::string::npos);
    }
  }
}

TEST_CASE("a checkpoint that cannot be judged is not gone back behind") {
  TemporaryFolder root;
  SaveSteps(root.path(), {10, 20});
  // A loop of links: neither there nor missing.
  const std::string path = root.path() + "/step-00000020/rank-001.safetensors";
  fs::rename(path, path + ".away");
  fs::create_symlink("rank-001.safetensors", path);
  for (const auto& each : ChooseAll(3, root.path(), "auto")) {
    CHECK_FALSE(each.ok());
    CHECK_FALSE(checkpoint::IsDamage(each.status()));
  }
  fs::rename(path + ".away", path);
  CHECK(StepOf(ChooseAll(3, root.path(), "auto")) == 20);
}

TEST_CASE("each rank reads its part of what is chosen, not all of it") {
  TemporaryFolder root;
  const checkpoint::LogicalTensor wide{"parameter", "wide", {1000, 1000}};  // 62 pieces
  std::vector<RankState> states;
  states.push_back(checkpoint::WholeState({wide}));
  states[0].Fill(1);
  REQUIRE(checkpoint::Save(root.path(), 5, states).ok());
  const uint64_t bytes = fs::file_size(root.path() + "/step-00000005/rank-000.safetensors");
  for (const int ranks : {1, 2, 8, 62}) {
    uint64_t sum = 0;
    for (const auto& each : ChooseAll(ranks, root.path(), "auto")) {
      REQUIRE(each.ok());
      const uint64_t pieces =
          (62 + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
      CHECK(each->bytes_read <= pieces * checkpoint::kPieceBytes);
      sum += each->bytes_read;
    }
    CHECK(sum == bytes);
  }
}

TEST_CASE("what lies behind a run's beginning is judged by all ranks, each its part") {
  constexpr int kRanks = 8;
  TemporaryFolder root;
  const checkpoint::LogicalTensor wide{"parameter", "wide", {1000, 1000}};  // 62 pieces
  std::vector<RankState> states;
  states.push_back(checkpoint::WholeState({wide}));
  states[0].Fill(1);
  for (const uint64_t step : {10, 20, 30}) {
    REQUIRE(checkpoint::Save(root.path(), step, states).ok());
  }
  const auto file = [&](const char* step) {
    return root.path() + "/step-000000" + step + "/rank-000.safetensors";
  };
  const uint64_t bytes = fs::file_size(file("10"));
  // What a run that begins after step 10 is told, the ranks having read up to `most` each.
  const auto begin = [&](uint64_t most) {
    std::vector<Choice> choices(kRanks);
    std::vector<absl::Status> judged(kRanks);
    OnRanks(kRanks, [&](Rank& rank) {
      const auto self = static_cast<size_t>(rank.rank());
      judged[self] = JudgeLater(rank, {root.path()}, 10, choices[self]);
    });
    for (const absl::Status& each : judged) CHECK(each.ok());
    for (const Choice& each : choices) CHECK(each.bytes_read <= most);
    auto claim = WriterClaim::Take(root.path());
    REQUIRE(claim.ok());
    return claim->BeginAfter(10, choices[0].damaged);
  };
  // 62 pieces by 8 ranks, and the header, which two may read.
  const uint64_t part = 9 * checkpoint::kPieceBytes;
  REQUIRE(part < bytes / 2);
  CHECK(begin(part).status().code() == Code::kFailedPrecondition);
  FlipByte(file("30"), 70'000);
  CHECK(begin(2 * part).status().code() == Code::kFailedPrecondition);
  FlipByte(file("20"), 3'900'000);
  const auto aside = begin(2 * part);
  REQUIRE(aside.ok());
  CHECK(aside->size() == 2);
  CHECK(fs::exists(root.path() + "/step-00000020.damaged"));
  CHECK(fs::exists(root.path() + "/step-00000030.damaged"));
  CHECK(fs::exists(file("10")));
}

struct Bad {
  int rank = -1;     // whose disk
  std::string file;  // of its partial folder
};

// What all ranks say of a save of three; after all have written, a byte of `bad` flips.
std::vector<absl::StatusOr<bool>> SaveAll(const std::string& root, uint64_t step, int keep,
                                          Epoch epoch, const Bad& bad = {},
                                          const absl::Status& state = absl::OkStatus(),
                                          std::vector<std::string>* committing = nullptr,
                                          std::vector<std::vector<bool>>* votes = nullptr) {
  std::vector<absl::StatusOr<bool>> all(3, absl::UnknownError(""));
  const auto states = ThreeRanks(step);
  OnRanks(3, [&](Rank& rank) {
    const int own = rank.rank();
    SaveOrder order{.step = step, .keep = keep, .epoch = epoch};
    order.check_state = [&] { return state; };
    order.write = [&, own](const std::string& partial) {
      const absl::Status status =
          CheckpointWriter::WriteRank(partial, own, states[static_cast<size_t>(own)].shards());
      if (own == bad.rank) FlipByte(partial + "/" + bad.file, 70);
      return status;
    };
    order.describe = [&] { return checkpoint::InfoOf(step, 3); };
    order.committing = [&, own](const std::string& name) {
      if (committing == nullptr) return;
      CHECK(own == 0);
      // Whole, and not there yet.
      CHECK(fs::exists(checkpoint::PartialFolder(root, step, epoch) + "/rank-002.json"));
      CHECK_FALSE(fs::exists(root + "/" + name));
      committing->push_back(name);
    };
    rank.look = [&](bool yes) {
      if (votes != nullptr) (*votes)[static_cast<size_t>(own)].push_back(yes);
    };
    all[static_cast<size_t>(own)] = SaveCheckpoint(rank, {root}, order);
  });
  return all;
}

// The writer's own node may have it right in its memory.
TEST_CASE("what a rank has written is read back by another one") {
  TemporaryFolder root;
  const Epoch epoch = WriterClaim::Take(root.path())->epoch();
  for (const int writer : {0, 1, 2}) {
    INFO(writer);
    const Bad bad{writer, base::Text("rank-00", writer, ".safetensors")};
    std::vector<std::vector<bool>> votes(3);
    SaveAll(root.path(), 10, 1, epoch, bad, absl::OkStatus(), nullptr, &votes);
    int against = 0;
    for (const int rank : {0, 1, 2}) {
      const auto& own = votes[static_cast<size_t>(rank)];
      // Prepared, written, read back, what came of it, and that rank 0 has noted why.
      REQUIRE(own.size() == 5);
      CHECK((own[0] && own[1] && !own[3]));
      if (rank == writer) CHECK(own[2]);
      against += own[2] ? 0 : 1;
    }
    CHECK(against == 1);
  }
}

TEST_CASE("a save that the disk has spoilt removes nothing, not even with keep: 1") {
  TemporaryFolder root;
  const Epoch epoch = WriterClaim::Take(root.path())->epoch();
  for (const auto& each : SaveAll(root.path(), 10, 1, epoch)) CHECK(each.value());
  for (const Bad& bad : {Bad{0, "rank-000.safetensors"}, Bad{1, "rank-001.safetensors"},
                         Bad{2, "rank-002.safetensors"}, Bad{2, "rank-002.json"}}) {
    INFO(bad.file);
    for (const auto& each : SaveAll(root.path(), 20, 1, epoch, bad)) CHECK_FALSE(each.value());
    CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
    CHECK(checkpoint::NewestHolds(root.path(), 10, 10));
    // Nor is a good one of the same step replaced.
    for (const auto& each : SaveAll(root.path(), 10, 1, epoch, bad)) CHECK_FALSE(each.value());
    CHECK(checkpoint::NewestHolds(root.path(), 10, 10));
  }
  for (const auto& each : SaveAll(root.path(), 20, 1, epoch)) CHECK(each.value());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000020"});
  CHECK(checkpoint::NewestHolds(root.path(), 20, 20));
}

TEST_CASE("the name that a save is about to get is said once, by rank 0, before it has it") {
  TemporaryFolder root;
  const Epoch epoch = WriterClaim::Take(root.path())->epoch();
  std::vector<std::string> said;
  for (const auto& each : SaveAll(root.path(), 10, 1, epoch, {}, absl::OkStatus(), &said)) {
    CHECK(each.value());
  }
  CHECK(said == std::vector<std::string>{"step-00000010"});
  // Not of one that nobody is to take for saved.
  const Bad bad{1, "rank-001.safetensors"};
  for (const auto& each : SaveAll(root.path(), 20, 1, epoch, bad, absl::OkStatus(), &said)) {
    CHECK_FALSE(each.value());
  }
  CHECK(said.size() == 1);
}

TEST_CASE("a save of a state that ranks do not hold alike writes and removes nothing") {
  TemporaryFolder root;
  const Epoch epoch = WriterClaim::Take(root.path())->epoch();
  for (const auto& each : SaveAll(root.path(), 10, 1, epoch)) CHECK(each.value());
  const absl::Status corrupt = absl::DataLossError("rank 2 holds other weights");
  for (const auto& each : SaveAll(root.path(), 20, 1, epoch, {}, corrupt)) {
    CHECK(each.status() == corrupt);
  }
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
  CHECK(checkpoint::NewestHolds(root.path(), 10, 10));
}

// After the last vote the ranks go on to the next step, which waits for nobody at a disk.
TEST_CASE("what a save that failed has left is gone before the last vote on it") {
  const auto states = ThreeRanks(20);
  for (const std::string fails : {"writing", "reading back", "committing"}) {
    INFO(fails);
    TemporaryFolder root;
    const Epoch epoch = WriterClaim::Take(root.path())->epoch();
    const std::string partial_folder = checkpoint::PartialFolder(root.path(), 20, epoch);
    std::vector<bool> there;  // before each vote of rank 0
    std::vector<absl::StatusOr<bool>> all(3, absl::UnknownError(""));
    std::vector<std::string> why(3);
    OnRanks(3, [&](Rank& rank) {
      const int own = rank.rank();
      rank.look = [&, own](bool) {
        if (own == 0) there.push_back(fs::exists(partial_folder));
      };
      SaveOrder order{.step = 20, .epoch = epoch};
      order.check_state = [] { return absl::OkStatus(); };
      order.write = [&, own](const std::string& partial) -> absl::Status {
        if (own == 1 && fails == "writing") return absl::UnavailableError("no disk");
        const absl::Status status =
            CheckpointWriter::WriteRank(partial, own, states[static_cast<size_t>(own)].shards());
        if (own == 1 && fails == "reading back") FlipByte(partial + "/rank-001.safetensors", 70);
        return status;
      };
      // A fourth rank has written nothing.
      order.describe = [&] { return checkpoint::InfoOf(20, fails == "committing" ? 4 : 3); };
      order.failed = [&, own](const absl::Status& status) {
        why[static_cast<size_t>(own)] = std::string(status.message());
      };
      all[static_cast<size_t>(own)] = SaveCheckpoint(rank, {root.path()}, order);
    });
    for (const auto& each : all) CHECK_FALSE(each.value());
    // Whoever tells people is not the one whose disk it was.
    if (fails == "writing") CHECK(why == std::vector<std::string>(3, "rank 1: no disk"));
    for (const std::string& each : why) CHECK_FALSE(each.empty());
    CHECK(there.front());
    CHECK_FALSE(there.back());
  }
}

TEST_CASE("the ranks of an attempt whose time is over save and remove nothing") {
  TemporaryFolder root;
  const Epoch old = WriterClaim::Take(root.path())->epoch();
  for (const auto& each : SaveAll(root.path(), 10, 1, old)) CHECK(each.value());
  const Epoch now = WriterClaim::Take(root.path())->epoch();
  for (const auto& each : SaveAll(root.path(), 20, 1, old)) CHECK_FALSE(each.value());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
  for (const auto& each : SaveAll(root.path(), 20, 1, now)) CHECK(each.value());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000020"});
}

}  // namespace
TEST_CASE("not before: the disk counts where an intact checkpoint is as new, and nowhere else") {
  const auto choose = [](const std::string& root, uint64_t step) {
    std::vector<absl::StatusOr<Choice>> all(3, absl::UnknownError(""));
    OnRanks(3, [&](Rank& rank) {
      all[static_cast<size_t>(rank.rank())] = ChooseNotBefore(rank, {root}, step);
    });
    for (const auto& each : all) {
      REQUIRE(each.ok());
      CHECK(each->older_step == all[0]->older_step);
    }
    return std::pair(StepOf(all), all[0]->older_step);
  };
  using Steps = std::pair<uint64_t, uint64_t>;  // chosen, and the newest one
  const TemporaryFolder folder;
  const std::string root = folder.path() + "/checkpoints";
  CHECK(choose(root, 5) == Steps{0, 0});
  SaveSteps(root, {3, 7});
  CHECK(choose(root, 5) == Steps{7, 7});
  CHECK(choose(root, 7) == Steps{7, 7});
  CHECK(choose(root, 8) == Steps{0, 7});
  const std::string tensors = root + "/" + StepFolderName(7) + "/rank-001.safetensors";
  FlipByte(tensors, fs::file_size(tensors) - 1);
  // The headers say 7, the bytes that it is 3.
  CHECK(choose(root, 5) == Steps{0, 3});
  CHECK(choose(root, 3) == Steps{3, 3});
  const std::string older = root + "/" + StepFolderName(3) + "/rank-000.safetensors";
  FlipByte(older, fs::file_size(older) - 1);
  CHECK(choose(root, 5) == Steps{0, 0});
}

}  // namespace trireme::worker
