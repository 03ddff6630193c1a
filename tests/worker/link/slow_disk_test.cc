// A rank 0 that stands still at a disk or a terminal: for how long the other rank would wait for
// it. A pipe in a file's place holds rank 0 until the test lets go, so nothing here takes the time
// that it is about.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/checkpoint/sample_state.h"
#include "tests/worker/link/small_run.h"
#include "worker/generation.h"
#include "worker/session.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kDisk = comm::kDiskDeadline;

// In a file's place: holds whoever reads it, as it has nothing, or whoever writes it, as it is
// full. Lets go in the end: there is nothing to be read, and a broken pipe to be written to.
class Stuck {
 public:
  enum class Holds { kReader, kWriter };

  Stuck(const std::string& path, Holds holds) : path_(path) {
    std::signal(SIGPIPE, SIG_IGN);
    fs::create_directories(fs::path(path).parent_path());
    bool made = mkfifo(path.c_str(), 0600) == 0;
    pipe_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const std::array<char, 4096> page{};
    while (made && holds == Holds::kWriter && write(pipe_, page.data(), page.size()) > 0) {
    }
    watch_ = inotify_init1(IN_CLOEXEC);
    made = made && pipe_ >= 0 && inotify_add_watch(watch_, path.c_str(), IN_OPEN) >= 0;
    if (!made) throw std::runtime_error(path);
  }
  ~Stuck() {
    LetGo();
    close(watch_);
  }
  // Whether somebody has opened it, and so is or will be held.
  bool HasOne() const {
    pollfd asked{watch_, POLLIN, 0};
    return poll(&asked, 1, static_cast<int>(milliseconds(kLimit).count())) == 1;
  }
  void LetGo() {
    if (pipe_ < 0) return;
    // First its name: nobody else is to be held by it.
    unlink(path_.c_str());
    close(std::exchange(pipe_, -1));
  }

 private:
  const std::string path_;
  int pipe_ = -1;
  int watch_ = -1;
};

using Codes = std::vector<base::ExitCode>;

std::future<Codes> TrainBeside(const TrainingOptions& options, Waits& waits,
                               const std::function<void(int)>& on_wait = nullptr) {
  return std::async(std::launch::async, [&, on_wait] {
    return RunPair(waits,
                   {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); },
                    .on_wait = on_wait});
  });
}

int64_t DiskWaits(const std::vector<milliseconds>& waits) {
  return std::count(waits.begin(), waits.end(), kDisk);
}

TEST_CASE("training: a rank 0 that cannot read metrics.jsonl for long is waited for") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  Waits waits;
  std::future<Codes> ended;
  Stuck stuck(run.Path("run/metrics.jsonl"), Stuck::Holds::kReader);
  ended = TrainBeside(options, waits);
  REQUIRE(stuck.HasOne());
  CHECK(waits.OfRankOneAlone() == kDisk);
  stuck.LetGo();
  CHECK(ended.get() == kBothOk);
  CHECK(waits.Of(0).size() == waits.Of(1).size());
}

TEST_CASE("training: a rank 0 that cannot write its report for long is waited for, and heard") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  Waits waits;
  std::future<Codes> ended;
  Stuck stuck(run.Path("run/report.json.partial"), Stuck::Holds::kWriter);
  ended = TrainBeside(options, waits);
  REQUIRE(stuck.HasOne());
  CHECK(waits.OfRankOneAlone() == kDisk);
  stuck.LetGo();
  CHECK(ended.get() == Codes(kPair, base::kJobFailed));
  for (const int rank : {0, 1}) {
    CHECK_THAT(run.Failure(rank),
               Catch::Contains("rank 0: ") && Catch::Contains(run.Path("run/report.json")));
  }
}

TEST_CASE("training: a rank whose timeline is held by its disk is waited for in the end") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  Waits quiet;
  REQUIRE(TrainBeside(options, quiet).get() == kBothOk);
  const size_t last = quiet.Of(0).size() - 1;
  fs::remove_all(run.Path("run"));
  Waits waits;
  std::future<Codes> ended;
  std::unique_ptr<Stuck> stuck;
  // What lies there from before is removed when the run begins, before it opens this file.
  const auto hold = [&](int rank) {
    if (rank != 0 || stuck || !fs::exists(run.Path("run/metrics.jsonl"))) return;
    stuck = std::make_unique<Stuck>(run.Path("run/timeline/rank-000.steps.partial"),
                                    Stuck::Holds::kWriter);
  };
  ended = TrainBeside(options, waits, hold);
  REQUIRE(waits.Reaches(1, last));
  CHECK(waits.Of(1)[last] == kDisk);
  // Rank 0 does not come to it.
  CHECK(waits.Of(0).size() <= last);
  stuck->LetGo();
  CHECK(ended.get() == kBothOk);
}

TEST_CASE("training: a failure is told before the end of a timeline that is held by its disk") {
  const SmallRun run;
  const TrainingOptions options = run.Options();
  std::atomic<bool> cut_off = false;  // rank 0's
  std::promise<base::ExitCode> told;
  Waits waits;
  std::future<Codes> ended;
  std::unique_ptr<Stuck> stuck;
  const auto on_wait = [&](int rank) {
    const std::string lines = run.Path("run/metrics.jsonl");
    if (rank != 0 || cut_off || !fs::exists(lines)) return;
    if (!stuck) {
      stuck = std::make_unique<Stuck>(run.Path("run/timeline/rank-000.steps.partial"),
                                      Stuck::Holds::kWriter);
    }
    // With the second line the first step has been kept.
    const bool kept = checkpoint::ReadAll(lines).find("{\"step\":2,") != std::string::npos;
    if (kept && stuck->HasOne()) cut_off = true;
  };
  ended = std::async(std::launch::async, [&] {
    return RunPair(waits, {.run =
                               [&](comm::Fabric& fabric) {
                                 return RunTraining(options, fabric, [&](base::ExitCode code) {
                                   if (fabric.rank() == 0) told.set_value(code);
                                 });
                               },
                           .on_wait = on_wait,
                           .is_cut_off = [&](int rank) { return rank == 0 && cut_off; }});
  });
  std::future<base::ExitCode> code = told.get_future();
  REQUIRE(code.wait_for(kLimit) == std::future_status::ready);
  CHECK(code.get() == base::kJobFailed);
  CHECK_THAT(run.Failure(0), Catch::Contains("cut off"));
  stuck->LetGo();
  CHECK(ended.get()[0] == base::kJobFailed);
}

TEST_CASE("training: each line of metrics.jsonl is waited for") {
  std::array<int64_t, 2> disk_waits{}, of_rank_0{};
  for (const size_t each : {0, 1}) {
    const SmallRun run;
    TrainingOptions options = run.Options();
    if (each == 0) options.overrides = {"runtime.log_every_steps=6"};
    Waits waits;
    REQUIRE(TrainBeside(options, waits).get() == kBothOk);
    disk_waits[each] = DiskWaits(waits.Of(1));
    of_rank_0[each] = DiskWaits(waits.Of(0));
  }
  CHECK(disk_waits[1] - disk_waits[0] == 5);
  // Rank 0 has done with its disk: who is silent then is given up as within a step.
  CHECK(of_rank_0[1] == of_rank_0[0]);
}

TEST_CASE("training: what rank 0 cannot open, write or do without is told by all ranks") {
  for (const std::string name : {"metrics.jsonl", "job.yaml"}) {
    const SmallRun run;
    // No file can take its place.
    fs::create_directories(run.Path("run/" + name + ".partial"));
    const Codes codes = run.Train(run.Options());
    // What a disk refuses is no fault of the job or its size: it is tried again.
    CHECK(codes == Codes(kPair, base::kJobFailed));
    for (const int rank : {0, 1}) {
      CHECK_THAT(run.Failure(rank),
                 Catch::Contains("rank 0: ") && Catch::Contains(run.Path("run/" + name)));
    }
  }
}

TEST_CASE("training: the ranks find each other before any is at its disk") {
  const SmallRun run;
  std::atomic<int> late = 0, groups = 0;
  Waits waits;
  const Codes codes = RunPair(
      waits,
      {.run = [&](comm::Fabric& fabric) { return RunTraining(run.Options(), fabric); },
       .on_group =
           [&](int rank, std::string_view name) {
             if (name != "world") return;
             ++groups;
             if (fs::exists(run.Path("run/recorder/rank-00" + std::to_string(rank) + ".rec"))) {
               ++late;
             }
           }});
  CHECK(codes == kBothOk);
  CHECK(groups == 2);
  CHECK(late == 0);
}

// Holds whoever writes to it for the `at`th time, from 0, or fails then.
class StuckOutput {
 public:
  StuckOutput(int at, bool fails) : at_(at), fails_(fails) {
    cookie_io_functions_t calls{};
    calls.write = [](void* self, const char*, size_t size) {
      return static_cast<StuckOutput*>(self)->Write(size);
    };
    file_ = fopencookie(this, "w", calls);
  }
  ~StuckOutput() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  bool HasOne() { return held_.get_future().wait_for(kLimit) == std::future_status::ready; }
  void LetGo() {
    if (!std::exchange(let_go_, true)) go_.set_value();
  }

 private:
  ssize_t Write(size_t size) {
    if (count_++ != at_) return static_cast<ssize_t>(size);
    if (fails_) return 0;
    held_.set_value();
    go_.get_future().wait_for(4 * kLimit);
    return static_cast<ssize_t>(size);
  }

  const int at_;
  const bool fails_;
  int count_ = 0;
  bool let_go_ = false;
  std::promise<void> held_, go_;
  std::FILE* file_ = nullptr;
};

// Before the run that is held is joined.
struct Release {
  StuckOutput& output;
  ~Release() { output.LetGo(); }
};

TEST_CASE("generation: a rank 0 whose output is held up is waited for, and told of by all") {
  const SmallRun run;
  REQUIRE(run.Train(run.Options()) == kBothOk);
  const GenerationOptions common{.checkpoint = run.Checkpoint(6), .prompt = "t", .tokens = 2};
  const auto generate = [&](Waits& waits, StuckOutput& output) {
    return RunPair(waits, {.run = [&](comm::Fabric& fabric) {
                     GenerationOptions options = common;
                     if (fabric.rank() == 0) options.out = output.file();
                     return RunGeneration(options, fabric);
                   }});
  };
  // The prompt, two tokens and the end.
  for (const int at : {0, 1, 2, 3}) {
    INFO(at);
    Waits waits;
    StuckOutput output(at, /*fails=*/false);
    std::future<Codes> ended;
    const Release release{output};
    ended = std::async(std::launch::async, [&] { return generate(waits, output); });
    REQUIRE(output.HasOne());
    CHECK(waits.OfRankOneAlone() == kDisk);
    output.LetGo();
    CHECK(ended.get() == kBothOk);
  }
  StuckOutput broken(3, /*fails=*/true);
  Waits waits;
  CHECK(generate(waits, broken) == Codes(kPair, base::kBadInput));
}

}  // namespace
}  // namespace trireme::worker
