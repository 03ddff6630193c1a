// What is written is read, by living and dead writers alike; what is no recording is refused.
#include "runtime/recorder/flight_recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/recorder/recording_format.h"

namespace trireme::recorder {
namespace {

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/trireme_recorder_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_CASE("each field arrives in its place") {
  const Folder folder;
  const std::string path = folder / "rank-003.rec";
  auto recorder = FlightRecorder::Create(path, 3, 8);
  REQUIRE(recorder.ok());
  CHECK(folder.entries() == 1);
  struct stat about {};
  stat(path.c_str(), &about);
  CHECK((about.st_mode & 0777) == 0600);

  auto read = ReadRecording(path);
  REQUIRE(read.ok());
  CHECK((read->rank == 3 && read->ranks == 8 && read->pid == getpid()));
  CHECK((read->state == RankState::kStarting && read->updated_ns == 0 && read->failed_ns == 0));

  (*recorder)->SetState(RankState::kRunning);
  (*recorder)->At({uint64_t{1} << 40, 1, 2, 3, 4, -1});
  (*recorder)->At({(uint64_t{1} << 40) + 5, 11, 12, 13, 14, 15});
  (*recorder)->Report({7, 70, 2.5, 1e6, 0.25, 3.5, 5, 0.75e6, 6});
  read = ReadRecording(path);
  REQUIRE(read.ok());
  CHECK(read->state == RankState::kRunning);
  const Position& at = read->position;
  CHECK((at.step == (uint64_t{1} << 40) + 5 && at.instruction == 11 && at.kind == 12));
  CHECK((at.virtual_stage == 13 && at.micro_batch == 14 && at.peer == 15));
  CHECK(read->updated_ns > 0);
  const Progress& progress = read->progress;
  CHECK((progress.steps_done == 7 && progress.steps_total == 70 && progress.loss == 2.5));
  CHECK((progress.tokens_per_second == 1e6 && progress.utilisation == 0.25));
  CHECK((progress.validation_loss == 3.5 && progress.validation_step == 5));
  CHECK(progress.memory_step == 6);
  CHECK(progress.overall_tokens_per_second == 0.75e6);
  CHECK((read->wait.since_ns == 0 && read->wait.peer == -1 && read->waited_ns == 0));
  CHECK(read->timing.step == 0);
  (*recorder)->At({1, 1, 1, 1, 1, -1});
  CHECK(ReadRecording(path)->position.peer == -1);
}

TEST_CASE("a wait is there while it lasts and the newest timing stays") {
  const Folder folder;
  const std::string path = folder / "r";
  auto recorder = FlightRecorder::Create(path, 1, 8);
  REQUIRE(recorder.ok());
  (*recorder)->NoteWait(
      {1234567890123, 7, 2, true, "a group whose name is far too long to be kept"});
  auto read = ReadRecording(path);
  REQUIRE(read.ok());
  CHECK((read->wait.since_ns == 1234567890123 && read->wait.peer == 7 && read->wait.awaited == 2));
  CHECK((read->wait.collective && read->wait.group == "a group whose name is far too lo"));
  CHECK(read->waited_ns > 0);
  (*recorder)->NoteWait({5, -1, 0, false, "pipeline"});
  read = ReadRecording(path);
  CHECK((read->wait.peer == -1 && !read->wait.collective && read->wait.group == "pipeline"));
  (*recorder)->NoteWait({});
  read = ReadRecording(path);
  CHECK((read->wait.since_ns == 0 && read->wait.peer == -1 && read->wait.group.empty()));
  for (uint64_t step = 1; step < 20; ++step) {
    (*recorder)->NoteTiming({step, 10.5, 8.25, 1.125, 0.5});
    const StepTiming timing = ReadRecording(path)->timing;
    CHECK((timing.step == step && timing.step_ms == 10.5 && timing.compute_ms == 8.25));
    CHECK((timing.wait_ms == 1.125 && timing.offload_ms == 0.5));
  }
}

TEST_CASE("a recording of version 1 is one of a rank that never waits") {
  const auto read = ReadRecording(TRIREME_SOURCE_DIR "/tests/runtime/recorder/data/version_1.rec");
  REQUIRE(read.ok());
  CHECK((read->rank == 3 && read->ranks == 8 && read->state == RankState::kFailed));
  CHECK((read->position.step == 12 && read->position.kind == 4 && read->position.peer == 5));
  CHECK((read->progress.steps_done == 11 && read->progress.loss == 2.5));
  CHECK(read->failure == "no space left");
  CHECK((read->wait.since_ns == 0 && read->wait.peer == -1 && read->timing.step == 0));
}

TEST_CASE("the first failure is kept, cut between characters, and stays") {
  const Folder folder;
  const std::string path = folder / "r";
  auto recorder = FlightRecorder::Create(path, 0, 1);
  REQUIRE(recorder.ok());
  std::string message(kFailureCapacity - 1, 'x');
  message += "\xC3\xA9 the end";
  message[3] = '\x1B';
  (*recorder)->Fail(message, Blame::kPeer);
  (*recorder)->Fail("second", Blame::kItself);
  (*recorder)->SetState(RankState::kStopped);
  recorder->reset();
  const auto read = ReadRecording(path);
  REQUIRE(read.ok());
  CHECK(read->state == RankState::kFailed);
  CHECK(read->failed_ns > 0);
  CHECK(read->blame == Blame::kPeer);
  CHECK(read->failure == "xxx\xEF\xBF\xBD" + std::string(kFailureCapacity - 5, 'x'));
}

TEST_CASE("a killed writer's last position is read") {
  const Folder folder;
  const std::string path = folder / "r";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto recorder = FlightRecorder::Create(path, 1, 2);
    (*recorder)->SetState(RankState::kRunning);
    (*recorder)->At({12, 3, 4, 0, 2, -1});
    if (write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  const auto read = ReadRecording(path);
  REQUIRE(read.ok());
  CHECK((read->pid == child && read->state == RankState::kRunning && read->position.step == 12));
}

TEST_CASE("a record begun and not published is not seen") {
  const Folder folder;
  const std::string path = folder / "r";
  auto recorder = FlightRecorder::Create(path, 0, 1);
  REQUIRE(recorder.ok());
  for (uint64_t step = 1; step <= 20; ++step) (*recorder)->At({step, 0, 0, 0, 0, 0});
  std::string bytes = Slurp(path);
  const size_t next = 8 * kPositions.SlotOf(21);
  bytes.replace(next, 8, 8, '\xFF');
  Spill(path, bytes);
  CHECK(ReadRecording(path)->position.step == 20);
}

TEST_CASE("reading beside a writer never tears") {
  const Folder folder;
  const std::string path = folder / "r";
  auto recorder = FlightRecorder::Create(path, 0, 1);
  REQUIRE(recorder.ok());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint32_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      (*recorder)->At({i, i, i, i, i, static_cast<int32_t>(i)});
      (*recorder)->Report({i, i, double(i), double(i), double(i), double(i), i, double(i)});
      (*recorder)->NoteWait(
          {i, static_cast<int32_t>(i), i, (i & 1) != 0, std::string(i % 32, 'x')});
      (*recorder)->NoteTiming({i, double(i), double(i), double(i)});
    }
  });
  int torn = 0, good = 0;
  uint64_t last = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto read = ReadRecording(path);
    if (!read.ok()) {
      torn += read.status().code() != absl::StatusCode::kUnavailable;
      continue;
    }
    ++good;
    const Position& p = read->position;
    const auto n = static_cast<uint32_t>(p.step);
    torn += !(p.instruction == n && p.kind == n && p.virtual_stage == n && p.micro_batch == n &&
              p.peer == static_cast<int32_t>(n));
    const Progress& q = read->progress;
    const auto d = static_cast<double>(q.steps_done);
    torn +=
        !(q.loss == d && q.tokens_per_second == d && q.utilisation == d && q.validation_loss == d &&
          q.validation_step == q.steps_done && q.overall_tokens_per_second == d);
    const Wait& w = read->wait;
    const auto m = static_cast<uint32_t>(w.since_ns);
    torn += m > 0 && !(w.peer == static_cast<int32_t>(m) && w.awaited == m &&
                       w.collective == ((m & 1) != 0) && w.group.size() == m % 32);
    const StepTiming& t = read->timing;
    const auto s = static_cast<double>(t.step);
    torn += !(t.step_ms == s && t.compute_ms == s && t.wait_ms == s);
    torn += p.step < last;
    last = p.step;
  }
  stop = true;
  writer.join();
  CHECK(torn == 0);
  CHECK(good > 0);
}

TEST_CASE("what is no recording is DataLoss with its cause") {
  const Folder folder;
  const std::string path = folder / "r";
  CHECK(ReadRecording(path).status().code() == absl::StatusCode::kNotFound);
  CHECK(FlightRecorder::Create(folder / "none/r", 0, 1).status().code() ==
        absl::StatusCode::kNotFound);
  {
    auto recorder = FlightRecorder::Create(path, 0, 1);
    REQUIRE(recorder.ok());
    (*recorder)->At({1, 2, 3, 4, 5, 6});
    (*recorder)->Fail("message", Blame::kItself);
  }
  const std::string good = Slurp(path);
  REQUIRE(good.size() == kFileBytes);
  const auto code = [&](const std::string& bytes) {
    Spill(path, bytes);
    return ReadRecording(path).status().code();
  };
  CHECK(code(good) == absl::StatusCode::kOk);
  for (size_t size : {0, 1, 8, 63, 2048, 4095}) {
    CHECK(code(good.substr(0, size)) == absl::StatusCode::kDataLoss);
  }
  CHECK(code(good + "x") == absl::StatusCode::kDataLoss);
  const auto broken = [&](size_t word, uint64_t value) {
    std::string bytes = good;
    bytes.replace(word * 8, 8, reinterpret_cast<const char*>(&value), 8);
    return code(bytes);
  };
  CHECK(broken(kMagicWord, 0) == absl::StatusCode::kDataLoss);
  CHECK(broken(kVersionWord, Pack(0, kFileBytes)) == absl::StatusCode::kDataLoss);
  CHECK(broken(kVersionWord, Pack(kVersion + 1, kFileBytes)) == absl::StatusCode::kDataLoss);
  CHECK(broken(kRankWord, Pack(1, 1)) == absl::StatusCode::kDataLoss);
  CHECK(broken(kRankWord, Pack(0xFFFFFFFF, 1)) == absl::StatusCode::kDataLoss);
  CHECK(broken(kStateWord, 0) == absl::StatusCode::kDataLoss);
  CHECK(broken(kStateWord, 5) == absl::StatusCode::kDataLoss);
  CHECK(broken(kFailureBytesWord, kFailureCapacity + 1) == absl::StatusCode::kDataLoss);
  CHECK(broken(kFailureBytesWord, ~uint64_t{0}) == absl::StatusCode::kDataLoss);
  for (const Ring& ring : {kPositions, kProgress, kWaits, kTimings}) {
    CHECK(broken(ring.sequence_word, ~uint64_t{0}) == absl::StatusCode::kOk);
  }
}

TEST_CASE("a recording that is cut off while it is read is an error and no signal") {
  const Folder folder;
  const std::string path = folder / "r";
  {
    auto recorder = FlightRecorder::Create(path, 0, 1);
    REQUIRE(recorder.ok());
    (*recorder)->At({1, 2, 3, 4, 5, 6});
  }
  const std::string good = Slurp(path);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  std::atomic<bool> stop{false};
  std::thread cutter([&] {
    const auto bytes = static_cast<ssize_t>(good.size());
    while (!stop && ftruncate(fd, 0) == 0 && pwrite(fd, good.data(), good.size(), 0) == bytes) {
    }
  });
  int strange = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto code = ReadRecording(path).status().code();
    strange += code != absl::StatusCode::kOk && code != absl::StatusCode::kDataLoss;
  }
  stop = true;
  cutter.join();
  close(fd);
  CHECK(strange == 0);
  Spill(path, good);
  CHECK(ReadRecording(path).ok());
}

TEST_CASE("a pipe in the place of a recording keeps nobody waiting") {
  const Folder folder;
  const std::string path = folder / "r";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(ReadRecording(path).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("garbage never harms the reader") {
  const Folder folder;
  const std::string path = folder / "r";
  { REQUIRE(FlightRecorder::Create(path, 0, 1).ok()); }
  const std::string good = Slurp(path);
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    const size_t changes = 1 + random() % 40;
    for (size_t c = 0; c < changes; ++c) bytes[random() % 4096] = static_cast<char>(random());
    if (i % 3 == 0) bytes.resize(random() % 5000);
    Spill(path, bytes);
    const auto read = ReadRecording(path);
    accepted += read.ok();
    if (read.ok() && read->failure.size() > kFailureCapacity) FAIL("message too long");
  }
  CHECK(accepted > 0);
}

}  // namespace
}  // namespace trireme::recorder
