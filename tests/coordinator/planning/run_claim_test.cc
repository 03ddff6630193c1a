// Of all who could mean a run folder, one has it.
#include "coordinator/daemon/run_claim.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/base/exit_code.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

class JobsFolder {
 public:
  JobsFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~JobsFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  v1::Job Job(uint64_t id, uint32_t attempt = 1) const {
    v1::Job job;
    job.set_id(id);
    job.set_run_folder(path_ + "/" + std::to_string(id));
    job.mutable_status()->set_attempt(attempt);
    return job;
  }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name) << text;
  }

 private:
  std::string path_ = "/tmp/trireme-run-claim-XXXXXX";
};

v1::StorePosition Store(const std::string& name, uint64_t epoch = 1) {
  v1::StorePosition position;
  position.set_store(name);
  position.set_epoch(epoch);
  return position;
}

void CheckRefused(const absl::Status& status, const std::string& why) {
  INFO(status);
  CHECK(base::ExitCodeOf(status) == base::kBadInput);  // for good
  CHECK(status.message().find(why) != std::string::npos);
}

TEST_CASE("run claim: a folder is its job's, also in later epochs, and nobody else's") {
  const JobsFolder jobs;
  CHECK(ClaimRunFolder(jobs.Job(7), Store("a")).ok());
  CHECK(ClaimRunFolder(jobs.Job(7, 3), Store("a", 9)).ok());
  CheckRefused(ClaimRunFolder(jobs.Job(7), Store("b")), "is that of job 7 of the store a");
  v1::Job other = jobs.Job(8);
  other.set_run_folder(jobs.Job(7).run_folder());
  CheckRefused(ClaimRunFolder(other, Store("a")), "is that of job 7");
  CHECK(fs::directory_iterator(jobs.path() + "/7") != fs::directory_iterator());
  for (const auto& entry : fs::directory_iterator(jobs.path() + "/7")) {
    CHECK(entry.path().filename() == "run.json");
  }
}

TEST_CASE("run claim: a folder of before is its job's if the job has had attempts") {
  const JobsFolder jobs;
  jobs.Write("7/attempts/1/exit", "{\"exit_code\": 0}");
  CheckRefused(ClaimRunFolder(jobs.Job(7, 1), Store("a")), "attempts of another job");
  CHECK(!fs::exists(jobs.path() + "/7/run.json"));
  CHECK(ClaimRunFolder(jobs.Job(7, 2), Store("a")).ok());
  CHECK(fs::exists(jobs.path() + "/7/run.json"));
}

TEST_CASE("run claim: a file that does not say whose it is, is somebody's") {
  const JobsFolder jobs;
  const std::string text = GENERATE("", "{", "{\"job\": \"7\", \"store\": \"a\"}", "[]");
  jobs.Write("7/run.json", text);
  CheckRefused(ClaimRunFolder(jobs.Job(7), Store("a")), "does not say whose");
}

TEST_CASE("run claim: what a disk refuses is tried again") {
  const JobsFolder jobs;
  jobs.Write("7", "a file");
  CHECK(base::ExitCodeOf(ClaimRunFolder(jobs.Job(7), Store("a"))) != base::kBadInput);
}

TEST_CASE("run claim: a daemon that may open no more files finds no folder to be another's") {
  const JobsFolder jobs;
  REQUIRE(ClaimRunFolder(jobs.Job(7), Store("a")).ok());
  jobs.Write("7/attempts/1/exit", "{\"exit_code\": 137}");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const absl::Status claimed = ClaimRunFolder(jobs.Job(7), Store("a"));
  const absl::Status found = FindUnknownAttempt(jobs.Job(7), "a").status();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  INFO(claimed << "\n" << found);
  CHECK(absl::IsUnavailable(claimed));
  CHECK(absl::IsUnavailable(found));
}

TEST_CASE("run claim: an attempt as new as the one that is planned is unknown") {
  const JobsFolder jobs;
  CHECK(!FindUnknownAttempt(jobs.Job(7), "a")->has_value());
  jobs.Write("7/attempts/2/attempt.json",
             R"({"version": 1, "job": 7, "attempt": 2, "store": "a", "epoch": 3, "opening": 4,
                 "nodes": ["n1", "n2"]})");
  CHECK(!FindUnknownAttempt(jobs.Job(7, 3), "a")->has_value());
  for (const uint32_t planned : {1, 2}) {
    const auto found = FindUnknownAttempt(jobs.Job(7, planned), "a");
    REQUIRE(found.ok());
    REQUIRE(found->has_value());
    CHECK((*found)->number == 2);
    CHECK(!(*found)->over);
    CHECK((*found)->nodes == std::vector<std::string>{"n1", "n2"});
  }
  const char* verdict = GENERATE("exit", "guard.json");
  jobs.Write(std::string("7/attempts/2/") + verdict,
             verdict == std::string("exit") ? "{\"exit_code\": 137}" : "");
  const auto over = FindUnknownAttempt(jobs.Job(7, 2), "a");
  CHECK((*over)->over);
  CHECK(!(*over)->done);
  // Done it is only by an attempt of this very job.
  jobs.Write("7/attempts/2/exit", "{\"exit_code\": 0}");
  CHECK((*FindUnknownAttempt(jobs.Job(7, 2), "a"))->done);
  CHECK(!(*FindUnknownAttempt(jobs.Job(7, 2), "b"))->done);
  v1::Job other = jobs.Job(8, 2);
  other.set_run_folder(jobs.Job(7).run_folder());
  CHECK(!(*FindUnknownAttempt(other, "a"))->done);
}

TEST_CASE("run claim: a folder of attempts that cannot be read hides none") {
  const JobsFolder jobs;
  jobs.Write("7/attempts", "no folder");
  const absl::Status status = FindUnknownAttempt(jobs.Job(7), "a").status();
  INFO(status);
  CHECK(!status.ok());
  CHECK(base::ExitCodeOf(status) != base::kBadInput);  // tried again
}

TEST_CASE("run claim: numbers that no attempt has are refused") {
  const JobsFolder jobs;
  fs::create_directories(jobs.path() + "/7/attempts/4294967295");
  CheckRefused(FindUnknownAttempt(jobs.Job(7), "a").status(), "no attempt has such a number");
}

}  // namespace
}  // namespace trireme::coordinator
