// What is removed by age, and above all what is not.
#include "coordinator/retention/retention.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "tests/coordinator/retention/run_folders.h"

namespace trireme::coordinator {

TEST_CASE("retention: what is old goes at the second look, checkpoints stay") {
  House house;
  const std::string old = house.Run(1, 40);
  const std::string young = house.Run(2, 20);
  const std::string forgotten = house.Run(3, 40);
  house.Know(1, v1::JOB_FAILED, 31);
  house.Know(2, v1::JOB_COMPLETED, 20);
  Retention retention = house.Of(house.Options());
  CHECK(retention.Look(kNowNs) == kNowNs + kDayNs / 24);
  CHECK(fs::exists(old + "/metrics.jsonl"));
  retention.Look(kNowNs);
  const std::set<std::string> left{"run.json", "job.yaml", "checkpoints"};
  CHECK(In(old) == left);
  CHECK(In(forgotten) == left);
  CHECK(fs::exists(old + "/checkpoints/step-1/weights"));
  CHECK(fs::exists(young + "/attempts/1/logs/rank-0.log"));

  RetentionOptions all = house.Options();
  all.checkpoints = true;
  Retention thorough = house.Of(all);
  thorough.Look(kNowNs);
  CHECK(In(old) == left);
  thorough.Look(kNowNs);
  CHECK_FALSE(fs::exists(old));
  CHECK_FALSE(fs::exists(forgotten));
  CHECK(fs::exists(young));
}

// As POSIX names it; what Linux has built in says EISDIR.
TEST_CASE("retention: folders go also where their unlink is refused by EPERM") {
  House house;
  const std::string old = house.Run(1, 40);
  house.Know(1, v1::JOB_COMPLETED, 40);
  RetentionOptions options = house.Options();
  options.checkpoints = true;
  options.unlink = [](int folder, const char* name, int flags) {
    const int done = unlinkat(folder, name, flags);
    if (done != 0 && errno == EISDIR) errno = EPERM;
    return done;
  };
  Retention retention = house.Of(options);
  for (int look = 0; look < 2; ++look) retention.Look(kNowNs);
  CHECK_FALSE(fs::exists(old));
}

TEST_CASE("retention: nothing of others, nothing that may run, nothing without being asked") {
  House house;
  RetentionOptions options = house.Options();
  options.checkpoints = true;
  options.log_days = 30;
  const auto kept = [&](const std::string& run) {
    Retention retention = house.Of(options);
    for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
    return fs::exists(run + "/metrics.jsonl") && fs::exists(run + "/attempts/1/logs/rank-0.log");
  };
  CHECK(kept(house.Run(1, 40, "theirs")));
  // Nobody's, or another number's.
  fs::remove(house.Run(2, 40) + "/run.json");
  CHECK(kept(house.path("2")));
  house.Write("3/run.json", 40, R"({"job": 4, "store": "ours"})");
  house.Write("3/metrics.jsonl", 40);
  house.Write("3/attempts/1/logs/rank-0.log", 40);
  CHECK(kept(house.path("3")));
  // Paused, running, or with an attempt that may run.
  const std::string job = house.Run(5, 400);
  for (const v1::JobState state :
       {v1::JOB_PENDING, v1::JOB_RUNNING, v1::JOB_PAUSED, v1::JOB_RECOVERING}) {
    house.Know(5, state, 400);
    CHECK(kept(job));
  }
  house.Know(5, v1::JOB_CANCELLED, 400).mutable_status()->set_attempt_live(true);
  CHECK(kept(job));
  // Of a job that lies elsewhere.
  house.Know(5, v1::JOB_CANCELLED, 400).set_run_folder("/elsewhere/5");
  CHECK(kept(job));
  // Not known, as after a backup was put back: without a verdict, or not silent for long enough.
  house.Forget(5);
  house.Write("5/attempts/2/logs/rank-0.log", 400);
  CHECK(kept(job));
  house.Write("5/attempts/2/exit", 400, kVerdict);
  house.Write("5/attempts/2/logs/rank-0.log", 2);
  house.Age(house.path("5"), 400);
  CHECK(kept(job));
  house.Write("5/attempts/2/logs/rank-0.log", 400);
  CHECK_FALSE(kept(job));
  // What has no number.
  house.Write("mine/run.json", 400, R"({"job": 5, "store": "ours"})");
  house.Write("mine/metrics.jsonl", 400);
  house.Write("mine/attempts/1/logs/rank-0.log", 400);
  CHECK(kept(house.path("mine")));
  options.run_days = 0;
  CHECK(kept(house.Run(6, 4000)));
}

TEST_CASE("retention: links lead nowhere, what is named goes only if it is still to go") {
  House house;
  const std::string run = house.Run(1, 40);
  house.Write("outside/file", 40);
  house.Know(1, v1::JOB_COMPLETED, 40);
  fs::create_directory_symlink(house.path("outside"), run + "/attempts/link");
  fs::create_directory_symlink(house.path("outside"), run + "/logs");
  RetentionOptions options = house.Options();
  options.checkpoints = true;
  Retention retention = house.Of(options);
  retention.Look(kNowNs);
  // Taken by somebody else meanwhile.
  house.Write("1/run.json", 40, R"({"job": 1, "store": "theirs"})");
  retention.Look(kNowNs);
  CHECK(fs::exists(run + "/metrics.jsonl"));
  house.Write("1/run.json", 40, R"({"job": 1, "store": "ours"})");
  retention.Look(kNowNs);
  CHECK(fs::exists(run + "/metrics.jsonl"));
  retention.Look(kNowNs);
  CHECK_FALSE(fs::exists(run));
  CHECK(fs::exists(house.path("outside/file")));
}

TEST_CASE("retention: a look is bounded, and a removal that was cut short goes on") {
  House house;
  for (uint64_t id = 1; id <= 5; ++id) {
    house.Run(id, 40);
    house.Know(id, v1::JOB_COMPLETED, 40);
  }
  RetentionOptions options = house.Options();
  options.checkpoints = true;
  options.most_folders = 2;
  options.most_files = 7;
  Retention retention = house.Of(options);
  retention.Look(kNowNs);
  retention.Look(kNowNs);
  CHECK(fs::exists(house.path("1/run.json")));
  CHECK(fs::exists(house.path("2/metrics.jsonl")));
  int looks = 2;
  for (; looks < 100 && !In(house.path("")).empty(); ++looks) retention.Look(kNowNs);
  CHECK(looks > 10);
  CHECK(In(house.path("")).empty());

  house.Run(9, 40);
  Retention stopped = house.Of(options);
  stopped.Look(kNowNs);
  stopped.Stop();
  stopped.Look(kNowNs);
  CHECK(fs::exists(house.path("9/metrics.jsonl")));
}

TEST_CASE("retention: when run folders take too much those that ended first go, named before") {
  House house;
  const std::string first = Large(house, 3, 30, kMiB);  // not the first by number
  const std::string second = Large(house, 1, 20, kMiB);
  const std::string third = Large(house, 2, 10, kMiB);
  const std::string runs = house.Run(4, 400);
  house.Write("4/attempts/1/logs/large.log", 1, std::string(9 * kMiB, 'x'));
  house.Know(4, v1::JOB_RUNNING, 400);
  const std::string theirs = house.Run(5, 400, "theirs");
  house.Write("5/attempts/1/logs/large.log", 400, std::string(9 * kMiB, 'x'));
  // Three are more than two and a half; two are not, nor do the others count.
  Retention retention = house.Of(AtMost(house, 5 * kMiB / 2));
  CHECK(retention.Look(kNowNs) == kNowNs + kDayNs / 24);
  CHECK(IsWhole(first));
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(In(first) == std::set<std::string>{"run.json", "job.yaml", "checkpoints"});
  for (const std::string& run : {second, third, runs, theirs}) CHECK(IsWhole(run));
  // Checkpoints count where they go.
  house.Write("2/checkpoints/step-2/weights", 10, std::string(2 * kMiB, 'x'));
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(second));
  RetentionOptions all = AtMost(house, 7 * kMiB / 2);
  all.checkpoints = true;
  Retention thorough = house.Of(all);
  for (int look = 0; look < 2; ++look) thorough.Look(kNowNs);
  CHECK_FALSE(fs::exists(first));
  CHECK_FALSE(fs::exists(second));
  CHECK(fs::exists(third + "/checkpoints/step-2/weights"));
}

TEST_CASE("retention: room is that of blocks, and files of several names take it once") {
  House house;
  const std::string first = Large(house, 1, 30, kMiB);
  const std::string second = Large(house, 2, 20, kMiB);
  // A log whose middle is given back, and one that the other has too.
  house.Write("1/attempts/1/logs/sparse.log", 30);
  fs::resize_file(first + "/attempts/1/logs/sparse.log", 100 * kMiB);
  fs::create_hard_link(first + "/attempts/1/logs/large.log", second + "/linked.log");
  house.Write("outside/large", 30, std::string(9 * kMiB, 'x'));
  fs::create_directory_symlink(house.path("outside"), first + "/link");
  Retention retention = house.Of(AtMost(house, 5 * kMiB / 2));
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(first));
  CHECK(IsWhole(second));
}

TEST_CASE("retention: what was named for its room stays if there is room at the next look") {
  House house;
  const std::string first = Large(house, 1, 30, kMiB);
  const std::string second = Large(house, 2, 20, kMiB);
  Retention retention = house.Of(AtMost(house, 3 * kMiB / 2));
  retention.Look(kNowNs);
  // Somebody has made room; or the job goes on, as by an adoption.
  const bool goes_on = GENERATE(false, true);
  if (goes_on) {
    house.Know(1, v1::JOB_RUNNING, 30);
  } else {
    fs::remove(second + "/attempts/1/logs/large.log");
  }
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(first));
  CHECK(IsWhole(second));
}

TEST_CASE("retention: measuring takes as many looks as it needs, and a new one begins anew") {
  House house;
  for (uint64_t id = 1; id <= 6; ++id) Large(house, id, 40 - static_cast<double>(id), kMiB);
  RetentionOptions options = AtMost(house, 11 * kMiB / 2);
  options.most_files = 20;
  {
    // Killed between the looks: what it has named is not taken for named by the next.
    Retention killed = house.Of(options);
    for (int look = 0; look < 2; ++look) killed.Look(kNowNs);
  }
  Retention retention = house.Of(options);
  retention.Look(kNowNs);
  CHECK(IsWhole(house.path("1")));
  int looks = 1;
  for (; looks < 100 && IsWhole(house.path("1")); ++looks) retention.Look(kNowNs);
  CHECK(looks > 3);
  CHECK(looks < 50);
  for (int look = 0; look < 20; ++look) retention.Look(kNowNs);
  for (const char* left : {"2", "3", "4", "5", "6"}) CHECK(IsWhole(house.path(left)));
}

TEST_CASE(
    "retention: what is too much goes some at each look, however long all take to be measured") {
  House house;
  for (uint64_t id = 1; id <= 9; ++id) Large(house, id, 40 - static_cast<double>(id), kMiB);
  // Small ones, which are measured again each time.
  for (uint64_t id = 10; id <= 19; ++id) Large(house, id, 1, 1);
  RetentionOptions options = AtMost(house, 2 * kMiB);
  options.most_folders = 2;
  options.most_files = 30;
  Retention retention = house.Of(options);
  int before = 1, looks = 0;
  for (; before < 100 && IsWhole(house.path("1")); ++before) retention.Look(kNowNs);
  CHECK(before > 3);
  // This one goes on since: it is let be, and the room that it takes is not counted.
  house.Know(3, v1::JOB_RUNNING, 0);
  for (; looks < 100 && IsWhole(house.path("8")); ++looks) retention.Look(kNowNs);
  CHECK(looks <= 8);
  for (int look = 0; look < 30; ++look) retention.Look(kNowNs);
  for (const char* gone : {"2", "4", "5", "6", "7"}) CHECK_FALSE(IsWhole(house.path(gone)));
  for (const char* left : {"3", "9"}) CHECK(IsWhole(house.path(left)));
}

// As after a backup was put back: that job may go on, or wait to be found.
TEST_CASE("retention: the room of a folder whose job is not known is nobody's to take") {
  House house;
  const std::string unknown = Large(house, 1, 20, kMiB);
  const std::string known = Large(house, 2, 10, kMiB);
  house.Forget(1);
  RetentionOptions options = AtMost(house, kMiB / 2);
  options.run_days = 30;
  Retention retention = house.Of(options);
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(unknown));
  CHECK_FALSE(IsWhole(known));
  // By its age it goes.
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs + 15 * kDayNs);
  CHECK_FALSE(IsWhole(unknown));
}

TEST_CASE("retention: what the store cannot say of a job is not that there is none") {
  House house;
  const std::string run = Large(house, 1, 400, kMiB);
  house.Know(1, v1::JOB_PAUSED, 400);
  RetentionOptions options = AtMost(house, kMiB / 2);
  options.run_days = 30;
  Retention retention = house.Of(options);
  house.fails = true;
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(run));
  // Named before: nothing goes that cannot be asked for again.
  house.fails = false;
  house.Know(1, v1::JOB_FAILED, 400);
  retention.Look(kNowNs);
  house.fails = true;
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(IsWhole(run));
}

}  // namespace trireme::coordinator
