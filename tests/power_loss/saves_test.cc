// The power goes at every moment of an attempt's saves: what it has saved is known as its own, and
// nothing is that it has not.
#include <catch2/catch.hpp>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/client/writer_claim.h"
#include "coordinator/keeper/attempt_end.h"
#include "runtime/base/durable.h"
#include "runtime/base/text.h"
#include "runtime/recorder/save_log.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/power_loss/empty_folder.h"
#include "tests/power_loss/lost_power.h"

namespace trireme::power_loss {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointWriter;

// In the order of a worker (worker/shared_checkpoints.h).
void SaveOne(const std::string& root, const std::string& saves, uint64_t step,
             checkpoint::Epoch epoch) {
  const auto states = checkpoint::ThreeRanks(step);
  const auto partial = CheckpointWriter::Prepare(root, step, epoch);
  REQUIRE(partial.ok());
  for (size_t rank = 0; rank < states.size(); ++rank) {
    REQUIRE(
        CheckpointWriter::WriteRank(*partial, static_cast<int>(rank), states[rank].shards()).ok());
  }
  REQUIRE(recorder::NoteSave(saves, checkpoint::StepFolderName(step)).ok());
  REQUIRE(CheckpointWriter::Commit(root, step, checkpoint::InfoOf(step, 3), epoch).ok());
  REQUIRE(CheckpointWriter::Prune(root, {.keep = 1, .newest = step, .epoch = epoch}).ok());
}

TEST_CASE("a loss of power leaves what an attempt has saved known as its own") {
  const EmptyFolder folder;
  const auto log = Record(folder.path(), [&] {
    const std::string root = folder.path() + "/run/checkpoints";
    const std::string recorder = folder.path() + "/run/attempts/2/recorder";
    REQUIRE(base::MakeFolders(recorder).ok());
    const std::string saves = recorder::SaveLogPath(recorder);
    {
      // Of the attempt before, which has noted it elsewhere, and of a later step.
      const auto claim = checkpoint::WriterClaim::Take(root);
      REQUIRE(checkpoint::Save(root, 9, checkpoint::ThreeRanks(9), claim->epoch()).ok());
      REQUIRE(checkpoint::SetAsideDamaged(root, 9, claim->epoch()).ok());
    }
    const auto claim = checkpoint::WriterClaim::Take(root);
    REQUIRE(claim.ok());
    REQUIRE(recorder::ForgetSaves(saves).ok());
    Mark("begun");
    for (const uint64_t step : {3, 5}) SaveOne(root, saves, step, claim->epoch());
  });
  std::string fault;
  size_t known = 0;
  AfterEachLoss(log, {}, [&](const Loss& loss) {
    if (loss.marks.count("begun") == 0) return true;
    v1::LaunchSpec launch;
    launch.set_run_folder(loss.folder + "/run");
    const auto newest = checkpoint::FindNewest(loss.folder + "/run/checkpoints");
    uint64_t there = 0;
    if (newest.ok()) {
      checkpoint::ParseStepFolderName(fs::path(*newest).filename().string(), &there);
    }
    const uint64_t told = keeper::SavesOf(launch, loss.folder + "/run/attempts/2/recorder").step;
    if (told != there) {
      fault = base::Text("after ", loss.calls, " calls, ", loss.how, ": step ", there,
                         " is there, step ", told, " is told");
    }
    known += told > 0 ? 1 : 0;
    return fault.empty();
  });
  CHECK(fault == "");
  CHECK(known > 10);
}

}  // namespace
}  // namespace trireme::power_loss
