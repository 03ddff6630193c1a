// Two ranks that are cut off in the middle of a run with snapshots, and what the next attempt
// takes: memory or disk, whatever has become of either meanwhile.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/client/snapshot_reader.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/folder_names.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/recorder/flight_recorder.h"
#include "tests/checkpoint/sample_state.h"
#include "tests/worker/link/small_run.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

// Of six steps, with no checkpoint before the last.
class RunInMemory {
 public:
  RunInMemory() = default;
  ~RunInMemory() {
    if (const auto folder = Folder()) fs::remove_all(*folder);
  }

  const SmallRun& run() const { return run_; }
  TrainingOptions options(const std::string& resume = "") const {
    TrainingOptions options = run_.Options();
    options.overrides = {"snapshots.every_step=true", "checkpoint.every_steps=0"};
    options.run.resume = resume;
    return options;
  }
  // In memory; none: it has no key yet.
  std::optional<std::string> Folder() const {
    const auto key = checkpoint::ReadSnapshotKey(run_.Path("run"));
    if (!key.ok()) return std::nullopt;
    return checkpoint::SnapshotFolder("/dev/shm", *key);
  }
  // At which step its newest start went on there; 0: it began elsewhere.
  uint64_t WentOnAt() const {
    const auto recording = recorder::ReadRecording(run_.Path("run/recorder/rank-000.rec"));
    REQUIRE(recording.ok());
    return recording->progress.memory_step;
  }
  bool IsInMemory() const { return Folder() && fs::exists(*Folder()); }
  std::vector<base::ExitCode> GoOn() const { return run_.Train(options("auto")); }

  // A rank's first waits from when `is_time` on, and all later ones, fail.
  std::vector<base::ExitCode> TrainCutOff(const std::function<bool()>& is_time,
                                          int checkpoint_every = 0) const {
    TrainingOptions as = options();
    as.overrides.back() = "checkpoint.every_steps=" + std::to_string(checkpoint_every);
    std::atomic<bool> cut{false};
    Waits waits;
    return RunPair(waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(as, fabric); },
                           .on_wait = [&](int) { cut = cut || is_time(); },
                           .is_cut_off = [&](int) { return cut.load(); }});
  }
  int Lines() const {
    std::ifstream file(run_.Path("run/metrics.jsonl"));
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  bool HasLogged(int step) const {
    std::ifstream file(run_.Path("run/metrics.jsonl"));
    const std::string begin = "{\"step\":" + std::to_string(step) + ",\"loss\"";
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(begin)) return true;
    }
    return false;
  }

 private:
  const SmallRun run_;
};

const std::vector<base::ExitCode> kNeitherBegins(kPair, base::kBadInput);

// A rank's file as its next owner opens it.
std::unique_ptr<checkpoint::SnapshotFile> OpenFile(const std::string& folder, uint32_t rank) {
  std::string path;
  base::VisitNames(folder, [&](const std::string& name) {
    if (name.starts_with(absl::StrCat("rank-0000", rank, "-"))) path = folder + "/" + name;
  }).IgnoreError();
  const auto left = checkpoint::SnapshotReader::Open(path);
  REQUIRE(left.ok());
  auto file =
      checkpoint::SnapshotFile::Open({.shape = (*left)->shape(), .manifest = (*left)->manifest()});
  REQUIRE(file.ok());
  REQUIRE((*file)->found());
  return *std::move(file);
}

// Those that all ranks hold whole.
std::set<uint64_t> VersionsOfAll(const RunInMemory& run) {
  std::map<uint64_t, int> holders;
  for (int rank = 0; rank < kPair; ++rank) {
    const auto file = OpenFile(*run.Folder(), static_cast<uint32_t>(rank));
    for (uint32_t slot = 0; slot < file->shape().slots; ++slot) {
      if (const auto record = file->Staged(slot)) ++holders[record->version];
    }
  }
  std::set<uint64_t> versions;
  for (const auto& [version, count] : holders) {
    if (count == kPair) versions.insert(version);
  }
  return versions;
}

// As if the bit had flipped before the values were summed.
void FlipBeforeSums(checkpoint::SnapshotFile& file, uint32_t slot) {
  const auto record = file.Staged(slot);
  if (!record) return;
  const std::span<std::byte> data = file.data_of(slot);
  const auto value = std::find_if(data.begin() + 2, data.end(),
                                  [](std::byte each) { return each != std::byte{0}; });
  REQUIRE(value != data.end());
  REQUIRE(file.Begin(slot, record->version).ok());
  *value ^= std::byte{1};
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < data.size(); at += checkpoint::kPieceBytes) {
    sums.push_back(checksum::SumOfPiece(
        data.subspan(at, std::min(checkpoint::kPieceBytes, data.size() - at))));
  }
  REQUIRE(file.Stage(slot, *record, sums).ok());
}

}  // namespace

TEST_CASE("in memory: ranks that were cut off go on there, and leave nothing at the end") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.Lines() >= 4; }) != kBothOk);
  CHECK(run.IsInMemory());
  CHECK_FALSE(fs::exists(run.run().Checkpoint(6)));
  const std::set<uint64_t> versions = VersionsOfAll(run);
  REQUIRE_FALSE(versions.empty());
  REQUIRE(run.GoOn() == kBothOk);
  CHECK(run.WentOnAt() == *versions.rbegin());
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
  CHECK_FALSE(run.IsInMemory());
}

// The numbers of a layout are not those of another to the last bit, and the state that is gone on
// from is: tests/checkpoint/slot_source_test.cc.
TEST_CASE("in memory: ranks of another layout go on there, and leave nothing at the end") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.Lines() >= 4; }) != kBothOk);
  const std::set<uint64_t> versions = VersionsOfAll(run);
  REQUIRE_FALSE(versions.empty());
  TrainingOptions options = run.options("auto");
  options.overrides.push_back(
      GENERATE("parallelism.tensor_parallel_size=2", "parallelism.zero_stage=3"));
  REQUIRE(run.run().Train(options) == kBothOk);
  CHECK(run.WentOnAt() == *versions.rbegin());
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
  CHECK_FALSE(run.IsInMemory());
}

TEST_CASE("in memory: a version that has failed is passed over, and so are those after it") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.Lines() >= 4; }) != kBothOk);
  std::set<uint64_t> versions = VersionsOfAll(run);
  REQUIRE_FALSE(versions.empty());
  TrainingOptions options = run.options("auto");
  options.run.snapshots_before = *versions.rbegin();
  versions.erase(std::prev(versions.end()));
  const bool from_any_attempt = GENERATE(true, false);
  if (!from_any_attempt) options.run.snapshots_since = 1;  // of no keeper's attempt is any of them
  REQUIRE(run.run().Train(options) == kBothOk);
  CHECK(run.WentOnAt() == (versions.empty() || !from_any_attempt ? 0 : *versions.rbegin()));
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
}

TEST_CASE("in memory: replicas that differ there are gone on from by nobody") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.Lines() >= 4; }) != kBothOk);
  {
    const auto file = OpenFile(*run.Folder(), 1);
    for (uint32_t slot = 0; slot < file->shape().slots; ++slot) FlipBeforeSums(*file, slot);
  }
  // Else no checkpoint of it could be saved, in this attempt and in each that follows.
  CHECK(run.GoOn() == kBothOk);
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
}

TEST_CASE("in memory: the last step stays there until the disk has it") {
  const RunInMemory run;
  Waits waits;
  const TrainingOptions options = run.options();
  // What cannot be renamed to, and is no checkpoint.
  const auto codes =
      RunPair(waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
                      .on_wait =
                          [&](int rank) {
                            if (rank != 0 || run.Lines() < 4) return;
                            fs::create_directories(run.run().Checkpoint(6) + "/in the way");
                          }});
  REQUIRE(codes == kBothOk);
  CHECK(run.IsInMemory());
  // That is set aside, and the checkpoint written after all.
  REQUIRE(run.GoOn() == kBothOk);
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
  CHECK(fs::exists(run.run().Checkpoint(6) + ".damaged/in the way"));
  CHECK_FALSE(run.IsInMemory());
}

TEST_CASE(
    "in memory: where the disk has damaged the checkpoint of that very step, it is written anew") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return fs::exists(run.run().Checkpoint(6)); }) != kBothOk);
  REQUIRE(run.IsInMemory());
  const std::string tensors = run.run().Checkpoint(6) + "/rank-001.safetensors";
  checkpoint::FlipByte(tensors, fs::file_size(tensors) - 1);
  REQUIRE(run.GoOn() == kBothOk);
  CHECK(checkpoint::Verify(run.run().Checkpoint(6)).ok());
  CHECK(fs::exists(run.run().Checkpoint(6) + ".damaged"));
  CHECK_FALSE(run.IsInMemory());
}

TEST_CASE("in memory: a start that is refused leaves no memory behind") {
  const RunInMemory run;
  REQUIRE(run.run().Train(run.options()) == kBothOk);
  REQUIRE_FALSE(run.IsInMemory());
  CHECK(run.run().Train(run.options()) == kNeitherBegins);  // what lies there is good
  CHECK_FALSE(run.IsInMemory());
}

TEST_CASE("in memory: a start that is refused leaves what is there, to be gone on from") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.HasLogged(5); }, 2) != kBothOk);
  const std::set<uint64_t> versions = VersionsOfAll(run);
  REQUIRE(versions.contains(5));
  // From the start, and from a checkpoint, behind which there is another.
  CHECK(run.run().Train(run.options()) == kNeitherBegins);
  CHECK(VersionsOfAll(run) == versions);
  CHECK(run.run().Train(run.options(run.run().Checkpoint(2))) == kNeitherBegins);
  CHECK(VersionsOfAll(run) == versions);
  REQUIRE(run.GoOn() == kBothOk);
  CHECK(run.WentOnAt() == *versions.rbegin());
}

TEST_CASE("in memory: a copy of a run folder has no part in the memory of the original") {
  const RunInMemory run;
  REQUIRE(run.TrainCutOff([&] { return run.Lines() >= 4; }) != kBothOk);
  const auto key = checkpoint::ReadSnapshotKey(run.run().Path("run"));
  REQUIRE(key.ok());
  fs::copy(run.run().Path("run"), run.run().Path("copy"), fs::copy_options::recursive);
  CHECK(absl::IsDataLoss(checkpoint::ReadSnapshotKey(run.run().Path("copy")).status()));
  fs::rename(run.run().Path("run"), run.run().Path("moved"));
  CHECK(*checkpoint::ReadSnapshotKey(run.run().Path("moved")) == *key);
  fs::rename(run.run().Path("moved"), run.run().Path("run"));
  TrainingOptions options = run.options("auto");
  options.run.run_directory = run.run().Path("copy");
  CHECK(run.run().Train(options) == kBothOk);
  CHECK(run.IsInMemory());
  CHECK(run.GoOn() == kBothOk);
}

}  // namespace trireme::worker
