// `trireme checkpoint list|verify`, and what commands that go on from a checkpoint say of damaged
// ones.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/coordinator/cli/bench.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

TEST_CASE("what is no folder of checkpoints is called what it is") {
  const Bench bench;
  for (const char* words : {"checkpoint list ", "checkpoint verify ", "generate --checkpoint ",
                            "run job.yaml -n 1 --run-dir r --resume "}) {
    CAPTURE(words);
    CHECK(Holds(bench.Run(std::string(words) + "none").out, "none: no such folder"));
    CHECK(Holds(bench.Run(std::string(words) + "job.yaml").out, "job.yaml is a file"));
    CHECK(bench.Run(std::string(words) + ".").code == 2);
  }
}

// A run folder with the checkpoints of two steps, the newer one cut short in its manifest.
void PutDamagedRun(const std::string& run) {
  for (const char* name : {"/checkpoints/step-00000010", "/checkpoints/step-00000020"}) {
    fs::create_directories(run + name);
    fs::copy(TRIREME_SOURCE_DIR "/tests/checkpoint/fixtures/version_1/step-00000007", run + name);
  }
  fs::resize_file(run + "/checkpoints/step-00000020/manifest.json", 100);
}

TEST_CASE("a newest checkpoint that does not open is a finding, and never passed over in silence") {
  const Bench bench;
  PutDamagedRun(bench.folder() + "/r");
  const std::string older = "r/checkpoints/step-00000010", newest = "r/checkpoints/step-00000020";
  const Result verified = bench.Run("checkpoint verify r");
  CAPTURE(verified.out);
  CHECK(verified.code == 4);
  CHECK(Holds(verified.out, newest + " is damaged: "));
  CHECK(Holds(verified.out, newest + "/manifest.json"));
  CHECK(Holds(verified.out, older + ": every byte matches"));
  const Result json = bench.Run("checkpoint verify r/checkpoints --json");
  CHECK(json.code == 4);
  CHECK(Holds(json.out, "{\"folder\":\"r/checkpoints\",\"intact\":false,\"newest_intact\":\"" +
                            older + "\",\"damaged\":[{\"folder\":\"" + newest + "\""));
  const Result generated = bench.Run("generate --checkpoint r");
  CHECK(Holds(generated.out, newest + " is damaged and passed over: "));
  CHECK(Holds(generated.out, older + " is used instead"));
  // Named itself it is what it is, and a good one is no finding.
  CHECK(bench.Run("checkpoint verify " + newest).code == 4);
  const Result good = bench.Run("checkpoint verify " + older);
  CHECK(good.code == 0);
  CHECK_FALSE(Holds(good.out, "damaged"));
  CHECK(Holds(bench.Run("checkpoint verify --json " + older).out,
              "\"intact\":true,\"newest_intact\":\"" + older + "\",\"damaged\":[]}"));
  fs::resize_file(bench.folder() + "/" + older + "/manifest.json", 100);
  const Result none = bench.Run("checkpoint verify r");
  CHECK(none.code == 4);
  CHECK((Holds(none.out, older) && Holds(none.out, newest)));
  const Result nothing = bench.Run("checkpoint verify r --json");
  CHECK(nothing.code == 4);
  CHECK(Holds(nothing.out,
              "{\"folder\":\"r\",\"intact\":false,\"newest_intact\":null,\"damaged\":[{"));
  // Each by itself.
  for (const std::string& each : {older, newest}) {
    CHECK(Holds(nothing.out, "{\"folder\":\"" + each + "\",\"reason\":\"" + each));
  }
}

TEST_CASE("a run folder whose job keeps its checkpoints elsewhere leads there") {
  const Bench bench;
  PutDamagedRun(bench.folder() + "/elsewhere");
  const std::string root = bench.folder() + "/elsewhere/checkpoints";
  fs::create_directories(bench.folder() + "/r");
  std::ofstream(bench.folder() + "/r/job.yaml")
      << kJob << "checkpoint: {directory: " << root << "}\n";
  const std::string older = root + "/step-00000010", newest = root + "/step-00000020";
  const Result verified = bench.Run("checkpoint verify r");
  CAPTURE(verified.out);
  CHECK(verified.code == 4);
  CHECK(Holds(verified.out, newest + " is damaged: "));
  CHECK(Holds(verified.out, older + ": every byte matches"));
  for (const char* words : {"checkpoint list r", "generate --checkpoint r",
                            "run job.yaml -n 1 --run-dir new --resume r"}) {
    CAPTURE(words);
    CHECK(Holds(bench.Run(words).out, older));
  }
  // The message says where it looked.
  fs::remove_all(root);
  fs::create_directories(root);
  for (const char* words : {"checkpoint verify r", "checkpoint list r"}) {
    const Result none = bench.Run(words);
    CAPTURE(none.out);
    CHECK(none.code == 2);
    CHECK(Holds(none.out, root));
  }
}

TEST_CASE("a checkpoint without its manifest is damaged, however it is named") {
  const Bench bench;
  PutDamagedRun(bench.folder() + "/r");
  const std::string newest = "r/checkpoints/step-00000020";
  fs::remove(bench.folder() + "/" + newest + "/manifest.json");
  for (const std::string& named : {newest, newest + "/", std::string("r")}) {
    const Result verified = bench.Run("checkpoint verify " + named);
    CAPTURE(named, verified.out);
    CHECK(verified.code == 4);
    CHECK(Holds(verified.out, newest));
    CHECK(Holds(verified.out, "is damaged: "));
  }
}

TEST_CASE("verify tells of what is damaged also where the next cannot be judged") {
  const Bench bench;
  PutDamagedRun(bench.folder() + "/r");
  const std::string older = "r/checkpoints/step-00000010", newest = "r/checkpoints/step-00000020";
  const std::string manifest = older + "/manifest.json";
  fs::remove(bench.folder() + "/" + manifest);
  fs::create_symlink("manifest.json", bench.folder() + "/" + manifest);  // a loop
  const Result verified = bench.Run("checkpoint verify r");
  CAPTURE(verified.out);
  CHECK(verified.code != 0);
  CHECK(Holds(verified.out, newest + " is damaged: "));
  CHECK(Holds(verified.out, manifest + ": cannot be read"));
}

TEST_CASE("verify looks behind a newest checkpoint with a damaged byte for one that is intact") {
  const Bench bench;
  PutDamagedRun(bench.folder() + "/r");
  const std::string older = "r/checkpoints/step-00000010", newest = "r/checkpoints/step-00000020";
  fs::copy(bench.folder() + "/" + older, bench.folder() + "/" + newest,
           fs::copy_options::overwrite_existing);
  std::fstream file(bench.folder() + "/" + newest + "/rank-000.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x55');
  file.close();
  const Result verified = bench.Run("checkpoint verify r");
  CAPTURE(verified.out);
  CHECK(verified.code == 4);
  CHECK(Holds(verified.out, newest + " is damaged: "));
  CHECK(Holds(verified.out, older + ": every byte matches"));
}

TEST_CASE("a run says what it passed over in the folder that it goes on from", "[mpi]") {
  Bench bench;
  bench.Worker("exit 3\n");
  PutDamagedRun(bench.folder() + "/from");
  const Result run = bench.Run("run job.yaml -n 1 --run-dir r --resume from");
  CAPTURE(run.out);
  CHECK(Holds(run.out, "from/checkpoints/step-00000020 is damaged and passed over: "));
  CHECK(Holds(run.out, "from/checkpoints/step-00000010 is used instead"));
}

TEST_CASE("a run folder with nothing but damaged checkpoints is not gone on with", "[mpi]") {
  Bench bench;
  bench.Worker("exit 3\n");
  const std::string good = bench.folder() + "/runs/tiny-20260101-000000";
  const std::string later = bench.folder() + "/runs/tiny-20260102-000000";
  PutDamagedRun(good);
  fs::create_directories(later + "/checkpoints/step-00000030.damaged");
  const auto now = fs::last_write_time(later + "/checkpoints");
  fs::last_write_time(good + "/checkpoints", now - std::chrono::hours(1));
  const Result run = bench.Run("run job.yaml -n 1 --resume");
  CAPTURE(run.out);
  CHECK(Holds(run.out, "from step 7 of " + good));
  CHECK_FALSE(fs::exists(later + "/attempts"));
  // Of one that cannot be judged, as it may be sound, nobody is told to move it away.
  const std::string newest = good + "/checkpoints/step-00000030";
  fs::create_directories(newest);
  fs::create_symlink("manifest.json", newest + "/manifest.json");
  const Result unread = bench.Run("run job.yaml -n 1 --resume auto --run-dir " + good);
  CAPTURE(unread.out);
  CHECK(unread.code != 0);
  CHECK(Holds(unread.out, newest + "/manifest.json"));
  CHECK_FALSE(Holds(unread.out, "move them away"));
  fs::remove_all(good + "/checkpoints/step-00000010");
  fs::remove_all(newest);
  const Result none = bench.Run("run job.yaml -n 1 --resume auto --run-dir " + good);
  CHECK(none.code == 4);
  CHECK(Holds(none.out, "move them away"));
}

}  // namespace
}  // namespace trireme::cli
