// A rank 0 that finds in the run folder's claim.json that a newer attempt counts: what it has put
// in place by then stays, nothing comes after it, and both ranks end (docs/adr/0019).
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/run_claim/run_claim.h"
#include "tests/checkpoint/sample_state.h"
#include "tests/worker/link/small_run.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using checkpoint::ReadAll;

constexpr char kInStep[] = "a newer attempt of the job has replaced this one";
constexpr char kAtFile[] = "attempt 2 of the job has replaced attempt 1, as ";

std::string LineOf(int step) { return base::Text("{\"step\":", step, ",\"loss\":"); }

// Attempt 1 of a job, which another one replaces.
class ReplacedRun {
 public:
  std::string Metrics() const { return ReadAll(run.Path("run/metrics.jsonl")); }
  bool Has(int step) const { return Metrics().find(LineOf(step)) != std::string::npos; }
  void Claim(uint32_t attempt) const {
    REQUIRE(run_claim::WriteRunClaim(run.Path("run"), {.job = 7, .attempt = attempt}).ok());
  }
  // Attempt 2 counts from the first of rank 0's waits on at which that is `due`, for `held` before
  // rank 0 goes on.
  std::vector<base::ExitCode> Train(const std::function<bool()>& due,
                                    std::chrono::milliseconds held = {}) {
    TrainingOptions options = run.Options();
    options.link.who.set_attempt(1);
    options.overrides = overrides;
    Waits waits;
    return RunPair(waits,
                   {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
                    .on_wait =
                        [&](int rank) {
                          if (rank != 0 || claimed || !due()) return;
                          claimed = true;
                          Claim(2);
                          std::this_thread::sleep_for(held);
                        }});
  }
  // Of both ranks: the code of what goes wrong without a fault of the disk or a peer.
  void CheckEnded(const std::vector<base::ExitCode>& codes, const std::string& words) const {
    CHECK(claimed);
    CHECK(codes == std::vector<base::ExitCode>(kPair, base::kBadInput));
    for (const int rank : {0, 1}) CHECK_THAT(run.Failure(rank), Catch::Contains(words));
    for (const char* name : {"report.json", "sample.txt"}) {
      CHECK_FALSE(fs::exists(run.Path("run/" + std::string(name))));
    }
  }

  const SmallRun run;
  std::vector<std::string> overrides;
  bool claimed = false;  // rank 0's
};

TEST_CASE("replaced: the attempt that counts, and one that is newer than the claim, go on") {
  for (const uint32_t claimed : {0, 1}) {
    ReplacedRun replaced;
    fs::create_directories(replaced.run.Path("run"));
    replaced.Claim(claimed);
    CHECK(replaced.Train([] { return false; }) == kBothOk);
    CHECK(fs::exists(replaced.run.Path("run/report.json")));
  }
}

TEST_CASE("replaced: an attempt writes no line once a newer one counts") {
  ReplacedRun replaced;
  // The first look of a run is at its first line.
  const auto codes =
      replaced.Train([&] { return fs::exists(replaced.run.Path("run/metrics.jsonl")); });
  replaced.CheckEnded(codes, kInStep);
  CHECK(replaced.Metrics().find("\"loss\"") == std::string::npos);
  CHECK_FALSE(fs::exists(replaced.run.Checkpoint(2)));
}

TEST_CASE("replaced: an attempt tells no validation loss once a newer one counts") {
  ReplacedRun replaced;
  // It looks again a second after the last look.
  const auto codes =
      replaced.Train([&] { return replaced.Has(3); }, std::chrono::milliseconds(1100));
  replaced.CheckEnded(codes, kInStep);
  CHECK(replaced.Metrics().find("validation_loss") == std::string::npos);
  CHECK_FALSE(replaced.Has(4));
  CHECK(fs::exists(replaced.run.Checkpoint(2)));
  CHECK_FALSE(fs::exists(replaced.run.Checkpoint(4)));
}

TEST_CASE("replaced: an attempt commits no checkpoint once a newer one counts") {
  ReplacedRun replaced;
  // A second may pass until it looks for the sake of lines; for that of a checkpoint it looks each
  // time.
  const auto codes = replaced.Train([&] { return replaced.Has(2); });
  CHECK(replaced.claimed);
  CHECK(codes == std::vector<base::ExitCode>(kPair, base::kBadInput));
  for (const auto& one : fs::directory_iterator(replaced.run.Path("run/checkpoints"))) {
    CHECK(one.path().filename() == ".lock");
  }
  CHECK_FALSE(fs::exists(replaced.run.Path("run/report.json")));
}

TEST_CASE("replaced: an attempt whose files are written commits nothing once a newer one counts") {
  ReplacedRun replaced;
  const std::string root = replaced.run.Path("run/checkpoints");
  const auto written = [&] {
    if (!fs::exists(root)) return false;
    for (const auto& one : fs::directory_iterator(root)) {
      if (fs::exists(one.path() / "rank-000.safetensors")) return true;
    }
    return false;
  };
  replaced.overrides = {"checkpoint.every_steps=4"};
  const auto codes = replaced.Train(written);
  CHECK(replaced.claimed);
  CHECK(codes == std::vector<base::ExitCode>(kPair, base::kBadInput));
  for (const auto& one : fs::directory_iterator(root)) CHECK(one.path().filename() == ".lock");
}

TEST_CASE("replaced: an attempt writes no report once a newer one counts") {
  ReplacedRun replaced;
  const auto codes = replaced.Train([&] { return fs::exists(replaced.run.Checkpoint(6)); });
  replaced.CheckEnded(codes, kAtFile);
  CHECK(replaced.Has(6));
}

TEST_CASE("replaced: an attempt merges no trace once a newer one counts") {
  ReplacedRun replaced;
  replaced.overrides = {"runtime.trace_at=[1]", "runtime.trace_steps=2"};
  const auto codes = replaced.Train([&] { return replaced.Has(2); });
  CHECK(replaced.claimed);
  CHECK(codes == std::vector<base::ExitCode>(kPair, base::kBadInput));
  for (const char* name : {"trace-1.json", "trace.json"}) {
    CHECK_FALSE(fs::exists(replaced.run.Path("run/" + std::string(name))));
  }
}

TEST_CASE("replaced: an attempt that begins after a newer one leaves its lines as they are") {
  ReplacedRun replaced;
  fs::create_directories(replaced.run.Path("run"));
  const std::string line = "{\"step\":1,\"loss\":2}\n";
  std::ofstream(replaced.run.Path("run/metrics.jsonl")) << line;
  replaced.Claim(2);
  replaced.claimed = true;
  replaced.CheckEnded(replaced.Train([] { return false; }), kAtFile);
  CHECK(replaced.Metrics() == line);
  CHECK_FALSE(fs::exists(replaced.run.Path("run/job.yaml")));
}

}  // namespace
}  // namespace trireme::worker
