// Two ranks train a small job whole: on what they agree before the first step.
#include "worker/training.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/client/writer_claim.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/text.h"
#include "runtime/recorder/save_log.h"
#include "tests/checkpoint/sample_state.h"
#include "tests/worker/link/small_run.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using checkpoint::FlipByte;

const std::vector<base::ExitCode> kBothRefuse(kPair, base::kBadInput);

void FlipLastByte(const std::string& path) { FlipByte(path, fs::file_size(path) - 1); }

TEST_CASE("training: damaged checkpoints behind the beginning are set aside as all ranks judge") {
  const SmallRun run;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  TrainingOptions again = run.Options();
  again.run.resume = run.Checkpoint(2);
  // What is good there is not to be written over.
  CHECK(run.Train(again) == kBothRefuse);
  for (const int rank : {0, 1})
    CHECK_THAT(run.Failure(rank), Catch::Contains("a checkpoint of step 6"));
  // Bytes of tensors, each read by one of the ranks alone.
  FlipLastByte(run.Checkpoint(4) + "/rank-001.safetensors");
  FlipLastByte(run.Checkpoint(6) + "/rank-001.safetensors");
  CHECK(run.Train(again) == kBothOk);
  for (const int step : {2, 4, 6}) CHECK(checkpoint::Verify(run.Checkpoint(step)).ok());
  for (const int step : {4, 6}) CHECK(fs::exists(run.Checkpoint(step) + ".damaged"));
  // The newest is passed over, by itself.
  FlipLastByte(run.Checkpoint(6) + "/rank-001.safetensors");
  again.run.resume = "auto";
  CHECK(run.Train(again) == kBothOk);
  CHECK(checkpoint::Verify(run.Checkpoint(6)).ok());
  CHECK(fs::exists(run.Checkpoint(6) + ".damaged-2"));
}

TEST_CASE("training: ranks that were given different jobs or texts are refused, all of them") {
  const SmallRun run;
  const SmallRun other("ten nine eight seven six five four three two one ");
  const auto refuse = [&](const TrainingOptions& of_rank_one, const std::string& why) {
    Waits waits;
    CHECK(RunPair(waits, {.run = [&](comm::Fabric& fabric) {
                    return RunTraining(fabric.rank() == 1 ? of_rank_one : run.Options(), fabric);
                  }}) == kBothRefuse);
    for (const int rank : {0, 1}) CHECK_THAT(run.Failure(rank), Catch::Contains(why));
    CHECK_FALSE(fs::exists(run.Path("run/checkpoints")));
  };
  TrainingOptions options = run.Options();
  options.overrides = {"seed=8"};
  refuse(options, "\"seed: 8\" here, \"seed: 7\" on rank 0");
  options = run.Options();
  options.job = other.Path("job.yaml");
  refuse(options, "rank 1: the text is not rank 0's");
}

TEST_CASE("training: what is left of an attempt whose time is over writes no report") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  bool over = false;  // rank 0's
  Waits waits;
  const auto codes = RunPair(
      waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
              .on_wait =
                  [&](int rank) {
                    if (rank != 0 || over || !fs::exists(run.Path("run/metrics.jsonl"))) return;
                    over = true;
                    // As a newer attempt writes it, on a file system whose locks do not reach here.
                    std::ofstream(run.Path("run/checkpoints/.lock")) << "7fffffffffffffff\n";
                    std::ofstream(run.Path("run/report.json")) << "newer";
                  }});
  CHECK(over);
  CHECK(codes == kBothRefuse);
  for (const int rank : {0, 1}) CHECK_THAT(run.Failure(rank), Catch::Contains("a newer attempt"));
  CHECK(checkpoint::ReadAll(run.Path("run/report.json")) == "newer");
  CHECK_FALSE(fs::exists(run.Path("run/sample.txt")));
}

TEST_CASE("training: a run that ends, or stops, leaves nothing hidden beside its checkpoints") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  const checkpoint::Epoch older{uint64_t{1} << 31};
  const std::string root = run.Path("run/checkpoints");
  bool left = false;  // rank 0's
  Waits waits;
  const auto codes = RunPair(
      waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
              .on_wait =
                  [&](int rank) {
                    if (rank != 0 || left || !fs::exists(run.Path("run/metrics.jsonl"))) return;
                    left = true;
                    // Of one that was late; no clean-up of this run comes to that step.
                    fs::create_directories(checkpoint::PartialFolder(root, 99, older));
                    fs::create_directories(checkpoint::RemovedFolder(root, older) + "/step-1");
                  }});
  CHECK(left);
  CHECK(codes == kBothOk);
  std::vector<std::string> hidden;
  for (const auto& one : fs::directory_iterator(root)) {
    const std::string name = one.path().filename();
    if (name.starts_with(".")) hidden.push_back(name);
  }
  CHECK(hidden == std::vector<std::string>{".lock"});
}

TEST_CASE("training: a disk that is full when the folder is claimed is no fault of the job") {
  const SmallRun run;
  fs::create_directories(run.Path("run/checkpoints"));
  fs::create_symlink("/dev/full", run.Path("run/checkpoints/.lock"));
  CHECK(run.Train(run.Options()) == std::vector<base::ExitCode>(kPair, base::kJobFailed));
  for (const int rank : {0, 1}) CHECK_THAT(run.Failure(rank), Catch::Contains("is full"));
}

TEST_CASE("training: what a disk says of a checkpoint is laid to no peer") {
  const SmallRun run;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  const std::string manifest = run.Checkpoint(6) + "/manifest.json";
  fs::remove(manifest);
  fs::create_symlink("manifest.json", manifest);  // a loop
  TrainingOptions again = run.Options();
  again.run.resume = "auto";
  CHECK(run.Train(again) == std::vector<base::ExitCode>(kPair, base::kJobFailed));
  for (const int rank : {0, 1}) {
    const auto recording =
        recorder::ReadRecording(run.Path(base::Text("run/recorder/rank-00", rank, ".rec")));
    REQUIRE(recording.ok());
    CHECK_THAT(recording->failure, Catch::Contains(manifest));
    CHECK(recording->blame == recorder::Blame::kItself);
  }
}

TEST_CASE("training: a folder of checkpoints that is gone in the end costs no report") {
  const SmallRun run;
  TrainingOptions options = run.Options();
  options.overrides = {"checkpoint.every_steps=0"};
  Waits waits;
  const auto codes =
      RunPair(waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
                      .on_wait =
                          [&](int rank) {
                            if (rank == 0 && fs::exists(run.Path("run/metrics.jsonl"))) {
                              fs::remove_all(run.Path("run/checkpoints"));
                            }
                          }});
  CHECK(codes == kBothOk);
  CHECK(nlohmann::json::parse(checkpoint::ReadAll(run.Path("run/report.json")))["steps"] == 6);
}

TEST_CASE("training: a save that could not be noted at once is noted before the next one") {
  const SmallRun run;
  TrainingOptions options = run.Options();
  options.run.save_log = run.Path("saves");
  fs::create_directories(options.run.save_log);  // no name can be written there
  Waits waits;
  CHECK(RunPair(waits, {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
                        .on_wait =
                            [&](int rank) {
                              if (rank == 0 && fs::exists(run.Checkpoint(2)) &&
                                  fs::is_directory(options.run.save_log)) {
                                fs::remove(options.run.save_log);
                              }
                            }}) == kBothOk);
  CHECK(recorder::ReadSaves(options.run.save_log) ==
        std::vector<std::string>{"step-00000006", "step-00000004", "step-00000002"});
}

TEST_CASE("training: an attempt that has only the end to write reports what its run has reached") {
  const SmallRun run;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  const auto report = [&] {
    return nlohmann::json::parse(checkpoint::ReadAll(run.Path("run/report.json")));
  };
  const nlohmann::json first = report();
  REQUIRE(first["loss"] > 0);
  REQUIRE(first["validation_loss"] > 0);
  // As where the attempt died between its last checkpoint and the report.
  fs::remove(run.Path("run/report.json"));
  TrainingOptions again = run.Options();
  again.run.resume = "auto";
  REQUIRE(run.Train(again) == kBothOk);
  const nlohmann::json second = report();
  for (const char* name : {"steps", "loss", "validation_loss", "skipped_steps", "checkpoint"}) {
    CHECK(second[name] == first[name]);
  }
}

// nonfinite_policy skip: AdamW's bias correction counts the updates that were made.
TEST_CASE("training: a resume knows how many steps were left out") {
  const SmallRun run;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  const std::string path = run.Checkpoint(6) + "/manifest.json";
  auto manifest = checkpoint::ParseManifest(checkpoint::ReadAll(path), path);
  REQUIRE(manifest.ok());
  manifest->info.scalars["skipped_steps"] = 3;
  std::ofstream(path) << checkpoint::FormatManifest(*manifest).value();
  TrainingOptions again = run.Options();
  again.run.resume = "auto";
  again.overrides = {"training.steps=8"};
  REQUIRE(run.Train(again) == kBothOk);
  const auto report = nlohmann::json::parse(checkpoint::ReadAll(run.Path("run/report.json")));
  CHECK(report["skipped_steps"] == 3);
  CHECK(report["steps"] == 8);
}

TEST_CASE("training: the overall rate counts from the first step, not from the start") {
  using Clock = std::chrono::steady_clock;
  const SmallRun run;
  Clock::time_point ready, told;
  bool held = false;
  Waits waits;
  REQUIRE(RunPair(waits,
                  {.run = [&](comm::Fabric& fabric) { return RunTraining(run.Options(), fabric); },
                   .on_wait =
                       [&](int rank) {
                         if (rank != 0) return;
                         const bool set_up = fs::exists(run.Path("run/metrics.jsonl"));
                         // Not a limit: however fast the rest is, this counts for nothing.
                         if (!set_up && !std::exchange(held, true)) {
                           std::this_thread::sleep_for(std::chrono::seconds(1));
                         }
                         if (set_up && ready == Clock::time_point()) ready = Clock::now();
                         if (fs::exists(run.Path("run/report.json"))) told = Clock::now();
                       }}) == kBothOk);
  const auto report = nlohmann::json::parse(checkpoint::ReadAll(run.Path("run/report.json")));
  CHECK(report["wall_seconds"] > 0);
  CHECK(report["wall_seconds"].get<double>() <=
        std::chrono::duration<double>(told - ready).count());
}

TEST_CASE("training: a folder that another process holds ends all ranks when they have waited") {
  const SmallRun run;
  const auto other = checkpoint::WriterClaim::Take(run.Path("run/checkpoints"));
  REQUIRE(other.ok());
  TrainingOptions options = run.Options();
  options.run.claim_wait = std::chrono::milliseconds(1);
  // It passes, so it is no bad input.
  CHECK(run.Train(options) == std::vector<base::ExitCode>(kPair, base::kJobFailed));
  for (const int rank : {0, 1})
    CHECK_THAT(run.Failure(rank), Catch::Contains("another run writes"));
}

}  // namespace
}  // namespace trireme::worker
