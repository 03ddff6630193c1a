// What cannot be removed takes neither the turn nor the room of what can.
#include "coordinator/retention/stuck.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "coordinator/retention/retention.h"
#include "tests/coordinator/retention/run_folders.h"

namespace trireme::coordinator {
namespace {

// Refuses to remove some files, to root as well.
class Disk {
 public:
  // What is in `folder`, at any depth.
  void Refuse(const std::string& folder, int cause = EACCES) { causes_[folder + "/"] = cause; }
  void RefuseFile(const std::string& path) { causes_[path] = EPERM; }
  void Mend() { causes_.clear(); }
  int failed() const { return failed_; }
  size_t files_removed() const { return files_removed_; }
  void Serve(RetentionOptions& options) {
    options.unlink = [this](int folder, const char* name, int flags) {
      const std::string path = FolderOf(folder) + "/" + name;
      for (const auto& [refused, cause] : causes_) {
        const bool is =
            refused.back() == '/' ? path.compare(0, refused.size(), refused) == 0 : path == refused;
        if (!is) continue;
        ++failed_;
        errno = cause;
        return -1;
      }
      const int done = unlinkat(folder, name, flags);
      files_removed_ += done == 0 && flags == 0 ? 1 : 0;
      return done;
    };
  }

 private:
  static std::string FolderOf(int descriptor) {
    return fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
  }
  std::map<std::string, int> causes_;
  int failed_ = 0;
  size_t files_removed_ = 0;
};

// What the log says meanwhile.
template <typename Act>
std::string SaidWhile(const Act& act) {
  std::ostringstream said;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(said)));
  act();
  spdlog::set_default_logger(before);
  return said.str();
}

size_t Times(const std::string& text, const std::string& words) {
  size_t times = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++times;
  }
  return times;
}

// Old run folders 1 to `many`, which go whole.
RetentionOptions OldRuns(House& house, uint64_t many) {
  for (uint64_t id = 1; id <= many; ++id) {
    house.Run(id, 40);
    house.Know(id, v1::JOB_COMPLETED, 40);
  }
  RetentionOptions options = house.Options();
  options.checkpoints = true;
  return options;
}

}  // namespace

TEST_CASE("retention: tries that fail take nothing of the files of a look") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 2);
  options.most_files = 20;
  disk.Serve(options);
  disk.Refuse(house.path("1"), GENERATE(EACCES, EPERM, EBUSY));
  for (int file = 0; file < 30; ++file) {
    house.Write("1/attempts/1/logs/rank-" + std::to_string(file) + ".log", 40);
  }
  Retention retention = house.Of(options);
  for (int look = 0; look < 5; ++look) retention.Look(kNowNs);
  CHECK(disk.failed() > 0);
  CHECK(IsWhole(house.path("1")));
  CHECK_FALSE(fs::exists(house.path("2")));
}

TEST_CASE("retention: the room of what cannot be removed is made by others") {
  House house;
  Disk disk;
  for (uint64_t id = 1; id <= 8; ++id) Large(house, id, 40 - static_cast<double>(id), kMiB);
  RetentionOptions options = AtMost(house, 15 * kMiB / 2);
  disk.Serve(options);
  disk.Refuse(house.path("1"));
  // Also where it takes days to measure them all, in which it is tried again.
  const bool slow = GENERATE(false, true);
  if (slow) options.most_files = 20;
  Retention retention = house.Of(options);
  for (int look = 0; look < 60; ++look) retention.Look(kNowNs + (slow ? look * kDayNs / 4 : 0));
  CHECK(IsWhole(house.path("1")));
  CHECK_FALSE(IsWhole(house.path("2")));
  for (const char* run : {"3", "8"}) CHECK(IsWhole(house.path(run)));
}

// Or else others went for what is not there.
TEST_CASE("retention: what is left of it takes room, not what has gone of it") {
  House house;
  Disk disk;
  for (uint64_t id = 1; id <= 8; ++id) Large(house, id, 40 - static_cast<double>(id), kMiB);
  RetentionOptions options = AtMost(house, 15 * kMiB / 2);
  // What is measured counts for several looks, in which the first one fails.
  options.most_files = 20;
  disk.Serve(options);
  disk.Refuse(house.path("1/timeline"));
  Retention retention = house.Of(options);
  for (int look = 0; look < 20; ++look) retention.Look(kNowNs);
  CHECK_FALSE(fs::exists(house.path("1/attempts")));
  for (const char* run : {"2", "3", "8"}) CHECK(IsWhole(house.path(run)));
}

TEST_CASE("retention: old logs that cannot be removed are room of their run folder") {
  House house;
  Disk disk;
  Large(house, 1, 20, kMiB);
  Large(house, 2, 10, kMiB);
  house.Know(2, v1::JOB_COMPLETED, 10).mutable_status()->set_attempt(3);
  const std::string logs = Attempt(house, "2", "2", 35, 2 * kMiB);
  RetentionOptions options = AtMost(house, 3 * kMiB);
  options.log_days = 30;
  disk.Serve(options);
  disk.Refuse(logs);
  Retention retention = house.Of(options);
  for (int look = 0; look < 5; ++look) retention.Look(kNowNs);
  CHECK(HasLogs(logs));
  CHECK_FALSE(IsWhole(house.path("1")));
}

TEST_CASE("retention: what cannot be removed takes no place of the folders of a look") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 4);
  options.most_folders = 2;
  disk.Serve(options);
  for (const char* run : {"1", "2", "3"}) disk.Refuse(house.path(run));
  Retention retention = house.Of(options);
  for (int look = 0; look < 5; ++look) retention.Look(kNowNs);
  CHECK_FALSE(fs::exists(house.path("4")));
}

TEST_CASE("retention: what could not be removed is tried again a day later") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 1);
  disk.Serve(options);
  disk.Refuse(house.path("1"));
  Retention retention = house.Of(options);
  retention.Look(kNowNs);
  retention.Look(kNowNs);
  disk.Mend();
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs + kDayNs - 1);
  CHECK(fs::exists(house.path("1")));
  // Also when the clock has been set back.
  const int64_t then = GENERATE(kNowNs + kDayNs, kNowNs - 5 * kDayNs);
  for (int look = 0; look < 2; ++look) retention.Look(then);
  CHECK_FALSE(fs::exists(house.path("1")));
}

// Looks may be a day apart: a machine sleeps, or so much is stuck that a day's looks try it all.
TEST_CASE("retention: what is tried again leaves places for what never failed") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 7);
  options.most_folders = 4;
  disk.Serve(options);
  for (const char* run : {"1", "2", "3", "4", "5", "6"}) disk.Refuse(house.path(run));
  Retention retention = house.Of(options);
  for (int day = 0; day < 12; ++day) retention.Look(kNowNs + day * kDayNs);
  CHECK_FALSE(fs::exists(house.path("7")));
  // Its turn comes.
  disk.Mend();
  for (int day = 12; day < 24; ++day) retention.Look(kNowNs + day * kDayNs);
  CHECK(In(house.path("")).empty());
}

TEST_CASE("retention: tries that fail are bounded, and a folder that refuses costs one") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 1);
  options.most_failed = 7;
  for (int file = 0; file < 30; ++file) {
    house.Write("1/attempts/1/logs/rank-" + std::to_string(file) + ".log", 40);
  }
  disk.Serve(options);
  SECTION("each file for itself") {
    disk.Refuse(house.path("1/attempts/1/logs"), EPERM);
    Retention retention = house.Of(options);
    for (int look = 0; look < 4; ++look) retention.Look(kNowNs);
    CHECK(disk.failed() == 7);
  }
  SECTION("the folder") {
    disk.Refuse(house.path("1/attempts/1/logs"), GENERATE(EACCES, EROFS));
    Retention retention = house.Of(options);
    for (int look = 0; look < 4; ++look) retention.Look(kNowNs);
    CHECK(disk.failed() == 1);
    CHECK(In(house.path("1")) == std::set<std::string>{"attempts", "run.json"});
    CHECK(In(house.path("1/attempts/1")) == std::set<std::string>{"logs"});
  }
}

TEST_CASE("retention: what is cut short goes on, also where some of it cannot be removed") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 1);
  options.most_files = 4;
  for (int file = 0; file < 30; ++file) {
    const std::string name = "/" + std::to_string(file);
    house.Write("1/files" + name, 40);
    if (file % 3 == 0) disk.RefuseFile(house.path("1/files") + name);
  }
  disk.Serve(options);
  Retention retention = house.Of(options);
  for (int look = 0; look < 20; ++look) {
    const size_t before = disk.files_removed();
    retention.Look(kNowNs);
    CHECK(disk.files_removed() - before <= options.most_files);
  }
  CHECK(In(house.path("1/files")).size() == 10);
  CHECK(In(house.path("1")) == std::set<std::string>{"files", "run.json"});
}

TEST_CASE("retention: a link in a path takes no place of the folders of a look") {
  House house;
  RetentionOptions options = AtMost(house, 0);
  options.log_days = 30;
  options.most_folders = 1;
  for (const uint64_t id : {1, 2}) {
    house.Run(id, 40);
    house.Know(id, v1::JOB_RUNNING, 40).mutable_status()->set_attempt(2);
  }
  const std::string theirs = Attempt(house, "elsewhere", "1", 40, 2);
  fs::remove_all(house.path("1/attempts"));
  fs::create_directory_symlink(house.path("elsewhere/attempts"), house.path("1/attempts"));
  Retention retention = house.Of(options);
  for (int look = 0; look < 5; ++look) retention.Look(kNowNs);
  CHECK(HasLogs(theirs));
  CHECK_FALSE(fs::exists(house.path("2/attempts/1/logs")));
}

TEST_CASE("retention: what cannot be removed is told of once, with its cause") {
  House house;
  Disk disk;
  RetentionOptions options = OldRuns(house, 1);
  disk.Serve(options);
  disk.Refuse(house.path("1/timeline"));
  // Names are the ranks' to choose.
  fs::rename(house.path("1/timeline/rank-0.steps"), house.path("1/timeline/a\nb"));
  Retention retention = house.Of(options);
  const std::string said = SaidWhile([&] {
    for (int look = 0; look < 6; ++look) retention.Look(kNowNs);
  });
  CAPTURE(said);
  CHECK(Times(said, "not all of") == 1);
  CHECK(Times(said, house.path("1/timeline/a\\nb") + ": Permission denied") == 1);
  CHECK(Times(said, "chown") == 1);
  CHECK(Times(said, "at the next look") == 1);
  CHECK_FALSE(IsWhole(house.path("1")));
}

TEST_CASE("stuck: so many are remembered, those that were tried last") {
  Stuck stuck(3);
  for (const char* path : {"a", "b", "b", "c", "d"}) stuck.Add(path, kNowNs);
  CHECK_FALSE(stuck.Contains("a"));
  for (const char* path : {"b", "c", "d"}) CHECK(stuck.Contains(path));
  stuck.Forget(2, kNowNs + Stuck::kLetBeNs - 1);
  CHECK(stuck.Contains("b"));
  stuck.Forget(2, kNowNs + Stuck::kLetBeNs);
  CHECK_FALSE(stuck.Contains("b"));
  CHECK_FALSE(stuck.Contains("c"));
  CHECK(stuck.Contains("d"));
}

}  // namespace trireme::coordinator
