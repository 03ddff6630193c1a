// Two ranks train a small job whole: on what they agree before the first step.
#include "worker/training.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/client/writer_claim.h"
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
