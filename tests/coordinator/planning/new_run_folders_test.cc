// Numbers of new jobs, whatever else lies in the jobs folder.
#include "coordinator/daemon/new_run_folders.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/job_store/job_store.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

class Jobs {
 public:
  Jobs() {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    Restart();
  }
  ~Jobs() { fs::remove_all(folder_); }
  std::string path() const { return folder_ + "/jobs"; }
  void Make(const std::string& name) const { fs::create_directories(path() + "/" + name); }
  void MakeOfJob(const std::string& name, uint64_t job) const {
    Make(name);
    std::ofstream(path() + "/" + name + "/run.json")
        << "{\"version\": 1, \"job\": " << job << ", \"store\": \"s\", \"epoch\": 1}";
  }
  // The store is opened anew, as by the next daemon.
  void Restart() {
    folders_.reset();
    store_.reset();
    auto opened = JobStore::Open(folder_ + "/jobs.db");
    REQUIRE(opened.ok());
    store_ = *std::move(opened);
    folders_ = std::make_unique<NewRunFolders>(store_, path());
  }
  uint64_t Reserve() const {
    const absl::StatusOr<uint64_t> id = folders_->Reserve();
    INFO(id.status());
    REQUIRE(id.ok());
    CHECK(fs::is_directory(path() + "/" + std::to_string(*id)));
    return *id;
  }
  // As Reserve, and the job is stored.
  uint64_t Submit() const {
    Change change;
    change.jobs.emplace_back().set_id(Reserve());
    REQUIRE(store_->Commit(change).ok());
    return change.jobs[0].id();
  }
  const NewRunFolders& folders() const { return *folders_; }
  absl::StatusOr<uint64_t> TryReserve() const { return folders_->Reserve(); }

 private:
  std::string folder_ = "/tmp/trireme-new-run-XXXXXX";
  std::shared_ptr<JobStore> store_;
  std::unique_ptr<NewRunFolders> folders_;
};

TEST_CASE("new run folders: the newest of the job folders counts, whatever lies beside them") {
  const Jobs jobs;
  CHECK(*NewestJobFolder(jobs.path(), 1) == 0);
  jobs.Make("");
  CHECK(*NewestJobFolder(jobs.path(), 1) == 0);
  for (const char* name : {"3", "20", "x99", "100x", "-5", "007"}) jobs.Make(name);
  CHECK(*NewestJobFolder(jobs.path(), 1) == 20);
  CHECK(*NewestJobFolder(jobs.path(), 30) == 20);
}

TEST_CASE("new run folders: numbers begin above those of jobs that are there, of any store") {
  Jobs jobs;
  CHECK(jobs.Reserve() == 1);  // makes the jobs folder, and alone looks into it
  struct stat folder {};
  REQUIRE(stat(jobs.path().c_str(), &folder) == 0);
  CHECK((folder.st_mode & 0777) == 0700);
  jobs.Make("7");
  CHECK(jobs.Submit() == 2);
  jobs.Restart();
  CHECK(jobs.Submit() == 8);
  CHECK(jobs.Submit() == 9);
  // Of another daemon meanwhile.
  jobs.Make("10");
  CHECK(jobs.Submit() == 11);
  const uint64_t unused = jobs.Reserve();
  jobs.folders().Release(unused);
  CHECK(!fs::exists(jobs.path() + "/" + std::to_string(unused)));
  // Far from ours, but some store's.
  jobs.MakeOfJob("5000000", 5000000);
  jobs.Restart();
  CHECK(jobs.Submit() == 5000001);
}

TEST_CASE("new run folders: a folder with a large number as its name spoils no numbers") {
  Jobs jobs;
  CHECK(jobs.Submit() == 1);
  jobs.Make("20261126");
  jobs.Make("9223372036854775807");
  jobs.Make("9999999999999999999");
  jobs.MakeOfJob("20261127", 1);  // a copy of a job's
  jobs.Restart();
  CHECK(jobs.Submit() == 2);
  // Nor where many are passed over, so that the folder is listed again.
  for (int number = 3; number < 250; ++number) jobs.Make(std::to_string(number));
  CHECK(jobs.Submit() == 250);
  jobs.Restart();
  CHECK(jobs.Submit() == 251);
}

TEST_CASE("new run folders: a number that a folder has spoilt is the store's no longer") {
  Jobs jobs;
  jobs.MakeOfJob("5000000", 5000000);
  CHECK(jobs.Reserve() == 5000001);
  fs::remove_all(jobs.path());
  jobs.Restart();
  CHECK(jobs.Submit() == 1);
}

TEST_CASE("new run folders: a jobs folder that cannot be made is named with its option") {
  const Jobs jobs;
  std::ofstream(jobs.path()) << "a file";
  const absl::Status refused = jobs.TryReserve().status();
  INFO(refused);
  CHECK(absl::IsUnavailable(refused));
  CHECK(refused.message().find(jobs.path()) != std::string::npos);
  const absl::Status made = MakePrivateFolder(jobs.path() + "/deeper", "--jobs-dir");
  CHECK(made.message().find("choose another by --jobs-dir") != std::string::npos);
}

}  // namespace
}  // namespace trireme::coordinator
