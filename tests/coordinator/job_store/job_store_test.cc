// What is committed is read again, whole; what is refused changes nothing; two cannot hold one
// file.
#include "coordinator/job_store/job_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "coordinator/job_store/sqlite_job_store.h"
#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

Change SampleChange(uint64_t id) {
  Change change;
  change.jobs = {SampleJob(id)};
  change.request_ids = {"request-" + std::to_string(id)};
  change.events = {SampleEvent(id, "one"), SampleEvent(id, "two")};
  change.nodes = {SampleNode("n" + std::to_string(id), "dust")};
  return change;
}

void Run(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  const int result = sqlite3_exec(database, sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) FAIL(sqlite3_errmsg(database));
  sqlite3_close(database);
}

std::vector<uint64_t> SequencesOf(const std::vector<v1::Event>& events) {
  std::vector<uint64_t> sequences;
  for (const v1::Event& event : events) sequences.push_back(event.sequence());
  return sequences;
}

TEST_CASE("what is committed is read again also after a restart") {
  const Folder folder;
  const std::string path = GENERATE(true, false) ? folder / "jobs.db" : ":memory:";
  auto store = MustOpen(path);
  CHECK(store->Jobs()->empty());
  CHECK(*store->LastSequence() == 0);
  Change first = SampleChange(1), second = SampleChange(2);
  REQUIRE(store->Commit(first).ok());
  REQUIRE(store->Commit(second).ok());
  Change update;
  update.jobs = {SampleJob(1)};
  update.jobs[0].mutable_status()->set_state(v1::JOB_COMPLETED);
  update.nodes = {SampleNode("n1", "clean")};
  REQUIRE(store->Commit(update).ok());
  if (path != ":memory:") store = nullptr;
  if (path != ":memory:") store = MustOpen(path);

  const auto jobs = store->Jobs();
  REQUIRE((jobs.ok() && jobs->size() == 2));
  CHECK((*jobs)[0].SerializeAsString() == update.jobs[0].SerializeAsString());
  CHECK((*jobs)[1].SerializeAsString() == second.jobs[0].SerializeAsString());
  const auto events = store->Events({});
  REQUIRE((events.ok() && events->size() == 4));
  CHECK(SequencesOf(*events) == std::vector<uint64_t>{1, 2, 3, 4});
  CHECK(SequencesOf(second.events) == std::vector<uint64_t>{3, 4});
  CHECK((*events)[2].SerializeAsString() == second.events[0].SerializeAsString());
  const auto nodes = store->Nodes();
  REQUIRE((nodes.ok() && nodes->size() == 2));
  CHECK((*nodes)[0].SerializeAsString() == update.nodes[0].SerializeAsString());
  CHECK(*store->FindRequest("ann", "request-2") == std::optional<uint64_t>(2));
  CHECK(*store->FindRequest("bob", "request-2") == std::nullopt);
  CHECK(*store->NextJobId(0) == 3);
  CHECK(*store->LastSequence() == 4);
}

TEST_CASE("only what is to be stored is and fields of newer versions survive") {
  const Folder folder;
  Change change = SampleChange(1);
  v1::Job& job = change.jobs[0];
  job.GetReflection()->MutableUnknownFields(&job)->AddVarint(500, 42);
  job.mutable_progress()->set_loss(2.5);
  const std::string stored = job.SerializeAsString();
  job.set_queue_position(4);
  job.set_waits_for("8 CPUs");
  v1::Node& node = change.nodes[0];
  const std::string stored_node = node.SerializeAsString();
  node.set_state(v1::NODE_LOST);
  node.set_cpus(64);
  REQUIRE(MustOpen(folder / "jobs.db")->Commit(change).ok());
  CHECK(job.queue_position() == 4);
  const Contents contents = MustRead(folder / "jobs.db");
  CHECK(contents.jobs == std::vector<std::string>{stored});
  CHECK(contents.nodes == std::vector<std::string>{stored_node});
}

TEST_CASE("dropped jobs are gone with their requests and their ids are not used again") {
  const Folder folder;
  auto store = MustOpen(folder / "jobs.db");
  for (const uint64_t id : {1, 2, 3}) {
    Change change = SampleChange(id);
    change.request_ids = {"request-" + std::to_string(id)};
    REQUIRE(store->Commit(change).ok());
  }
  const size_t events = store->Events({})->size();
  REQUIRE(store->DropJobs({1, 3, 77}).ok());
  for (int i = 0; i < 2; ++i) {
    const auto jobs = store->Jobs();
    REQUIRE(jobs.ok());
    REQUIRE(jobs->size() == 1);
    CHECK(jobs->at(0).id() == 2);
    CHECK(*store->FindRequest(jobs->at(0).owner(), "request-1") == std::nullopt);
    CHECK(*store->FindRequest(jobs->at(0).owner(), "request-2") == std::optional<uint64_t>(2));
    CHECK(*store->NextJobId(0) == 4);
    CHECK(store->Events({})->size() == events);
    store.reset();
    store = MustOpen(folder / "jobs.db");
  }
}

TEST_CASE("a refused change changes nothing and leaves no hole") {
  const Folder folder;
  auto store = MustOpen(folder / "jobs.db");
  Change first = SampleChange(1);
  REQUIRE(store->Commit(first).ok());
  const Contents before = *ContentsOf(*store);

  const auto refused = [&](Change change) {
    const absl::Status status = store->Commit(change);
    CHECK(*ContentsOf(*store) == before);
    CHECK(std::all_of(change.events.begin(), change.events.end(),
                      [](const v1::Event& event) { return event.sequence() == 0; }));
    return status;
  };
  // The request id comes last: the jobs before it are already in the transaction.
  Change taken = SampleChange(2);
  taken.jobs = {SampleJob(1), SampleJob(2), SampleJob(3)};
  taken.jobs[0].set_name("other");
  taken.request_ids = {"", "fresh", "request-1"};
  const absl::Status status = refused(taken);
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(base::MessageOf(status) == "request id 'request-1' of 'ann' is that of job 1");
  CHECK(*store->FindRequest("ann", "fresh") == std::nullopt);
  Change twice = taken;
  twice.request_ids = {"", "fresh", "fresh"};
  CHECK(refused(twice).code() == absl::StatusCode::kAlreadyExists);

  Change unnamed = SampleChange(2);
  unnamed.nodes[0].clear_name();
  CHECK(refused(unnamed).code() == absl::StatusCode::kInvalidArgument);
  Change zero = SampleChange(2);
  zero.jobs[0].set_id(0);
  CHECK(refused(zero).code() == absl::StatusCode::kInvalidArgument);
  zero.jobs[0].set_id(uint64_t{1} << 63);
  CHECK(refused(zero).code() == absl::StatusCode::kInvalidArgument);
  Change latin = SampleChange(2);
  latin.jobs[0].set_owner("J\xF6rg");
  CHECK(base::MessageOf(refused(latin)).find("not UTF-8") != std::string::npos);
  Change uneven = SampleChange(2);
  uneven.request_ids.push_back("more");
  CHECK(refused(uneven).code() == absl::StatusCode::kInvalidArgument);

  Change second = SampleChange(2);
  second.jobs[0].set_owner("bob");
  second.request_ids = {"request-1"};
  REQUIRE(store->Commit(second).ok());
  CHECK(SequencesOf(second.events) == std::vector<uint64_t>{3, 4});
}

TEST_CASE("an update keeps the request id of its job") {
  auto store = MustOpen(":memory:");
  Change change = SampleChange(1);
  REQUIRE(store->Commit(change).ok());
  Change update;
  update.jobs = {SampleJob(1)};
  REQUIRE(store->Commit(update).ok());
  CHECK(*store->FindRequest("ann", "request-1") == std::optional<uint64_t>(1));
}

TEST_CASE("an id is never given twice though its job is deleted by hand") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  auto store = MustOpen(path);
  CHECK(*store->NextJobId(0) == 1);
  CHECK(*store->NextJobId(0) == 2);
  Change change = SampleChange(2);
  REQUIRE(store->Commit(change).ok());
  change = SampleChange(9);
  change.jobs[0] = EndedJob(9);
  REQUIRE(store->Commit(change).ok());
  CHECK(*store->NextJobId(0) == 10);
  store = nullptr;
  Run(path, "PRAGMA foreign_keys = ON; DELETE FROM jobs WHERE id = 9");
  store = MustOpen(path);
  CHECK(store->Jobs()->size() == 1);
  CHECK(*store->FindRequest("ann", "request-9") == std::nullopt);
  CHECK(*store->NextJobId(0) == 10);
}

TEST_CASE("ids are given above those that somebody else has, and to the largest alone") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  auto store = MustOpen(path);
  CHECK(*store->NextJobId(41) == 42);
  CHECK(*store->NextJobId(7) == 43);
  CHECK(!store->NextJobId(UINT64_MAX).ok());
  CHECK(!store->NextJobId(INT64_MAX).ok());
  CHECK(*store->NextJobId(0) == 44);  // what could not be given spoils nothing
  store = nullptr;
  store = MustOpen(path);  // none of them was stored
  CHECK(*store->NextJobId(0) == 1);
}

TEST_CASE("events are found by job and by sequence up to a limit") {
  const Folder folder;
  auto store = MustOpen(folder / "jobs.db");
  Change change;
  for (uint64_t i = 0; i < 30; ++i) change.events.push_back(SampleEvent(i % 3, "r"));
  REQUIRE(store->Commit(change).ok());
  const auto sequences = [&](const EventQuery& query) {
    return SequencesOf(store->Events(query).value());
  };
  CHECK(sequences({27, 0, 1000}) == std::vector<uint64_t>{28, 29, 30});
  CHECK(sequences({3, 0, 2}) == std::vector<uint64_t>{4, 5});
  CHECK(sequences({3, 2, 3}) == std::vector<uint64_t>{6, 9, 12});
  CHECK(sequences({27, 1, 9}) == std::vector<uint64_t>{29});
  CHECK(sequences({30, 0, 1}).empty());
  CHECK(sequences({~uint64_t{0}, 0, 1}).empty());
  CHECK(sequences({0, ~uint64_t{0}, 1}).empty());
  CHECK(sequences({0, 0, ~size_t{0}}).size() == 30);
  CHECK(store->Events({0, 0, 0}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("old events are dropped from the oldest on and sequences go on") {
  const Folder folder;
  auto store = MustOpen(folder / "jobs.db");
  CHECK(*store->FirstSequence() == 0);
  CHECK(*store->DropEvents(1, 10) == 0);
  Change change;
  for (int i = 0; i < 10; ++i) change.events.push_back(SampleEvent(1, "one"));
  REQUIRE(store->Commit(change).ok());
  CHECK(*store->DropEvents(10, 10) == 1);
  CHECK(*store->DropEvents(4, 2) == 3);
  CHECK(*store->DropEvents(4, 100) == 7);
  CHECK(*store->FirstSequence() == 7);
  CHECK(SequencesOf(*store->Events({})) == std::vector<uint64_t>{7, 8, 9, 10});
  CHECK(absl::IsInvalidArgument(store->DropEvents(0, 100).status()));
  CHECK(*store->DropEvents(1, 100) == 10);
  // The whole file is checked.
  store = nullptr;
  store = MustOpen(folder / "jobs.db");
  Change next;
  next.events = {SampleEvent(1, "next")};
  REQUIRE(store->Commit(next).ok());
  CHECK(SequencesOf(*store->Events({})) == std::vector<uint64_t>{10, 11});
}

TEST_CASE("events of a job are found by an index without sorting") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MustOpen(path);
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  sqlite3_create_function(
      database, "row_sum", -1, SQLITE_UTF8, nullptr, [](sqlite3_context*, int, sqlite3_value**) {},
      nullptr, nullptr);
  const auto plan_of = [&](const char* sql) {
    std::string plan;
    const int result = sqlite3_exec(
        database, (std::string("EXPLAIN QUERY PLAN ") + sql).c_str(),
        [](void* text, int columns, char** values, char**) {
          *static_cast<std::string*>(text) += std::string(values[columns - 1]) + "\n";
          return 0;
        },
        &plan, nullptr);
    CHECK(result == SQLITE_OK);
    return plan;
  };
  CHECK(plan_of(kEventsOfJobSql) ==
        "SEARCH events USING INDEX events_of_job (job_id=? AND rowid>?)\n");
  CHECK(plan_of(kEventsSql) == "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)\n");
  sqlite3_close(database);
}

TEST_CASE("its files are private") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  const auto mode_of = [](const std::string& name) {
    struct stat about {};
    REQUIRE(stat(name.c_str(), &about) == 0);
    return about.st_mode & 0777;
  };
  const mode_t mask = umask(0);
  MustOpen(path);
  CHECK(folder.Names() == std::vector<std::string>{"jobs.db"});
  CHECK(mode_of(path) == 0600);
  chmod(path.c_str(), 0644);
  auto store = MustOpen(path);
  Change change = SampleChange(1);
  REQUIRE(store->Commit(change).ok());
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(path + "-wal") == 0600);
  CHECK(folder.Names().size() == 2);
  umask(mask);
}

TEST_CASE("a second opener is told so and a dead one is forgotten") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = JobStore::Open(path);
    Change change = SampleChange(1);
    const bool ok = store.ok() && (*store)->Commit(change).ok();
    if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(byte == 'y');
  const auto second = JobStore::Open(path);
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(base::MessageOf(second.status()).find("held by another process; stop that one") !=
        std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  auto store = MustOpen(path);
  CHECK(store->Jobs()->size() == 1);
  CHECK(JobStore::Open(path).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(store->Jobs()->size() == 1);
}

TEST_CASE("two threads commit while one reads without a gap") {
  const Folder folder;
  const std::string path = GENERATE(true, false) ? folder / "jobs.db" : ":memory:";
  auto store = MustOpen(path);
  constexpr int kCommits = 60;
  std::atomic<int> faults{0};
  const auto commit = [&] {
    for (int i = 0; i < kCommits; ++i) {
      const uint64_t id = store->NextJobId(0).value();
      Change change = SampleChange(id);
      faults += !store->Commit(change).ok();
      faults += change.events[1].sequence() != change.events[0].sequence() + 1;
    }
  };
  std::thread first(commit), second(commit);
  uint64_t seen = 0;
  while (seen < 4 * kCommits && faults == 0) {
    const auto events = store->Events({seen, 0, 7});
    if (!events.ok()) break;
    for (const v1::Event& event : *events) faults += event.sequence() != ++seen;
  }
  first.join();
  second.join();
  CHECK(faults == 0);
  CHECK(seen == 4 * kCommits);
  CHECK(store->Jobs()->size() == 2 * kCommits);
}

}  // namespace
}  // namespace trireme::coordinator
