// A backup of a store that goes on meanwhile: whole, with all that was there when it was asked for,
// or absent.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/coordinator/job_store/file_limit.h"
#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

absl::Status Unwatched(uint64_t, uint64_t) { return absl::OkStatus(); }

// Job `id`, which is the newest, with `bytes` of ballast; job 1 is told so.
Change JobOf(uint64_t id, size_t bytes) {
  Change change;
  change.jobs = {SampleJob(id)};
  change.jobs[0].set_run_folder(std::string(bytes, 'x'));
  change.request_ids = {"request-" + std::to_string(id)};
  if (id > 1) {
    change.jobs.push_back(SampleJob(1));
    change.request_ids.emplace_back();
  }
  change.jobs.back().mutable_status()->set_checkpoint_step(id);
  change.events = {SampleEvent(id, "one"), SampleEvent(id, "two")};
  return change;
}

void MustCommit(JobStore& store, uint64_t id, size_t bytes = 0) {
  Change change = JobOf(id, bytes);
  REQUIRE(store.Commit(change).ok());
}

// Enough for many steps of a copy.
constexpr uint64_t kJobs = 60;
constexpr size_t kBallast = 40'000;

std::unique_ptr<JobStore> LargeStore(const std::string& path) {
  auto store = MustOpen(path);
  for (uint64_t id = 1; id <= kJobs; ++id) MustCommit(*store, id, kBallast);
  return store;
}

std::vector<std::string> SortedNames(const Folder& folder) {
  auto names = folder.Names();
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("a backup is a store with all that was committed and nothing beside it") {
  const Folder folder;
  const std::string path = folder / "jobs.db", copy = folder / "copy.db";
  auto store = LargeStore(path);
  REQUIRE(store->BeginEpoch().ok());
  const mode_t mask = umask(0);
  uint64_t last = 0, told = 0;
  const auto report = store->Backup(copy, [&](uint64_t done, uint64_t total) {
    CHECK(done >= last);
    CHECK(done <= total);
    last = done;
    ++told;
    return absl::OkStatus();
  });
  umask(mask);
  REQUIRE(report.ok());
  CHECK(report->jobs == kJobs);
  CHECK(report->events == 2 * kJobs);
  CHECK(report->bytes == Slurp(copy).size());
  CHECK(told > 5);
  CHECK(last == report->bytes);
  CHECK(SortedNames(folder) == std::vector<std::string>{"copy.db", "jobs.db", "jobs.db-wal"});
  struct stat about {};
  REQUIRE(stat(copy.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  const Contents then = *ContentsOf(*store);
  MustCommit(*store, kJobs + 1);
  CHECK(MustRead(copy) == then);
  // It is the same store, and takes more.
  auto restored = MustOpen(copy);
  CHECK(*restored->FindRequest("ann", "request-7") == std::optional<uint64_t>(7));
  CHECK(*restored->NextJobId(0) == kJobs + 1);
  REQUIRE(restored->BeginEpoch().ok());
  CHECK(restored->identity().Continues(store->identity().At(2 * kJobs), 2 * kJobs));
  MustCommit(*restored, kJobs + 1);
}

TEST_CASE("a backup is whole while another thread commits") {
  const Folder folder;
  const std::string copy = folder / "copy.db";
  auto store = LargeStore(folder / "jobs.db");
  std::atomic<uint64_t> committed{kJobs};
  std::atomic<bool> ended{false};
  std::thread committer([&] {
    while (!ended) {
      Change change = JobOf(committed + 1, 100);
      TRIREME_CHECK(store->Commit(change).ok());
      ++committed;
      // A mutex takes nobody in turn: who never lets go of it starves the others.
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (int round = 0; round < 4; ++round) {
    unlink(copy.c_str());
    const uint64_t before = committed;
    const auto report = store->Backup(copy, Unwatched);
    const uint64_t after = committed;
    CHECK(report.status().ToString() == "OK");
    const Contents contents = MustRead(copy);
    const uint64_t jobs = contents.jobs.size();
    CHECK(jobs >= before);
    CHECK(jobs <= after + 1);
    CHECK(contents.events.size() == 2 * jobs);
    v1::Job first;
    REQUIRE(first.ParseFromString(contents.jobs[0]));
    CHECK(first.status().checkpoint_step() == jobs);
  }
  ended = true;
  committer.join();
}

// Commits here would wait for ever if a step's mutex were kept.
TEST_CASE("a backup takes along what is committed between its steps, and what is refused not") {
  const Folder folder;
  const std::string copy = folder / "copy.db";
  auto store = LargeStore(folder / "jobs.db");
  uint64_t jobs = kJobs, at_the_pages = 0;
  const auto report = store->Backup(copy, [&](uint64_t done, uint64_t total) {
    // Its pages are all there: from now on nothing is taken along.
    if (2 * done >= total) {
      if (at_the_pages == 0) at_the_pages = jobs;
      MustCommit(*store, ++jobs);
      return absl::OkStatus();
    }
    MustCommit(*store, ++jobs, 5000);
    if (jobs > kJobs + 3) return absl::OkStatus();
    Change taken = JobOf(jobs + 1, 10'000);
    taken.request_ids[0] = "request-1";
    CHECK(store->Commit(taken).code() == absl::StatusCode::kAlreadyExists);
    return absl::OkStatus();
  });
  REQUIRE(report.ok());
  CHECK(at_the_pages > kJobs + 3);
  CHECK(report->jobs == at_the_pages);
  Contents contents = *ContentsOf(*store);
  contents.jobs.resize(at_the_pages);
  contents.events.resize(2 * at_the_pages);
  v1::Job first;
  const Contents copied = MustRead(copy);
  CHECK(copied.events == contents.events);
  CHECK(std::equal(copied.jobs.begin() + 1, copied.jobs.end(), contents.jobs.begin() + 1,
                   contents.jobs.end()));
  REQUIRE(first.ParseFromString(copied.jobs[0]));
  CHECK(first.status().checkpoint_step() == at_the_pages);
}

TEST_CASE("a backup replaces nothing") {
  const Folder folder;
  auto store = LargeStore(folder / "jobs.db");
  Spill(folder / "copy.db", "a letter");
  REQUIRE(symlink("nowhere", (folder / "link.db").c_str()) == 0);
  for (const char* name : {"copy.db", "link.db", "jobs.db"}) {
    const absl::Status status = store->Backup(folder / name, Unwatched).status();
    CHECK(status.code() == absl::StatusCode::kAlreadyExists);
    CHECK(base::MessageOf(status).find(folder / name + ": exists already") == 0);
  }
  // Also what comes while it is made.
  const absl::Status status = store
                                  ->Backup(folder / "late.db",
                                           [&](uint64_t, uint64_t) {
                                             Spill(folder / "late.db", "another letter");
                                             return absl::OkStatus();
                                           })
                                  .status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Slurp(folder / "copy.db") == "a letter");
  CHECK(Slurp(folder / "late.db") == "another letter");
  CHECK(folder.Names().size() == 5);
  MustCommit(*store, kJobs + 1);
}

TEST_CASE("a backup that cannot be made leaves nothing and the store as it was") {
  const Folder folder;
  auto store = LargeStore(folder / "jobs.db");
  const auto names = SortedNames(folder);
  const absl::Status none = store->Backup(folder / "none/copy.db", Unwatched).status();
  CHECK(none.code() == absl::StatusCode::kNotFound);
  CHECK(base::MessageOf(none).find(folder / "none/copy.db: cannot be made") == 0);
  CHECK(MustOpen(":memory:")->Backup(folder / "copy.db", Unwatched).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  // Whoever asked for it leaves: at once, while pages are copied, while the file is.
  for (const uint64_t percent : {0, 30, 80, 100}) {
    const auto left = store->Backup(folder / "copy.db", [&](uint64_t done, uint64_t total) {
      return 100 * done < percent * total ? absl::OkStatus() : absl::CancelledError("left");
    });
    CHECK(left.status() == absl::CancelledError("left"));
    CHECK(SortedNames(folder) == names);
  }
  // One at a time.
  const auto outer = store->Backup(folder / "copy.db", [&](uint64_t, uint64_t) {
    absl::Status inner;
    std::thread([&] { inner = store->Backup(folder / "inner.db", Unwatched).status(); }).join();
    return inner;
  });
  CHECK(outer.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(SortedNames(folder) == names);
  MustCommit(*store, kJobs + 1);
  CHECK(store->Backup(folder / "copy.db", Unwatched).ok());
}

TEST_CASE("a backup to a full disk says so and leaves nothing") {
  signal(SIGXFSZ, SIG_IGN);
  const Folder folder;
  auto store = LargeStore(folder / "jobs.db");
  const auto names = SortedNames(folder);
  // That of the store, where the pages are copied to first.
  for (const size_t room : {0, 1, 5000, 700'000, 2'000'000}) {
    const FileLimit limit(room);
    const absl::Status status = store->Backup(folder / "copy.db", Unwatched).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(base::MessageOf(status).find("jobs.db-backup: its disk is full") != std::string::npos);
    CHECK(SortedNames(folder) == names);
  }
  // That of the backup.
  for (const uint64_t percent : {51, 70, 95}) {
    std::unique_ptr<FileLimit> limit;
    const auto report = store->Backup(folder / "copy.db", [&](uint64_t done, uint64_t total) {
      if (100 * done >= percent * total) limit = std::make_unique<FileLimit>(300'000);
      return absl::OkStatus();
    });
    limit = nullptr;
    CHECK(report.status().code() == absl::StatusCode::kUnavailable);
    CHECK(base::MessageOf(report.status()).find(folder / "copy.db.") == 0);
    CHECK(base::MessageOf(report.status()).find("the disk, quota or file size limit is full") !=
          std::string::npos);
    CHECK(SortedNames(folder) == names);
  }
  MustCommit(*store, kJobs + 1);
  CHECK(store->Backup(folder / "copy.db", Unwatched).ok());
  CHECK(MustRead(folder / "copy.db") == *ContentsOf(*store));
}

TEST_CASE("a backup is opened before it has its name") {
  const Folder folder;
  auto store = LargeStore(folder / "jobs.db");
  const auto names = SortedNames(folder);
  // A disk that keeps something else than it was given.
  bool changed = false;
  const auto report = store->Backup(folder / "copy.db", [&](uint64_t done, uint64_t total) {
    if (100 * done < 90 * total || changed) return absl::OkStatus();
    for (const std::string& name : folder.Names()) {
      if (name.rfind("copy.db.", 0) != 0) continue;
      std::fstream file(folder / name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(1'000'000);
      file.write("spoilt", 6);
      changed = true;
    }
    return absl::OkStatus();
  });
  CHECK(changed);
  CHECK(report.status().code() == absl::StatusCode::kDataLoss);
  CHECK(SortedNames(folder) == names);
}

TEST_CASE("what a backup that was killed has left goes away") {
  const Folder folder;
  LargeStore(folder / "jobs.db");
  Spill(folder / "jobs.db-backup", "half of something");
  auto store = MustOpen(folder / "jobs.db");
  CHECK(!std::filesystem::exists(folder / "jobs.db-backup"));
  Spill(folder / "jobs.db-backup", "half of something");
  CHECK(store->Backup(folder / "copy.db", Unwatched).ok());
  CHECK(!std::filesystem::exists(folder / "jobs.db-backup"));
  CHECK(MustRead(folder / "copy.db") == *ContentsOf(*store));
}

// What is undone makes SQLite begin the copy anew.
TEST_CASE("a backup that never gets on says so") {
  const Folder folder;
  auto store = LargeStore(folder / "jobs.db");
  const auto names = SortedNames(folder);
  const auto report = store->Backup(folder / "copy.db", [&](uint64_t, uint64_t) {
    Change taken = JobOf(kJobs + 1, 10'000);
    taken.request_ids[0] = "request-1";
    CHECK(store->Commit(taken).code() == absl::StatusCode::kAlreadyExists);
    return absl::OkStatus();
  });
  CHECK(report.status().code() == absl::StatusCode::kUnavailable);
  CHECK(base::MessageOf(report.status()).find("came to no end") != std::string::npos);
  CHECK(SortedNames(folder) == names);
}

}  // namespace
}  // namespace trireme::coordinator
