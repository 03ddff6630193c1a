// Damage is found when it is read, and named; it never becomes state.
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/format/piece_table.h"
#include "tests/checkpoint/sample_state.h"
#include "tests/sanitizer.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string SaveSample(const std::string& root, const std::vector<LogicalTensor>& tensors,
                       int ranks) {
  Random random(3);
  auto states = RandomLayout(random, tensors, ranks);
  auto folder = CheckpointWriter::Prepare(root, 5);
  REQUIRE(folder.ok());
  for (int rank = 0; rank < ranks; ++rank) {
    states[rank].Fill(9);
    REQUIRE(CheckpointWriter::WriteRank(*folder, rank, states[rank].shards()).ok());
  }
  auto committed = CheckpointWriter::Commit(root, 5, InfoOf(5, ranks));
  REQUIRE(committed.ok());
  return *committed;
}

absl::Status RestoreAll(const std::string& folder, const std::vector<LogicalTensor>& tensors) {
  const auto opened = Open(folder);
  if (!opened.ok()) return opened.status();
  RankState state = WholeState(tensors);
  const absl::Status status = opened->Restore(state.shards());
  if (status.ok() && !state.Holds(9)) return absl::InternalError("damaged state was handed out");
  return status;
}

constexpr uint64_t kStride = tests::kSanitizer ? 8 * 23 : 23;

TEST_CASE("one flipped byte anywhere is found and its file named") {
  TemporaryFolder root;
  const auto tensors = SampleTensors();
  const std::string folder = SaveSample(root.path(), tensors, 3);
  REQUIRE(RestoreAll(folder, tensors).ok());
  REQUIRE(Verify(folder).ok());
  int flipped = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string path = file.path().string();
    const uint64_t bytes = fs::file_size(path);
    for (uint64_t offset = 0; offset < bytes; offset += offset < 64 ? 1 : kStride) {
      FlipByte(path, offset);
      const absl::Status restored = RestoreAll(folder, tensors);
      INFO(path << " byte " << offset << ": " << restored.ToString());
      REQUIRE(restored.code() == absl::StatusCode::kDataLoss);
      REQUIRE(restored.ToString().find(file.path().filename()) != std::string::npos);
      REQUIRE(Verify(folder).code() == absl::StatusCode::kDataLoss);
      FlipByte(path, offset);
      ++flipped;
    }
  }
  CHECK(flipped > tests::Tries(500));
  CHECK(RestoreAll(folder, tensors).ok());
}

TEST_CASE("a damaged piece is named with its tensor, and spares what lies elsewhere") {
  TemporaryFolder root;
  const std::vector<LogicalTensor> tensors{{"parameter", "a", {50000}},
                                           {"parameter", "b", {50000}}};
  const std::string folder = SaveSample(root.path(), tensors, 1);
  const std::string path = folder + "/rank-000.safetensors";
  // Tensor a comes first by name; byte 100,000 lies in piece 1, and piece 5 holds only b.
  FlipByte(path, 100000);
  const absl::Status a = RestoreAll(folder, tensors);
  CHECK(a.ToString().find("rank-000.safetensors: piece 1 ") != std::string::npos);
  CHECK(a.ToString().find("parameter 'a'") != std::string::npos);
  CHECK(RestoreAll(folder, {tensors[1]}).ok());
  FlipByte(path, 350000);
  const std::string both = Verify(folder).ToString();
  CHECK(both.find("piece 1 ") != std::string::npos);
  CHECK(both.find("piece 5 ") != std::string::npos);
  CHECK(both.find("parameter/b") != std::string::npos);
}

TEST_CASE("truncated, grown and missing files are named before anything is read") {
  const auto tensors = SampleTensors();
  for (const char* name : {"rank-001.safetensors", "manifest.json"}) {
    for (int cut : {-1, 0, 1, 8, 200, 1 << 20}) {
      TemporaryFolder root;
      const std::string folder = SaveSample(root.path(), tensors, 2);
      const std::string path = folder + "/" + name;
      if (cut < 0) {
        fs::remove(path);
      } else if (cut > 1000) {
        WriteAll(path, ReadAll(path) + "x");
      } else {
        fs::resize_file(path, cut);
      }
      const auto opened = Open(folder);
      INFO(name << " " << cut << ": " << opened.status().ToString());
      REQUIRE_FALSE(opened.ok());
      CHECK(opened.status().ToString().find(name) != std::string::npos);
      CHECK_FALSE(FindNewest(root.path()).ok());
    }
  }
}

TEST_CASE("a file that is cut off after opening is a status, not a signal") {
  TemporaryFolder root;
  const std::vector<LogicalTensor> tensors{{"parameter", "a", {50000}}};
  const auto opened = Open(SaveSample(root.path(), tensors, 1));
  REQUIRE(opened.ok());
  fs::resize_file(opened->folder() + "/rank-000.safetensors", 70000);
  RankState state = WholeState(tensors);
  CHECK(opened->Restore(state.shards()).code() == absl::StatusCode::kDataLoss);
  fs::remove(opened->folder() + "/rank-000.safetensors");
  CHECK(opened->Restore(state.shards()).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("FindNewest passes over broken checkpoints and says why") {
  TemporaryFolder root;
  const auto tensors = SampleTensors();
  CHECK(FindNewest(root.path() + "/none").status().code() == absl::StatusCode::kNotFound);
  const std::string good = SaveSample(root.path(), tensors, 1);
  fs::copy(good, root.path() + "/step-00000009", fs::copy_options::recursive);
  fs::remove(root.path() + "/step-00000009/rank-000.safetensors");
  fs::create_directory(root.path() + "/step-00000012");
  fs::create_directory(root.path() + "/step-x");
  fs::create_directory(root.path() + "/.step-00000013.partial");
  std::vector<Skipped> skipped;
  const auto newest = FindNewest(root.path(), &skipped);
  REQUIRE(newest.ok());
  CHECK(*newest == good);
  REQUIRE(skipped.size() == 2);
  CHECK(skipped[0].folder == root.path() + "/step-00000012");
  CHECK(skipped[0].reason.ToString().find("manifest.json") != std::string::npos);
  CHECK(skipped[1].reason.ToString().find("rank-000.safetensors") != std::string::npos);
}

TEST_CASE("FindNewestIntact reads what FindNewest believes") {
  TemporaryFolder root;
  const auto tensors = SampleTensors();
  CHECK(FindNewestIntact(root.path()).status().code() == absl::StatusCode::kNotFound);
  const std::string good = SaveSample(root.path(), tensors, 1);
  for (const char* name : {"/step-00000008", "/step-00000009"}) {
    fs::copy(good, root.path() + name, fs::copy_options::recursive);
    const std::string file = root.path() + name + "/rank-000.safetensors";
    std::string bytes = *ReadText(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    REQUIRE(WriteDurably(file, bytes).ok());
  }
  fs::create_directory(root.path() + "/step-00000010x");
  CHECK(FindNewest(root.path()).value() == root.path() + "/step-00000009");
  std::vector<Skipped> skipped;
  CHECK(FindNewestUndamaged(root.path(), &skipped).value() == root.path() + "/step-00000009");
  CHECK(skipped.empty());
  CHECK(FindNewestIntact(root.path(), &skipped).value() == good);
  REQUIRE(skipped.size() == 2);
  CHECK(skipped[0].folder == root.path() + "/step-00000009");
  fs::remove(good + "/manifest.json");
  const auto none = FindNewestIntact(root.path(), &skipped);
  CHECK(none.status().code() == absl::StatusCode::kDataLoss);
  CHECK(none.status().ToString().find("step-00000008") != std::string::npos);
  CHECK(skipped.size() == 3);
}

TEST_CASE("what a disk has lost is damage, whatever it says of it") {
  for (const int lost : {EIO, EUCLEAN, EBADMSG, EINVAL}) {
    CHECK(IsDamage(ReadError("file", "cannot be read", lost)));
  }
  for (const int passing : {EACCES, ESTALE, ETIMEDOUT, ELOOP, EMFILE, ENOTDIR}) {
    CHECK_FALSE(IsDamage(ReadError("file", "cannot be read", passing)));
  }
  // A folder where a file should be.
  for (const char* name : {"manifest.json", "rank-000.safetensors"}) {
    TemporaryFolder root;
    const std::string good = SaveSample(root.path(), SampleTensors(), 1);
    const std::string newer = root.path() + "/step-00000009";
    fs::copy(good, newer, fs::copy_options::recursive);
    fs::remove(newer + "/" + name);
    fs::create_directory(newer + "/" + name);
    const auto found = FindNewestIntact(root.path());
    INFO(name << " " << found.status().ToString());
    REQUIRE(found.ok());
    CHECK(*found == good);
  }
  // A file where the folder should be.
  TemporaryFolder root;
  const std::string good = SaveSample(root.path(), SampleTensors(), 1);
  fs::copy(good + "/manifest.json", root.path() + "/step-00000009");
  std::vector<Skipped> skipped;
  const auto found = FindNewestUndamaged(root.path(), &skipped);
  INFO(found.status().ToString());
  REQUIRE(found.ok());
  CHECK(*found == good);
  REQUIRE(skipped.size() == 1);
  CHECK(skipped[0].reason.message() ==
        root.path() + "/step-00000009: is a file, expected a checkpoint's folder");
}

TEST_CASE("a newer checkpoint that cannot be judged is not gone back behind") {
  TemporaryFolder root;
  std::vector<Skipped> skipped;
  CHECK(absl::IsNotFound(FindNewestUndamaged(root.path(), &skipped).status()));
  SaveSample(root.path(), SampleTensors(), 1);
  const std::string newer = root.path() + "/step-00000009";
  fs::create_directory(newer);
  CHECK(FindNewestUndamaged(root.path(), &skipped).value() == root.path() + "/step-00000005");
  CHECK(skipped.size() == 1);
  // A loop of links: neither there nor missing.
  fs::create_symlink("manifest.json", newer + "/manifest.json");
  for (const auto& found :
       {FindNewestUndamaged(root.path(), &skipped), FindNewestIntact(root.path())}) {
    INFO(found.status().ToString());
    CHECK_FALSE(found.ok());
    CHECK_FALSE(IsDamage(found.status()));
  }
  fs::remove_all(root.path() + "/step-00000005");
  fs::remove(newer + "/manifest.json");
  skipped.clear();
  CHECK(absl::IsDataLoss(FindNewestUndamaged(root.path(), &skipped).status()));
  CHECK(skipped.size() == 1);
}

// keep: 1, while somebody looks: the newest is replaced between its name and its bytes.
TEST_CASE("a checkpoint that its run removes while it is looked at is no damage") {
  TemporaryFolder root;
  const std::string made = SaveSample(root.path(), SampleTensors(), 1);
  const auto folder_of = [&](uint64_t step) { return root.path() + "/" + StepFolderName(step); };
  fs::rename(made, folder_of(1));
  constexpr uint64_t kLooks = 800, kSavesEach = 3;
  std::atomic<uint64_t> looks = 0;
  std::atomic<uint64_t> saves_left = 0;  // of this look: those of earlier ones do not add up
  std::thread run([&] {
    for (uint64_t step = 1; looks < kLooks; ++step) {
      while (looks < kLooks && saves_left == 0) std::this_thread::yield();
      --saves_left;
      fs::copy(folder_of(step), root.path() + "/.next", fs::copy_options::recursive);
      fs::rename(root.path() + "/.next", folder_of(step + 1));
      fs::rename(folder_of(step), root.path() + "/.old");
      fs::remove_all(root.path() + "/.old");
    }
  });
  std::vector<absl::Status> told;
  for (; looks < kLooks; ++looks) {
    saves_left = kSavesEach;
    std::vector<Skipped> skipped;
    bool listed = false;  // nor is the list of what is there ever empty
    const auto list = [&](const std::string&, const absl::StatusOr<Checkpoint>& opened) {
      listed = true;
      told.push_back(opened.status());
    };
    told.push_back(looks % 4 == 0   ? FindNewest(root.path(), &skipped).status()
                   : looks % 4 == 1 ? FindNewestUndamaged(root.path(), &skipped).status()
                   : looks % 4 == 2 ? FindNewestIntact(root.path(), &skipped).status()
                                    : VisitCheckpoints(root.path(), 9, base::Links::kFollow, list));
    if (looks % 4 == 3 && !listed) told.push_back(absl::NotFoundError("an empty list"));
    for (const Skipped& each : skipped) told.push_back(each.reason);
  }
  run.join();
  for (const absl::Status& each : told) CHECK(each.ToString() == "OK");
}

}  // namespace
}  // namespace trireme::checkpoint
