// What is no store, or no longer what was written, is DataLoss with its cause: never a crash, never
// other words than those that were stored.
#include <sqlite3.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <random>

#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHead = 100;  // of the file; SQLite's own

struct Outcome {
  absl::Status status;
  bool same = false;
};

// Opens and reads; if that is well, commits, which may fail, and closes.
Outcome Probe(const std::string& path, const Contents& written) {
  auto store = JobStore::Open(path);
  if (!store.ok()) return {store.status()};
  const auto contents = ContentsOf(**store);
  if (!contents.ok()) return {contents.status()};
  bool same = *contents == written;
  for (uint64_t id = 1; id <= written.jobs.size(); ++id) {
    const auto request = (*store)->FindRequest("ann", "request-" + std::to_string(id));
    same = same && request.ok() && *request == id;
    const auto events = (*store)->Events({0, id, 1000});
    same = same && events.ok() && events->size() == 5;
  }
  same = same && *(*store)->NextJobId(0) > written.jobs.size();
  Change change;
  change.jobs = {SampleJob(77)};
  change.events = {SampleEvent(77, "after")};
  (*store)->Commit(change).IgnoreError();
  return {absl::OkStatus(), same};
}

std::string SampleFile(const std::string& path) {
  auto store = MustOpen(path);
  for (uint64_t id = 1; id <= 40; ++id) {
    Change change;
    change.jobs = {SampleJob(id)};
    change.request_ids = {"request-" + std::to_string(id)};
    for (int i = 0; i < 5; ++i) change.events.push_back(SampleEvent(id, "event"));
    change.nodes = {SampleNode("node" + std::to_string(id), "dust")};
    REQUIRE(store->Commit(change).ok());
  }
  store = nullptr;
  return Slurp(path);
}

TEST_CASE("a changed file is refused or says what was written") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  const std::string good = SampleFile(path);
  const Contents written = MustRead(path);
  REQUIRE(good.size() > 8 * kPage);
  std::mt19937_64 random(3);
  const auto at = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const std::function<void(std::string&)> kinds[] = {
      [&](std::string& file) { file[at(file.size())] ^= static_cast<char>(1 << at(8)); },
      [&](std::string& file) { file[at(file.size())] = static_cast<char>(random()); },
      [&](std::string& file) { file.resize(at(file.size())); },
      [&](std::string& file) { file.resize(kPage * at(file.size() / kPage)); },
      [&](std::string& file) { file.replace(kPage * at(file.size() / kPage), kPage, kPage, 0); },
      [&](std::string& file) {
        const std::string page = file.substr(kPage * at(file.size() / kPage), kPage);
        file.replace(kPage * at(file.size() / kPage), kPage, page);
      },
      // Heads of pages: kind, number of cells, pointers.
      [&](std::string& file) {
        file[kPage * (1 + at(file.size() / kPage - 1)) + at(16)] ^= static_cast<char>(1 << at(8));
      },
  };
  std::map<std::string, int> outcomes;
  for (int i = 0; i < 560; ++i) {
    std::string file = good;
    const size_t kind = static_cast<size_t>(i) % std::size(kinds);
    kinds[kind](file);
    Spill(path, file);
    const Outcome outcome = Probe(path, written);
    CAPTURE(i, kind, outcome.status.ToString());
    const bool head_changed = file.compare(0, kHead, good, 0, kHead) != 0;
    if (outcome.status.ok()) {
      CHECK(outcome.same);
    } else if (!head_changed || file.size() < good.size()) {
      CHECK(outcome.status.code() == absl::StatusCode::kDataLoss);
      CHECK(Slurp(path) == file);
    }
    ++outcomes[outcome.status.ok() ? "read" : absl::StatusCodeToString(outcome.status.code())];
    unlink((path + "-wal").c_str());
  }
  CHECK(outcomes["DATA_LOSS"] > 300);
  CHECK(outcomes["read"] < 150);
}

TEST_CASE("a changed head is refused or says what was written") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  const std::string good = SampleFile(path);
  const Contents written = MustRead(path);
  for (size_t i = 0; i < kHead; ++i) {
    for (const int change : {1, 0x40, 0xFF}) {
      std::string file = good;
      file[i] = static_cast<char>(file[i] ^ change);
      Spill(path, file);
      const Outcome outcome = Probe(path, written);
      CAPTURE(i, change, outcome.status.ToString());
      CHECK((outcome.same || outcome.status.code() == absl::StatusCode::kDataLoss ||
             outcome.status.code() == absl::StatusCode::kFailedPrecondition ||
             outcome.status.code() == absl::StatusCode::kPermissionDenied));
      unlink((path + "-wal").c_str());
      unlink((path + "-journal").c_str());
    }
  }
}

TEST_CASE("what is no store is refused with its cause and stays") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  const auto refusal = [&](const std::string& bytes) {
    Spill(path, bytes);
    const absl::Status status = JobStore::Open(path).status();
    CHECK(Slurp(path) == bytes);
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    return base::MessageOf(status);
  };
  CHECK(refusal("").find("is no job store") != std::string::npos);
  CHECK(refusal("a letter to somebody").find("is no job store") != std::string::npos);
  CHECK(refusal(std::string(8192, '\0')).find("is no job store") != std::string::npos);
  unlink(path.c_str());
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  sqlite3_exec(database, "CREATE TABLE letters (text); PRAGMA user_version = 1", nullptr, nullptr,
               nullptr);
  sqlite3_close(database);
  CHECK(refusal(Slurp(path)).find("(application_id 0, version 1)") != std::string::npos);
}

TEST_CASE("a log without its store is not thrown away") {
  const Folder folder;
  const std::string path = folder / "jobs.db";
  Spill(path + "-wal", "something");
  const absl::Status status = JobStore::Open(path).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(base::MessageOf(status).find("is missing, but its log") != std::string::npos);
  CHECK(folder.Names() == std::vector<std::string>{"jobs.db-wal"});
}

TEST_CASE("paths that cannot be stores are named") {
  const Folder folder;
  CHECK(JobStore::Open("").status().code() == absl::StatusCode::kInvalidArgument);
  const absl::Status none = JobStore::Open(folder / "none/jobs.db").status();
  CHECK(none.code() == absl::StatusCode::kNotFound);
  CHECK(base::MessageOf(none).find("none/jobs.db") != std::string::npos);
  REQUIRE(std::filesystem::create_directory(folder / "sub"));
  CHECK(JobStore::Open(folder / "sub").status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace trireme::coordinator
