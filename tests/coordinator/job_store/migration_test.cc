// Files of every version that was ever released are read; a migration is whole or has not been.
#include <sqlite3.h>

#include "coordinator/job_store/sqlite_job_store.h"
#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

// A store as the stored SQL text describes it.
void MakeFile(const std::string& path, const std::string& name) {
  const std::string sql = Slurp(TRIREME_SOURCE_DIR "/tests/coordinator/job_store/data/" + name);
  REQUIRE(!sql.empty());
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  const int result = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) FAIL(sqlite3_errmsg(database));
  sqlite3_close(database);
}

// What is in all of version_N.sql.
Contents Version1() {
  Contents contents;
  for (uint64_t id : {1, 2}) contents.jobs.push_back(SampleJob(id).SerializeAsString());
  for (uint64_t i = 1; i <= 3; ++i) {
    v1::Event event = SampleEvent(i - 1, "why");
    event.set_sequence(i);
    contents.events.push_back(event.SerializeAsString());
  }
  contents.nodes = {SampleNode("n1", "dust").SerializeAsString()};
  return contents;
}

std::vector<Migration> WithStep(const char* sql) {
  std::vector<Migration> steps(Migrations().begin(), Migrations().end());
  steps.push_back({static_cast<int64_t>(steps.size()), sql});
  return steps;
}

TEST_CASE("files of versions 1 to 3 are read") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MakeFile(path, GENERATE("version_1.sql", "version_2.sql", "version_3.sql"));
  auto store = MustOpen(path);
  CHECK(*ContentsOf(*store) == Version1());
  CHECK(store->LiveJobs()->size() == 2);
  CHECK(*store->RunParents() == std::vector<std::string>{"/runs"});
  CHECK(*store->FindRequest("ann", "request-2") == std::optional<uint64_t>(2));
  CHECK(*store->NextJobId(0) == 3);
  Change change;
  change.events = {SampleEvent(2, "more")};
  REQUIRE(store->Commit(change).ok());
  CHECK(change.events[0].sequence() == 4);
}

TEST_CASE("a store of before gets an identity once, of its own") {
  const Folder folder;
  MakeFile(folder / "a.db", "version_2.sql");
  MakeFile(folder / "b.db", "version_2.sql");
  const std::string first = MustOpen(folder / "a.db")->identity().store();
  CHECK(first.size() == 36);
  CHECK(MustOpen(folder / "a.db")->identity().store() == first);
  CHECK(MustOpen(folder / "b.db")->identity().store() != first);
}

TEST_CASE("a row that was damaged before a migration is not made good by it") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MakeFile(path, "version_3.sql");
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  // A status that ends the job: what a start would not read.
  sqlite3_exec(database,
               "PRAGMA journal_mode = WAL; UPDATE jobs SET job = CAST(job || x'42020809' AS BLOB) "
               "WHERE id = 2",
               nullptr, nullptr, nullptr);
  sqlite3_close(database);
  const std::string damaged = Slurp(path);
  for (const StoreCheck check : {StoreCheck::kAll, StoreCheck::kWhatIsRead}) {
    const absl::Status status = JobStore::Open(path, check).status();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(base::MessageOf(status).find("damaged (job 2)") != std::string::npos);
    CHECK(Slurp(path) == damaged);
  }
}

TEST_CASE("the identity of a store of version 3 stays") {
  const Folder folder;
  MakeFile(folder / "jobs.db", "version_3.sql");
  const auto store = MustOpen(folder / "jobs.db");
  CHECK(store->identity().store() == "9964fa2f-976b-4439-ae1a-ea51f4dc3e16");
  CHECK(store->identity().At(0).epoch() == 1);
}

TEST_CASE("a step is taken once and the older program is then refused by name") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MakeFile(path, "version_1.sql");
  const auto steps = WithStep("CREATE TABLE notes (text TEXT NOT NULL) STRICT");
  for (int i = 0; i < 2; ++i) {
    auto store = OpenSqliteStore(path, steps);
    REQUIRE(store.ok());
    CHECK(*ContentsOf(**store) == Version1());
  }
  const absl::Status status = JobStore::Open(path).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(base::MessageOf(status).find(
            ": is a job store of version 5, this program knows up to 4; install the newer") !=
        std::string::npos);
  // A new store takes all steps at once.
  CHECK(OpenSqliteStore(folder / "new.db", steps).ok());
  CHECK(OpenSqliteStore(":memory:", steps).ok());
}

TEST_CASE("a step that fails leaves the file at its version with all its rows") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MakeFile(path, "version_1.sql");
  // Well on an empty store; here the last statement meets ids that are taken.
  const auto steps = WithStep(
      "DELETE FROM events; DELETE FROM requests; CREATE TABLE notes (text TEXT) STRICT;"
      "INSERT INTO jobs SELECT * FROM jobs");
  const absl::Status status = OpenSqliteStore(path, steps).status();
  CHECK(!status.ok());
  CHECK(base::MessageOf(status).find("migration of the job store from version 4 to 5: " + path) ==
        0);
  CHECK(MustRead(path) == Version1());
}

TEST_CASE("a file with another schema than its version's is refused") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  MakeFile(path, "version_1.sql");
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  sqlite3_exec(database, "DROP INDEX events_of_job", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  const absl::Status status = JobStore::Open(path).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(base::MessageOf(status).find("schema") != std::string::npos);
}

}  // namespace
}  // namespace trireme::coordinator
