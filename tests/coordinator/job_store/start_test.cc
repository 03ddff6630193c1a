// A store that is opened for a start reads what has not ended, and whatever it has not read is
// found to be damaged when it is read, or by the check that follows.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "coordinator/job_store/damage_watch.h"
#include "coordinator/job_store/forwarding_store.h"
#include "coordinator/job_store/schema.h"
#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kPageBytes = 4096;

absl::StatusOr<std::unique_ptr<JobStore>> Start(const std::string& path) {
  return JobStore::Open(path, StoreCheck::kWhatIsRead);
}

std::unique_ptr<JobStore> MustStart(const std::string& path) {
  auto store = Start(path);
  if (!store.ok()) FAIL(store.status().ToString());
  return *std::move(store);
}

bool IsPut(JobStore& store, const v1::Job& job) {
  Change change;
  change.jobs = {job};
  change.events = {SampleEvent(job.id(), "event")};
  return store.Commit(change).ok();
}

void Put(JobStore& store, const v1::Job& job) { REQUIRE(IsPut(store, job)); }

std::vector<uint64_t> IdsOf(const absl::StatusOr<std::vector<v1::Job>>& jobs) {
  REQUIRE(jobs.ok());
  std::vector<uint64_t> ids;
  for (const v1::Job& job : *jobs) ids.push_back(job.id());
  return ids;
}

void Alter(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  char* fault = nullptr;
  if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &fault) != SQLITE_OK) FAIL(fault);
  sqlite3_close(database);
}

// Whether another process may have it. SQLite's own memory of its locks is of no use to a child.
bool IsFree(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    _exit(file >= 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0;
}

using Ids = std::vector<uint64_t>;

TEST_CASE("live jobs are those that have not ended or may have ranks") {
  const Folder folder;
  const std::string path = GENERATE(true, false) ? folder / "jobs.db" : ":memory:";
  auto store = MustStart(path);
  for (const uint64_t id : {1, 2, 3, 4, 5}) Put(*store, SampleJob(id));
  for (const uint64_t id : {2, 4}) Put(*store, EndedJob(id));
  v1::Job stops = EndedJob(3);
  stops.mutable_status()->set_attempt_live(true);
  Put(*store, stops);
  CHECK(IdsOf(store->LiveJobs()) == Ids{1, 3, 5});
  CHECK(IdsOf(store->JobsBefore(UINT64_MAX, 2)) == Ids{5, 4});
  CHECK(IdsOf(store->JobsBefore(4, 9)) == Ids{3, 2, 1});
  CHECK(store->FindJob(4)->value().SerializeAsString() == EndedJob(4).SerializeAsString());
  CHECK(*store->FindJob(6) == std::nullopt);
  CHECK(*store->FindJob(UINT64_MAX) == std::nullopt);
  REQUIRE(store->DropJobs({1, 2}).ok());
  CHECK(IdsOf(store->LiveJobs()) == Ids{3, 5});
  CHECK(store->CheckAll().ok());
  store = nullptr;
  if (path != ":memory:") CHECK(IdsOf(MustOpen(path)->LiveJobs()) == Ids{3, 5});
}

TEST_CASE("the folders of run folders outlive the jobs") {
  const Folder folder;
  auto store = MustStart(folder / "jobs.db");
  Put(*store, EndedJob(1));
  v1::Job elsewhere = SampleJob(2);
  elsewhere.set_run_folder("/other/2");
  Put(*store, elsewhere);
  REQUIRE(store->DropJobs({1}).ok());
  store = nullptr;
  store = MustStart(folder / "jobs.db");
  CHECK(*store->RunParents() == std::vector<std::string>{"/other", "/runs"});
}

TEST_CASE("a start reads no ended job, and the check after it finds the damage") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  {
    auto store = MustOpen(path);
    Put(*store, SampleJob(1));
    Put(*store, EndedJob(2));
  }
  const std::string good = Slurp(path);
  const char* damage =
      GENERATE("UPDATE jobs SET job = CAST(job || x'00' AS BLOB) WHERE id = 2",
               "UPDATE events SET event = CAST(event || x'00' AS BLOB) WHERE sequence = 2");
  Alter(path, damage);
  auto store = MustStart(path);
  CHECK(IdsOf(store->LiveJobs()) == Ids{1});
  Put(*store, SampleJob(3));
  CHECK(store->CheckAll().code() == absl::StatusCode::kDataLoss);
  store = nullptr;
  // Said once, it is not served again.
  CHECK(Start(path).status().code() == absl::StatusCode::kDataLoss);
  CHECK(Start(path).status().code() == absl::StatusCode::kDataLoss);
  // A backup that is put back is checked, and then opened as ever.
  Spill(path, good);
  CHECK(IdsOf(MustStart(path)->LiveJobs()) == Ids{1});
  CHECK(folder.Names() == std::vector<std::string>{"jobs.db"});
}

TEST_CASE("damage that a read comes upon is told and noted as by the check") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  {
    auto store = MustOpen(path);
    for (const uint64_t id : {1, 2}) Put(*store, EndedJob(id));
  }
  Alter(path, "UPDATE jobs SET job = CAST(job || x'00' AS BLOB) WHERE id = 1");
  std::vector<std::string> told;
  auto store = DamageWatch(MustStart(path),
                           [&](const absl::Status& why) { told.push_back(base::MessageOf(why)); });
  CHECK(store->FindJob(2).ok());
  CHECK(told.empty());
  // Where the note cannot be made it is said.
  const bool noted = GENERATE(true, false);
  if (!noted) REQUIRE(symlink("/absent/note", (path + "-damaged").c_str()) == 0);
  const auto read = GENERATE(0, 1, 2, 3);
  absl::Status status;
  if (read == 0) status = store->FindJob(1).status();
  if (read == 1) status = store->JobsBefore(UINT64_MAX, 10).status();
  if (read == 2) status = store->Jobs().status();
  if (read == 3) status = store->CheckAll();
  CHECK(absl::IsDataLoss(status));
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("damaged (job 1)") != std::string::npos);
  CHECK((told[0].find("cannot be made") == std::string::npos) == noted);
  store = nullptr;
  if (noted) CHECK(absl::IsDataLoss(Start(path).status()));
}

namespace {

// Every read and change comes upon damage.
class Damaged : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  absl::Status Commit(Change&) override { return why_; }
  absl::Status BeginEpoch() override { return why_; }
  absl::StatusOr<uint64_t> NextJobId(uint64_t) override { return why_; }
  absl::StatusOr<std::vector<v1::Job>> Jobs() override { return why_; }
  absl::StatusOr<std::vector<v1::Job>> LiveJobs() override { return why_; }
  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t, size_t) override { return why_; }
  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t) override { return why_; }
  absl::StatusOr<std::vector<std::string>> RunParents() override { return why_; }
  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string&,
                                                      const std::string&) override {
    return why_;
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery&) override { return why_; }
  absl::StatusOr<uint64_t> LastSequence() override { return why_; }
  absl::StatusOr<uint64_t> FirstSequence() override { return why_; }
  absl::StatusOr<uint64_t> DropEvents(uint64_t, uint64_t) override { return why_; }
  absl::Status DropJobs(const std::vector<uint64_t>&) override { return why_; }
  absl::StatusOr<std::vector<v1::Node>> Nodes() override { return why_; }

 private:
  const absl::Status why_ = absl::DataLossError("a page is torn");
};

}  // namespace

TEST_CASE("damage is told by whatever call comes upon it, once by each") {
  const Folder folder;
  int told = 0;
  const auto store =
      DamageWatch(std::make_unique<Damaged>(MustStart(folder / "jobs.db")),
                  [&](const absl::Status& why) { told += absl::IsDataLoss(why) ? 1 : 0; });
  Change change;
  const std::vector<std::function<absl::Status()>> calls = {
      [&] { return store->Commit(change); },
      [&] { return store->BeginEpoch(); },
      [&] { return store->NextJobId(0).status(); },
      [&] { return store->Jobs().status(); },
      [&] { return store->LiveJobs().status(); },
      [&] { return store->JobsBefore(2, 1).status(); },
      [&] { return store->FindJob(1).status(); },
      [&] { return store->RunParents().status(); },
      [&] { return store->FindRequest("ann", "1").status(); },
      [&] { return store->Events({}).status(); },
      [&] { return store->LastSequence().status(); },
      [&] { return store->FirstSequence().status(); },
      [&] { return store->DropEvents(1, 1).status(); },
      [&] { return store->DropJobs({1}); },
      [&] { return store->Nodes().status(); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    CHECK(absl::IsDataLoss(calls[i]()));
    CHECK(told == static_cast<int>(i) + 1);
  }
}

namespace {

class Busy : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  absl::Status CheckAll() override {
    ++checks;
    return answer;
  }
  absl::Status answer;
  int checks = 0;
};

}  // namespace

TEST_CASE("a check that could not be made is made again an hour later, and no other") {
  using std::chrono::minutes;
  Busy store(MustStart(":memory:"));
  int failed = 0;
  CheckTurns turns(store, [&](const absl::Status&) { ++failed; });
  const CheckTurns::Clock::time_point begin{minutes(1000)};
  store.answer = absl::UnavailableError("the disk");
  constexpr int64_t kHourNs = int64_t{3600} * 1000000000;
  CHECK(turns.Turn(7, begin) == 7 + kHourNs);
  CHECK(turns.Turn(9, begin + minutes(15)) == 9 + kHourNs * 3 / 4);
  CHECK(store.checks == 1);
  CHECK(turns.Turn(7, begin + minutes(60)) == 7 + kHourNs);
  CHECK(store.checks == 2);
  CHECK(failed == 2);
  store.answer = GENERATE(absl::OkStatus(), absl::CancelledError(), absl::DataLossError("a row"));
  CHECK(turns.Turn(7, begin + minutes(120)) == 0);
  CHECK(turns.Turn(7, begin + minutes(600)) == 0);
  CHECK(store.checks == 3);
  CHECK(failed == 2);
}

TEST_CASE("a check that is stopped stops, at whatever moment it is") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  {
    auto store = MustOpen(path);
    for (uint64_t id = 1; id <= 100; ++id) Put(*store, EndedJob(id));
  }
  SECTION("before its first statement") {
    std::string file = Slurp(path);
    file.replace(3 * kPageBytes, kPageBytes, kPageBytes, 'x');
    Spill(path, file);
    auto store = Start(path);
    REQUIRE(store.ok());
    (*store)->StopCheck();
    CHECK(absl::IsCancelled((*store)->CheckAll()));
  }
  SECTION("between two") {
    std::atomic<bool> stop{false};
    const auto still = *Connection::OpenStill(path, stop);
    constexpr const char* kAll = "SELECT count(*) FROM jobs AS a, jobs AS b WHERE a.id + b.id > 0";
    CHECK(*still->Integer(kAll) == 10000);
    stop = true;
    CHECK(absl::IsCancelled(still->Integer(kAll).status()));
    CHECK(absl::IsCancelled(CheckRows(*still)));
  }
}

TEST_CASE("a live job that the index has lost is missed at once") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  {
    auto store = MustOpen(path);
    for (const uint64_t id : {1, 2}) Put(*store, SampleJob(id));
  }
  Alter(path, "DELETE FROM jobs WHERE id = 2");
  const absl::Status status = Start(path).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(base::MessageOf(status).find("the count of live jobs") != std::string::npos);
}

TEST_CASE("the check goes on beside commits, and the lock of the file stays") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  auto store = MustStart(path);
  for (uint64_t id = 1; id <= 300; ++id) Put(*store, EndedJob(id));
  std::atomic<bool> done{false}, all_put{true};
  std::thread commits([&] {
    for (uint64_t id = 1000; !done; ++id) all_put = all_put && IsPut(*store, SampleJob(id));
  });
  for (int i = 0; i < 20; ++i) CHECK(store->CheckAll().ok());
  done = true;
  commits.join();
  CHECK(all_put);
  CHECK_FALSE(IsFree(path));
  store->StopCheck();
  CHECK(store->CheckAll().code() == absl::StatusCode::kCancelled);
  const auto jobs = store->Jobs()->size();
  store = nullptr;
  CHECK(IsFree(path));
  CHECK(MustOpen(path)->Jobs()->size() == jobs);
}

// What is read is what was written, or an error; nothing that is live is missing. Pages change
// places too: events, whose rows look like those of jobs, are not taken for jobs.
TEST_CASE("a changed file that is opened for a start never says what was not written") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  {
    auto store = MustOpen(path);
    for (uint64_t id = 1; id <= 60; ++id) {
      Put(*store, id % 3 == 0 ? SampleJob(id) : EndedJob(id));
    }
  }
  const std::string good = Slurp(path);
  REQUIRE(good.size() > 8 * kPageBytes);
  std::mt19937_64 random(7);
  const auto at = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int refused = 0, found = 0;
  for (int i = 0; i < 400; ++i) {
    std::string file = good;
    const size_t page = kPageBytes * at(file.size() / kPageBytes);
    if (i % 3 == 0) file[100 + at(file.size() - 100)] ^= static_cast<char>(1 << at(8));
    if (i % 3 == 1) file.replace(page, kPageBytes, kPageBytes, 0);
    if (i % 3 == 2)
      file.replace(page, kPageBytes,
                   good.substr(kPageBytes * at(good.size() / kPageBytes), kPageBytes));
    Spill(path, file);
    CAPTURE(i, page);
    auto store = Start(path);
    if (store.ok()) {
      const auto live = (*store)->LiveJobs();
      bool same = live.ok() && live->size() == 20;
      for (size_t k = 0; same && k < 20; ++k) {
        same = (*live)[k].SerializeAsString() == SampleJob(3 * (k + 1)).SerializeAsString();
      }
      CAPTURE(live.status().ToString());
      CHECK((same || live.status().code() == absl::StatusCode::kDataLoss));
      const absl::Status checked = (*store)->CheckAll();
      // What SQLite does not use, as the rest of a page, may change.
      CHECK((checked.ok() || checked.code() == absl::StatusCode::kDataLoss));
      if (checked.ok()) CHECK((*store)->Jobs()->size() == 60);
      found += !checked.ok();
    } else {
      ++refused;
    }
    store = absl::CancelledError();
    for (const char* suffix : {"-wal", "-damaged"}) unlink((path + suffix).c_str());
  }
  CHECK(refused > 20);
  CHECK(found > 20);
}

}  // namespace
}  // namespace trireme::coordinator
