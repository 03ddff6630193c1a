// The power goes at every moment of saving, pruning, claiming and setting aside: what
// was committed is there and right, and what is no whole checkpoint is taken for none.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/client/writer_claim.h"
#include "runtime/base/text.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/power_loss/empty_folder.h"
#include "tests/power_loss/lost_power.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using power_loss::AfterEachLoss;
using power_loss::Call;
using power_loss::Loss;
using power_loss::LossOptions;
using power_loss::Mark;
using power_loss::Record;

// As the ranks of a run do it; `salt` is told apart by Holds.
void SaveAndPrune(const std::string& root, uint64_t step, uint64_t salt, int keep, Epoch epoch) {
  const auto states = ThreeRanks(salt);
  const auto partial = CheckpointWriter::Prepare(root, step, epoch);
  REQUIRE(partial.ok());
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*partial, rank, states[rank].shards()).ok());
  }
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(CheckpointWriter::ReadBack(*partial, rank).ok());
  }
  REQUIRE(CheckpointWriter::Commit(root, step, InfoOf(step, 3), epoch).ok());
  Mark(std::to_string(step) + "/" + std::to_string(salt));
  REQUIRE(CheckpointWriter::Prune(root, {.keep = keep, .newest = step, .epoch = epoch}).ok());
}

// One committed state, in the order of the run.
struct Committed {
  uint64_t step;
  uint64_t salt;
};

bool Holds(const std::string& folder, uint64_t salt) {
  const auto opened = Open(folder);
  RankState state = WholeState(SampleTensors());
  return opened.ok() && opened->Restore(state.shards()).ok() && state.Holds(salt);
}

// The run goes on from the last that was promised, or from one that came after it.
std::string Fault(const Loss& loss, const std::string& root, const std::vector<Committed>& all) {
  size_t promised = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string mark = std::to_string(all[i].step) + "/" + std::to_string(all[i].salt);
    if (loss.marks.count(mark) != 0) promised = i + 1;
  }
  const auto newest = FindNewestIntact(root);
  if (!newest.ok()) {
    if (promised > 0) return "nothing to go on from: " + newest.status().ToString();
    return absl::IsNotFound(newest.status()) || absl::IsDataLoss(newest.status())
               ? ""
               : newest.status().ToString();
  }
  for (size_t i = promised == 0 ? 0 : promised - 1; i < all.size(); ++i) {
    if (*newest != root + "/" + StepFolderName(all[i].step) || !Holds(*newest, all[i].salt)) {
      continue;
    }
    // And a run can begin there and come to the next steps.
    auto claim = WriterClaim::Take(root);
    if (!claim.ok()) return claim.status().ToString();
    if (const auto begun = claim->BeginAfter(all[i].step, DamagedAfter(root, all[i].step));
        !begun.ok()) {
      return begun.status().ToString();
    }
    const absl::Status next = Save(root, 99, ThreeRanks(99), claim->epoch());
    return next.ok() && NewestHolds(root, 99, 99) ? "" : "no next one: " + next.ToString();
  }
  return "the newest is " + *newest + ", of another state or older than promised";
}

// The first fault, with the moment that it is of; empty: there is none.
std::string FirstFault(const std::vector<Call>& log, const std::vector<Committed>& all,
                       const LossOptions& options = {}) {
  std::string fault;
  AfterEachLoss(log, options, [&](const Loss& loss) {
    fault = Fault(loss, loss.folder + "/run/checkpoints", all);
    if (!fault.empty()) fault = base::Text("after ", loss.calls, " calls, ", loss.how, ": ", fault);
    return fault.empty();
  });
  return fault;
}

// With keep: 1.
const std::vector<Committed> kAll{{1, 1}, {2, 2}, {3, 3}, {4, 4}};

std::vector<Call> RecordRun() {
  const power_loss::EmptyFolder folder;
  return Record(folder.path(), [&] {
    const std::string root = folder.path() + "/run/checkpoints";
    // Whoever made the run folder did not wait for the disk.
    fs::create_directory(folder.path() + "/run");
    const auto claim = WriterClaim::Take(root);
    REQUIRE(claim.ok());
    for (const Committed& each : kAll) {
      SaveAndPrune(root, each.step, each.salt, 1, claim->epoch());
    }
  });
}

TEST_CASE("power loss: what a run has committed it can go on from") {
  const auto log = RecordRun();
  CHECK(log.size() > 100);
  CHECK(FirstFault(log, kAll) == "");
}

TEST_CASE("power loss: no flush of a save can be left out") {
  const auto log = RecordRun();
  const LossOptions quick{.random_disks = 0};
  const auto without = [&](const std::function<bool(const Call&)>& left_out) {
    LossOptions options = quick;
    options.left_out = left_out;
    return FirstFault(log, kAll, options);
  };
  const auto ends = [](const Call& call, Call::Kind kind, std::string_view end) {
    return call.kind == kind && call.path.ends_with(end);
  };
  using Kind = Call::Kind;
  const auto file = [&](std::string_view end) {
    return without([&, end](const Call& call) { return ends(call, Kind::kSyncFile, end); });
  };
  const auto folder = [&](std::string_view end) {
    return without([&, end](const Call& call) { return ends(call, Kind::kSyncFolder, end); });
  };
  CHECK(file("rank-000.safetensors.partial") != "");
  CHECK(file("rank-002.safetensors.partial") != "");
  CHECK(file("manifest.json") != "");
  CHECK(folder(".partial") != "");     // the files' and the manifest's names
  CHECK(folder("checkpoints") != "");  // the commit's own name
  CHECK(folder("run") != "");          // of the folder that all commits are in
  CHECK(without([](const Call& call) {
          return call.kind == Kind::kSyncFolder && call.path.empty();
        }) != "");  // of the run folder, which others have made
}

TEST_CASE("power loss: a damaged checkpoint set aside is there under one of its names") {
  const power_loss::EmptyFolder folder;
  const std::string root = folder.path() + "/checkpoints";
  Epoch epoch = Epoch::kNone;
  const auto log = Record(folder.path(), [&] {
    {
      const auto claim = WriterClaim::Take(root);
      REQUIRE(claim.ok());
      epoch = claim->epoch();
      SaveAndPrune(root, 1, 1, 2, epoch);
      SaveAndPrune(root, 2, 2, 2, epoch);
    }
    Mark("damage");
    const int fd = open((root + "/step-00000002/rank-001.safetensors").c_str(), O_WRONLY);
    REQUIRE(pwrite(fd, "x", 1, 90) == 1);
    REQUIRE(fsync(fd) == 0);
    close(fd);
    Mark("damaged");
    auto claim = WriterClaim::Take(root);
    REQUIRE(claim.ok());
    REQUIRE(claim->BeginAfter(1, DamagedAfter(root, 1)).value().size() == 1);
    Mark("set aside");
    SaveAndPrune(root, 2, 3, 2, claim->epoch());
    Mark("saved");
  });
  size_t looked = 0;
  AfterEachLoss(log, {}, [&](const Loss& loss) {
    if (loss.marks.count("damaged") == 0) return true;
    ++looked;
    const std::string there = loss.folder + "/checkpoints";
    INFO("after " << loss.calls << " calls, " << loss.how);
    const bool aside = fs::exists(there + "/step-00000002.damaged/manifest.json");
    CHECK((aside || loss.marks.count("set aside") == 0));
    CHECK((aside || fs::exists(there + "/step-00000002/manifest.json")));
    const bool saved = Holds(there + "/step-00000002", 3);
    CHECK((saved || loss.marks.count("2/3") == 0));
    CHECK(FindNewestIntact(there).value() == there + (saved ? "/step-00000002" : "/step-00000001"));
    return true;
  });
  CHECK(looked > 100);
}

// An older attempt that stands still may name it yet, wherever this machine's power went.
TEST_CASE("power loss: a save that makes room for a newer attempt is gone, or whole") {
  const power_loss::EmptyFolder folder;
  const std::string root = folder.path() + "/checkpoints";
  std::string partial;
  const auto log = Record(folder.path(), [&] {
    {
      const auto claim = WriterClaim::Take(root);
      REQUIRE(claim.ok());
      for (uint64_t step : {1, 2}) REQUIRE(Save(root, step, ThreeRanks(step), claim->epoch()).ok());
      partial = PartialFolderName(2, claim->epoch());
    }
    // All but named.
    fs::rename(root + "/step-00000002", root + "/" + partial);
    const int fd = open(root.c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(fsync(fd) == 0);
    close(fd);
    Mark("left");
    power_loss::FillDisk(1);
    REQUIRE(WriterClaim::Take(root).ok());
    power_loss::FillDisk(0);
    Mark("begun");
  });
  const auto gone_or_whole = [&](const LossOptions& options, size_t* looked) {
    return AfterEachLoss(log, options, [&](const Loss& loss) {
      if (loss.marks.count("left") == 0) return true;
      ++*looked;
      const std::string there = loss.folder + "/checkpoints";
      std::error_code error;
      fs::rename(there + "/" + partial, there + "/step-00000002", error);
      return error || Holds(there + "/step-00000002", 2);
    });
  };
  size_t looked = 0;
  CHECK(gone_or_whole({}, &looked));
  CHECK(looked > 10);
  CHECK_FALSE(gone_or_whole({.left_out =
                                 [](const Call& call) {
                                   return call.kind == Call::Kind::kSyncFolder &&
                                          call.path == "checkpoints";
                                 }},
                            &looked));
}

}  // namespace
}  // namespace trireme::checkpoint
