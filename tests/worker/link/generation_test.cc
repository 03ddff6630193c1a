// Two ranks generate from a checkpoint of a small job: on what they agree before the first token.
#include "worker/generation.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/checkpoint/sample_state.h"
#include "tests/worker/link/small_run.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

// What the ranks log in its scope.
class KeptLog {
 public:
  KeptLog() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "kept", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
    spdlog::set_pattern("%v");
  }
  ~KeptLog() { spdlog::set_default_logger(former_); }
  std::string text() const { return text_.str(); }

 private:
  const std::shared_ptr<spdlog::logger> former_ = spdlog::default_logger();
  std::ostringstream text_;
};

// By rank; what they log.
std::string RefusedText(const std::string& of_rank_0, const std::string& of_rank_1) {
  const KeptLog log;
  Waits waits;
  const auto codes = RunPair(
      waits, {.run = [&](comm::Fabric& fabric) {
        return RunGeneration(
            {.checkpoint = fabric.rank() == 0 ? of_rank_0 : of_rank_1, .tokens = 2}, fabric);
      }});
  for (const base::ExitCode code : codes) CHECK(code != base::kOk);
  return log.text();
}

TEST_CASE("generation: ranks that see different checkpoints, or one a damaged one, are refused") {
  const SmallRun run;
  const SmallRun other;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  TrainingOptions options = other.Options();
  options.overrides = {"seed=8"};
  REQUIRE(other.Train(options) == kBothOk);
  const std::string checkpoint = run.Checkpoint(6);
  CHECK_THAT(RefusedText(checkpoint, other.Checkpoint(6)),
             Catch::Contains("rank 0 sees another checkpoint"));
  const std::string copy = run.Path("copy");
  fs::copy(checkpoint, copy);
  for (const char* file : {"/rank-000.safetensors", "/rank-001.safetensors"}) {
    checkpoint::FlipByte(copy + file, fs::file_size(copy + file) / 2);
  }
  // Rank 0 says it too, whose own is whole.
  const std::string text = RefusedText(checkpoint, copy);
  const std::string cause = "rank 1: " + copy;
  const size_t first = text.find(cause);
  REQUIRE(first != std::string::npos);
  CHECK(text.find(cause, first + 1) != std::string::npos);
}

}  // namespace
}  // namespace trireme::worker
