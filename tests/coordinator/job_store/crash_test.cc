// Killed at any moment, or out of disk: every commit is there or not, whole.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tests/coordinator/job_store/file_limit.h"
#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

constexpr uint64_t kEvents = 20;

// Number n of a row: job n, job 1 brought up to n, twenty events, a node.
Change NumberedChange(uint64_t n) {
  Change change;
  change.jobs = {SampleJob(n)};
  change.request_ids = {"request-" + std::to_string(n)};
  if (n > 1) {
    change.jobs.push_back(SampleJob(1));
    change.request_ids.emplace_back();
  }
  change.jobs.back().mutable_status()->set_checkpoint_step(n);
  for (uint64_t i = 0; i < kEvents; ++i) {
    change.events.push_back(SampleEvent(n, std::to_string(i)));
  }
  change.nodes = {SampleNode("n1", std::to_string(n))};
  return change;
}

[[noreturn]] void CommitUntilKilled(const std::string& path, uint64_t next, int acknowledged) {
  auto store = JobStore::Open(path);
  for (; store.ok(); ++next) {
    Change change = NumberedChange(next);
    if (!(*store)->Commit(change).ok()) break;
    if (write(acknowledged, &next, sizeof next) != sizeof next) break;
  }
  _exit(1);
}

// The number of changes there, after a look at every part of each.
uint64_t CountWholeChanges(JobStore& store) {
  const auto jobs = store.Jobs().value();
  const auto events = store.Events({0, 0, size_t{1} << 40}).value();
  const uint64_t count = jobs.size();
  uint64_t faults = events.size() != kEvents * count;
  faults += *store.LastSequence() != kEvents * count;
  for (uint64_t i = 0; i < events.size(); ++i) {
    faults += events[i].sequence() != i + 1 || events[i].job_id() != i / kEvents + 1 ||
              events[i].state_changed().reason() != std::to_string(i % kEvents);
  }
  for (uint64_t n = 1; n <= count; ++n) {
    faults += jobs[n - 1].id() != n || jobs[n - 1].run_folder() != SampleJob(n).run_folder();
    faults += *store.FindRequest("ann", "request-" + std::to_string(n)) != n;
  }
  faults += store.FindRequest("ann", "request-" + std::to_string(count + 1))->has_value();
  if (count > 0) {
    faults += jobs[0].status().checkpoint_step() != count;
    const auto nodes = store.Nodes().value();
    faults += nodes.size() != 1 || nodes[0].reason() != std::to_string(count);
  }
  faults += *store.NextJobId(0) != count + 1;
  CHECK(faults == 0);
  return count;
}

TEST_CASE("killed at random moments it keeps what was acknowledged and nothing in part") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  std::mt19937_64 random(1);
  uint64_t count = 0;
  for (int round = 0; round < 50; ++round) {
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t child = fork();
    if (child == 0) CommitUntilKilled(path, count + 1, pipe_ends[1]);
    close(pipe_ends[1]);
    uint64_t last = count;
    // Every other child lives until it has committed something; the rest may die while they open.
    if (round % 2 == 0) REQUIRE(read(pipe_ends[0], &last, sizeof last) == sizeof last);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(pipe_ends[0], &last, sizeof last) == sizeof last) {
    }
    close(pipe_ends[0]);
    const auto store = MustOpen(path);
    const uint64_t before = count;
    count = CountWholeChanges(*store);
    CAPTURE(round, before, last, count);
    REQUIRE((count == last || count == last + 1));
  }
  CHECK(count >= 25);
}

TEST_CASE("of a damaged log a beginning is kept, whole") {
  const Folder folder;
  const std::string path = folder / "jobs.db", copy = folder / "copy.db";
  auto store = MustOpen(path);
  for (uint64_t n = 1; n <= 6; ++n) {
    Change change = NumberedChange(n);
    REQUIRE(store->Commit(change).ok());
  }
  const std::string file = Slurp(path), log = Slurp(path + "-wal");
  std::mt19937_64 random(2);
  std::vector<int> found(7);
  for (int i = 0; i < 60; ++i) {
    std::string damaged = log;
    const size_t at = random() % log.size();
    if (i % 2 == 0) {
      damaged.resize(at);
    } else {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    }
    Spill(copy, file);
    Spill(copy + "-wal", damaged);
    const uint64_t count = CountWholeChanges(*MustOpen(copy));
    REQUIRE(count <= 6);
    ++found[count];
  }
  CHECK(std::count_if(found.begin(), found.end(), [](int times) { return times > 0; }) > 3);
}

TEST_CASE("a full disk leaves the store as it was and usable") {
  signal(SIGXFSZ, SIG_IGN);
  const Folder folder;
  const std::string path = folder / "jobs.db";
  auto store = MustOpen(path);
  uint64_t count = 0;
  for (size_t room : {0, 1, 500, 4096, 10'000, 40'000, 90'000, 150'000}) {
    Change change = NumberedChange(++count);
    REQUIRE(store->Commit(change).ok());
    const Contents before = *ContentsOf(*store);
    const size_t log_bytes = Slurp(path + "-wal").size();
    Change large = NumberedChange(count + 1);
    large.jobs[0].set_run_folder(std::string(200'000, 'x'));
    {
      const FileLimit limit(log_bytes + room);
      const absl::Status status = store->Commit(large);
      CHECK(status.code() == absl::StatusCode::kUnavailable);
      CHECK(base::MessageOf(status).find(path + ": its disk is full (File too large)") == 0);
      CHECK(base::MessageOf(status).find("free space there") != std::string::npos);
      CHECK(large.events[0].sequence() == 0);
      CHECK(*ContentsOf(*store) == before);
    }
    if (room == 10'000) {
      store = nullptr;
      store = MustOpen(path);
      CHECK(*ContentsOf(*store) == before);
    }
  }
  Change change = NumberedChange(++count);
  REQUIRE(store->Commit(change).ok());
  store = nullptr;
  CHECK(CountWholeChanges(*MustOpen(path)) == count);
}

TEST_CASE("no new store is left in part where there is no room for it") {
  signal(SIGXFSZ, SIG_IGN);
  const Folder folder;
  for (size_t room : {0, 100, 4096, 10'000}) {
    const FileLimit limit(room);
    const absl::Status status = JobStore::Open(folder / "jobs.db").status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(folder.Names().empty());
  }
  MustOpen(folder / "jobs.db");
}

}  // namespace
}  // namespace trireme::coordinator
