// All or nothing: whatever is left out, killed, doubled or full, older checkpoints stay whole.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/folder_names.h"
#include "tests/checkpoint/saved_state.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a save that stops between its steps shows nothing, and the next one starts clean") {
  TemporaryFolder root;
  REQUIRE(Save(root.path(), 1, ThreeRanks(1)).ok());
  const auto states = ThreeRanks(2);
  const auto folder = CheckpointWriter::Prepare(root.path(), 2);
  REQUIRE(folder.ok());
  CHECK(NewestHolds(root.path(), 1, 1));
  REQUIRE(CheckpointWriter::WriteRank(*folder, 0, states[0].shards()).ok());
  REQUIRE(CheckpointWriter::WriteRank(*folder, 2, states[2].shards()).ok());
  CHECK(NewestHolds(root.path(), 1, 1));
  // Rank 1 has not written.
  const auto missing = CheckpointWriter::Commit(root.path(), 2, InfoOf(2, 3)).status();
  CHECK(missing.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(missing.ToString().find("rank 1 of 3") != std::string::npos);
  CHECK(NewestHolds(root.path(), 1, 1));
  // All but the rename: what a crash at the last moment leaves.
  REQUIRE(Save(root.path(), 2, states).ok());
  fs::rename(root.path() + "/step-00000002", *folder);
  CHECK(NewestHolds(root.path(), 1, 1));
  REQUIRE(Save(root.path(), 2, ThreeRanks(3)).ok());
  CHECK(NewestHolds(root.path(), 2, 3));
  CHECK_FALSE(fs::exists(*folder));
}

TEST_CASE("commit refuses shards that do not hold every element once") {
  TemporaryFolder root;
  const LogicalTensor tensor{"parameter", "w", {10, 4}};
  auto commit = [&](layout::Interval first, layout::Interval second, int ranks) {
    std::vector<RankState> states(2);
    states[0].Add(tensor, {layout::Box::Whole(tensor.shape), first});
    states[1].Add(tensor, {layout::Box::Whole(tensor.shape), second});
    const auto folder = CheckpointWriter::Prepare(root.path(), 4);
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(CheckpointWriter::WriteRank(*folder, rank, states[rank].shards()).ok());
    }
    return CheckpointWriter::Commit(root.path(), 4, InfoOf(4, ranks)).status();
  };
  const auto gap = commit({0, 17}, {18, 40}, 2);
  CHECK(gap.code() == absl::StatusCode::kInvalidArgument);
  CHECK(gap.ToString().find("parameter 'w'") != std::string::npos);
  CHECK(gap.ToString().find("39 of 40") != std::string::npos);
  CHECK(commit({0, 19}, {18, 40}, 2).code() == absl::StatusCode::kInvalidArgument);
  const auto extra = commit({0, 40}, {0, 0}, 1);
  CHECK(extra.ToString().find("rank 1 wrote too") != std::string::npos);
  CHECK_FALSE(FindNewest(root.path()).ok());
  CHECK(commit({0, 18}, {18, 40}, 2).ok());
  CHECK(CheckpointWriter::Commit(root.path(), 4, InfoOf(5, 2)).status().code() ==
        absl::StatusCode::kInvalidArgument);
  auto info = InfoOf(4, 2);
  info.job_yaml = "\xff";
  REQUIRE(CheckpointWriter::Prepare(root.path(), 4).ok());
  CHECK_FALSE(CheckpointWriter::Commit(root.path(), 4, info).ok());
}

TEST_CASE("WriteRank refuses shards that are none") {
  TemporaryFolder root;
  const auto folder = CheckpointWriter::Prepare(root.path(), 1);
  const auto code = [&](const std::function<void(StateShard&)>& spoil) {
    RankState state = WholeState({{"parameter", "w", {3}}});
    spoil(state.shards()[0]);
    return CheckpointWriter::WriteRank(*folder, 0, state.shards()).code();
  };
  const auto bad = absl::StatusCode::kInvalidArgument;
  CHECK(code([](StateShard&) {}) == absl::StatusCode::kOk);
  CHECK(code([](StateShard& s) { s.data = s.data.first(8); }) == bad);
  CHECK(code([](StateShard& s) { s.kind = "a/b"; }) == bad);
  CHECK(code([](StateShard& s) { s.kind = ""; }) == bad);
  CHECK(code([](StateShard& s) { s.name = ""; }) == bad);
  CHECK(code([](StateShard& s) { s.name = "\xff"; }) == bad);
  CHECK(code([](StateShard& s) { s.shard.interval = {0, 4}; }) == bad);
  RankState state = WholeState({{"parameter", "w", {3}}});
  CHECK_FALSE(CheckpointWriter::WriteRank(root.path() + "/none", 0, state.shards()).ok());
}

TEST_CASE("the same step again changes nothing of the one that is there") {
  TemporaryFolder root;
  REQUIRE(Save(root.path(), 7, ThreeRanks(1)).ok());
  const auto again = CheckpointWriter::Commit(root.path(), 7, InfoOf(7, 3)).status();
  CHECK(again.code() == absl::StatusCode::kAlreadyExists);
  const auto anew = Save(root.path(), 7, ThreeRanks(2));
  CHECK(anew.code() == absl::StatusCode::kAlreadyExists);
  CHECK(anew.ToString().find("step-00000007: is there already") != std::string::npos);
  CHECK(NewestHolds(root.path(), 7, 1));
  REQUIRE(CheckpointWriter::Abandon(root.path(), 7).ok());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{"step-00000007"});
  CHECK(CheckpointWriter::Commit(root.path(), 8, InfoOf(8, 3)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("prune keeps the newest that open and clears leftovers behind them") {
  TemporaryFolder root;
  for (uint64_t step : {1, 2, 3, 4, 5}) REQUIRE(Save(root.path(), step, ThreeRanks(step)).ok());
  fs::remove(root.path() + "/step-00000004/manifest.json");
  fs::create_directory(root.path() + "/.step-00000003.partial");
  fs::create_directory(root.path() + "/.step-00000003.0000000112345678.partial");
  fs::create_directory(root.path() + "/.step-00000002.old");
  fs::create_directory(root.path() + "/.step-00000006.partial");
  fs::create_directory(root.path() + "/step-00000002.damaged");
  fs::create_directory(root.path() + "/notes");
  REQUIRE(CheckpointWriter::Prune(root.path(), {.keep = 2, .newest = 5}).ok());
  CHECK(NamesIn(root.path()) == std::vector<std::string>{".step-00000006.partial", "notes",
                                                         "step-00000002.damaged", "step-00000003",
                                                         "step-00000004", "step-00000005"});
  CHECK_FALSE(CheckpointWriter::Prune(root.path(), {.keep = 0, .newest = 5}).ok());
  REQUIRE(CheckpointWriter::Abandon(root.path(), 6).ok());
  CHECK_FALSE(fs::exists(root.path() + "/.step-00000006.partial"));
}

TEST_CASE("prune removes nothing for a newest one that does not open") {
  TemporaryFolder root;
  for (uint64_t step : {1, 2, 3}) REQUIRE(Save(root.path(), step, ThreeRanks(step)).ok());
  const std::string manifest = root.path() + "/step-00000003/manifest.json";
  FlipByte(manifest, fs::file_size(manifest) / 2);
  const auto before = NamesIn(root.path());
  CHECK_FALSE(CheckpointWriter::Prune(root.path(), {.keep = 1, .newest = 3}).ok());
  fs::remove(manifest);
  CHECK_FALSE(CheckpointWriter::Prune(root.path(), {.keep = 1, .newest = 3}).ok());
  CHECK(NamesIn(root.path()) == before);
}

TEST_CASE("what a rank wrote is read back, every byte of it") {
  TemporaryFolder root;
  const auto folder = CheckpointWriter::Prepare(root.path(), 1);
  const auto states = ThreeRanks(1);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*folder, rank, states[rank].shards()).ok());
  }
  for (const char* name : {"/rank-001.safetensors", "/rank-001.json"}) {
    const std::string path = *folder + name;
    const uint64_t bytes = fs::file_size(path);
    for (uint64_t offset = 0; offset < bytes; offset += offset < 64 ? 1 : 23) {
      FlipByte(path, offset);
      const absl::Status status = CheckpointWriter::ReadBack(*folder, 1);
      INFO(path << " byte " << offset << ": " << status.ToString());
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      FlipByte(path, offset);
    }
  }
  uint64_t read = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const uint64_t before = read;
    CHECK(CheckpointWriter::ReadBack(*folder, rank, &read).ok());
    CHECK(read - before >= fs::file_size(*folder + "/" + RankFileName(rank)));
  }
  CHECK(CheckpointWriter::ReadBack(*folder, 3).code() == absl::StatusCode::kNotFound);
  fs::resize_file(*folder + "/rank-002.safetensors", 100);
  CHECK(CheckpointWriter::ReadBack(*folder, 2).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("a run that began again keeps what it commits, and what is not its own") {
  TemporaryFolder root;
  for (uint64_t step : {10, 20, 30}) REQUIRE(Save(root.path(), step, ThreeRanks(step)).ok());
  for (uint64_t step : {12, 14, 16}) {
    REQUIRE(Save(root.path(), step, ThreeRanks(step)).ok());
    REQUIRE(CheckpointWriter::Prune(root.path(), {.keep = 2, .newest = step}).ok());
    CHECK(Open(root.path() + "/" + StepFolderName(step)).ok());
  }
  CHECK(NamesIn(root.path()) == std::vector<std::string>{"step-00000014", "step-00000016",
                                                         "step-00000020", "step-00000030"});
  CHECK(FindNewest(root.path(), nullptr, 20).value() == root.path() + "/step-00000016");
}

TEST_CASE("ranks write at the same time") {
  TemporaryFolder root;
  const auto states = ThreeRanks(6);
  const auto folder = CheckpointWriter::Prepare(root.path(), 6);
  std::vector<absl::Status> written(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      written[rank] = CheckpointWriter::WriteRank(*folder, rank, states[rank].shards());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : written) CHECK(status.ok());
  REQUIRE(CheckpointWriter::Commit(root.path(), 6, InfoOf(6, 3)).ok());
  const auto opened = Open(root.path() + "/step-00000006");
  std::vector<std::thread> readers;
  std::vector<int> good(3);
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      RankState state = WholeState(SampleTensors());
      good[reader] = opened->Restore(state.shards()).ok() && state.Holds(6);
    });
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(good == std::vector<int>{1, 1, 1});
}

TEST_CASE("a writer killed at any moment leaves a newest checkpoint that is whole") {
  TemporaryFolder root;
  REQUIRE(Save(root.path(), 1, ThreeRanks(1)).ok());
  Random random(41);
  uint64_t last = 1;
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (uint64_t step = last + 1;; ++step) {
        if (!Save(root.path(), step, ThreeRanks(step)).ok()) _exit(1);
        if (!CheckpointWriter::Prune(root.path(), {.keep = 2, .newest = step}).ok()) _exit(2);
      }
    }
    usleep(static_cast<useconds_t>(Draw(random, 500, 40000)));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    std::vector<Skipped> skipped;
    const auto newest = FindNewest(root.path(), &skipped);
    REQUIRE(newest.ok());
    CHECK(skipped.empty());
    last = Open(*newest)->info().step;
    CHECK(NewestHolds(root.path(), last, last));
  }
}

// As `ulimit -f` does, which is a full disk for one file: any user can have that.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("a full disk is a status, and older checkpoints stay") {
  TemporaryFolder root;
  REQUIRE(Save(root.path(), 1, ThreeRanks(1)).ok());
  const uint64_t manifest = fs::file_size(root.path() + "/step-00000001/manifest.json");
  std::vector<RankState> large;
  large.push_back(WholeState({{"parameter", "w", {200000}}}));
  {
    const FileSizeLimit limit(512 << 10);
    const absl::Status full = Save(root.path(), 2, large);
    INFO(full.ToString());
    CHECK(full.code() == absl::StatusCode::kUnavailable);
    CHECK(full.ToString().find("rank-000.safetensors") != std::string::npos);
  }
  CHECK(fs::is_empty(PartialFolder(root.path(), 2)));  // Its room was given back.
  CHECK(NewestHolds(root.path(), 1, 1));
  // Full for the manifest only, which is longer than each of the files that it is about.
  const auto folder = CheckpointWriter::Prepare(root.path(), 3);
  const auto three = ThreeRanks(3);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*folder, rank, three[rank].shards()).ok());
    REQUIRE(fs::file_size(*folder + "/" + RankFileName(rank)) < manifest);
  }
  {
    const FileSizeLimit limit(manifest - 1);
    CHECK(CheckpointWriter::Commit(root.path(), 3, InfoOf(3, 3)).status().code() ==
          absl::StatusCode::kUnavailable);
  }
  CHECK(NewestHolds(root.path(), 1, 1));
  CHECK(Save(root.path(), 3, three).ok());
  CHECK(NewestHolds(root.path(), 3, 3));
}

}  // namespace
}  // namespace trireme::checkpoint
