// What is removed of attempts that others have followed, and what room it takes.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "coordinator/retention/retention.h"
#include "tests/coordinator/retention/run_folders.h"

namespace trireme::coordinator {

TEST_CASE("retention: logs of attempts that others have followed") {
  House house;
  const std::string run = house.Run(1, 40);
  for (const char* attempt : {"2", "3"}) {
    const double days = *attempt == '2' ? 5 : 40;
    house.Write(std::string("1/attempts/") + attempt + "/logs/rank-0.log", days);
    house.Write(std::string("1/attempts/") + attempt + "/exit", days);
  }
  house.Know(1, v1::JOB_RUNNING, 4).mutable_status()->set_attempt(3);
  RetentionOptions options = house.Options();
  options.log_days = 30;
  Retention retention = house.Of(options);
  retention.Look(kNowNs);
  CHECK(fs::exists(run + "/attempts/1/logs"));
  retention.Look(kNowNs);
  // Its verdict stays, which agents and daemon look for.
  CHECK(In(run + "/attempts/1") == std::set<std::string>{"exit"});
  CHECK(fs::exists(run + "/attempts/2/logs/rank-0.log"));
  CHECK(fs::exists(run + "/attempts/3/logs/rank-0.log"));
  CHECK(fs::exists(run + "/metrics.jsonl"));
}

TEST_CASE("retention: when logs of attempts take too much those of longest ago go, of any job") {
  House house;
  for (const uint64_t id : {1, 2}) {
    house.Run(id, 400);
    house.Know(id, id == 1 ? v1::JOB_RUNNING : v1::JOB_FAILED, 1).mutable_status()->set_attempt(3);
  }
  const std::string first = Attempt(house, "1", "2", 30, 2 * kMiB);
  const std::string second = Attempt(house, "2", "1", 20, 2 * kMiB);
  const std::string third = Attempt(house, "1", "1", 10, 2 * kMiB);
  // What does not count, and stays: the newest, another's, and those of a job that nobody knows.
  std::vector<std::string> others = {Attempt(house, "1", "3", 400, 9 * kMiB),
                                     Attempt(house, "2", "3", 400, 9 * kMiB)};
  house.Run(3, 400, "theirs");
  house.Know(3, v1::JOB_RUNNING, 400).mutable_status()->set_attempt(3);
  others.push_back(Attempt(house, "3", "1", 400, 9 * kMiB));
  house.Run(4, 400);
  others.push_back(Attempt(house, "4", "1", 400, 9 * kMiB));
  RetentionOptions options = AtMost(house, 0);
  options.log_bytes = 5 * kMiB;
  Retention retention = house.Of(options);
  CHECK(retention.Look(kNowNs) == kNowNs + kDayNs / 24);
  CHECK(HasLogs(first));
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(In(first) == std::set<std::string>{"exit"});
  CHECK(HasLogs(second));
  CHECK(HasLogs(third));
  for (const std::string& other : others) CHECK(HasLogs(other));
  CHECK(IsWhole(house.path("1")));

  // The second was named, but is the newest by then, before all are measured again.
  options.log_bytes = 3 * kMiB;
  options.most_files = 2;
  Retention strict = house.Of(options);
  for (int look = 0; look < 3; ++look) strict.Look(kNowNs);
  house.Know(2, v1::JOB_FAILED, 1).mutable_status()->set_attempt(1);
  for (int look = 0; look < 6; ++look) strict.Look(kNowNs);
  CHECK(HasLogs(second));
  CHECK(HasLogs(third));
}

TEST_CASE("retention: logs that go with their run folder take no room of others") {
  House house;
  for (const uint64_t id : {1, 2, 3}) {
    house.Run(id, 1);
    house.Know(id, v1::JOB_FAILED, 40 - static_cast<double>(id)).mutable_status()->set_attempt(2);
  }
  // The first folder goes, with a log that is not the oldest; without it the others may stay.
  Attempt(house, "1", "1", 5, 4 * kMiB);
  const std::string second = Attempt(house, "2", "1", 20, 2 * kMiB);
  const std::string third = Attempt(house, "3", "1", 10, 2 * kMiB);
  RetentionOptions options = AtMost(house, 0);
  options.run_days = 38.5;
  options.log_bytes = 5 * kMiB;
  Retention retention = house.Of(options);
  for (int look = 0; look < 4; ++look) retention.Look(kNowNs);
  CHECK_FALSE(IsWhole(house.path("1")));
  CHECK(HasLogs(second));
  CHECK(HasLogs(third));
}

TEST_CASE("retention: run folders do not go for the room of logs that go") {
  House house;
  for (const uint64_t id : {1, 2, 3}) {
    Large(house, id, 40 - static_cast<double>(id), kMiB);
    house.Know(id, v1::JOB_FAILED, 5).mutable_status()->set_attempt(4);
  }
  // The newest attempt's stay, and are room of their folder.
  Attempt(house, "1", "4", 5, kMiB / 2);
  const std::vector<std::string> logs = {Attempt(house, "2", "2", 20, 2 * kMiB),
                                         Attempt(house, "2", "3", 19, 2 * kMiB),
                                         Attempt(house, "3", "2", 18, 2 * kMiB)};
  // With the large log of the first attempt of each, which goes as well.
  RetentionOptions options = AtMost(house, 2 * kMiB);
  SECTION("by their size") { options.log_bytes = kMiB / 2; }
  SECTION("by their age") { options.log_days = 10; }
  SECTION("some at each look") {
    options.log_bytes = kMiB / 2;
    options.most_folders = 1;
  }
  SECTION("some at each look, by their age") {
    options.log_days = 10;
    options.most_folders = 1;
  }
  SECTION("measured in several looks") {
    options.log_bytes = kMiB / 2;
    options.most_files = 20;
  }
  Retention retention = house.Of(options);
  for (int look = 0; look < 30; ++look) retention.Look(kNowNs);
  for (const char* run : {"1", "2", "3"}) CHECK(IsWhole(house.path(run)));
  for (const std::string& attempt : logs) CHECK_FALSE(HasLogs(attempt));
  // What is too much without them goes as before.
  options.run_bytes = kMiB / 2;
  Retention strict = house.Of(options);
  for (int look = 0; look < 30; ++look) strict.Look(kNowNs);
  CHECK_FALSE(IsWhole(house.path("1")));
  CHECK(IsWhole(house.path("3")));
}

TEST_CASE("retention: each attempt is measured, however many a job has had") {
  House house;
  constexpr int kAttempts = 12;
  house.Run(1, 40);
  house.Know(1, v1::JOB_RUNNING, 1).mutable_status()->set_attempt(kAttempts + 1);
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const std::string number = std::to_string(attempt);
    Attempt(house, "1", number, 40 - attempt, kMiB / 2);
    for (int rank = 1; rank < 5; ++rank) {
      house.Write("1/attempts/" + number + "/logs/rank-" + std::to_string(rank) + ".log",
                  40 - attempt);
    }
  }
  const auto have_logs = [&] {
    int many = 0;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
      many += HasLogs(house.path("1/attempts/" + std::to_string(attempt))) ? 1 : 0;
    }
    return many;
  };
  RetentionOptions options = AtMost(house, 0);
  options.log_bytes = 5 * kMiB;
  options.most_files = 12;
  {
    Retention retention = house.Of(options);
    for (int look = 0; look < 60; ++look) retention.Look(kNowNs);
    CHECK(have_logs() >= 8);
    CHECK(have_logs() <= 10);
  }
  // The folder of one that has ended has the room of all of them.
  house.Know(1, v1::JOB_FAILED, 1);
  options = AtMost(house, 0);
  options.most_files = 12;
  options.run_bytes = static_cast<uint64_t>(have_logs()) * kMiB / 2 - kMiB / 4;
  const int before = have_logs();
  Retention retention = house.Of(options);
  for (int look = 0; look < 100; ++look) retention.Look(kNowNs);
  CHECK((have_logs() < before || !IsWhole(house.path("1"))));
}

TEST_CASE("retention: a measurement that is cut is told of, once each time") {
  House house;
  house.Run(1, 40);
  house.Know(1, v1::JOB_RUNNING, 1).mutable_status()->set_attempt(3);
  Attempt(house, "1", "2", 10, 2);
  for (int rank = 1; rank < 15; ++rank) {
    for (const char* folder : {"logs", "recorder"}) {
      house.Write(std::string("1/attempts/2/") + folder + "/" + std::to_string(rank), 10);
    }
  }
  RetentionOptions options = AtMost(house, 0);
  options.log_bytes = kMiB;
  options.most_files = 10;
  Retention retention = house.Of(options);
  std::ostringstream said;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(said)));
  retention.Look(kNowNs);
  spdlog::set_default_logger(before);
  CAPTURE(said.str());
  const std::string words = "attempts/2 has more than 10 files";
  const size_t first = said.str().find(words);
  CHECK(first != std::string::npos);
  CHECK(said.str().find("has more than", first + words.size()) == std::string::npos);
}

TEST_CASE("retention: a rank that sets its times ahead makes no room for its logs") {
  House house;
  for (const uint64_t id : {1, 2}) {
    house.Run(id, 400);
    house.Know(id, v1::JOB_RUNNING, id == 1 ? 30 : 20).mutable_status()->set_attempt(3);
  }
  const std::string ahead = Attempt(house, "1", "2", -1000, 2 * kMiB);
  const std::string honest = Attempt(house, "2", "2", 21, 2 * kMiB);
  RetentionOptions options = AtMost(house, 0);
  SECTION("by their size") { options.log_bytes = 3 * kMiB; }
  SECTION("by their age") { options.log_days = 25; }
  Retention retention = house.Of(options);
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK_FALSE(HasLogs(ahead));
  CHECK(HasLogs(honest));
}

TEST_CASE("retention: a folder of attempts that is a link leads to nobody's logs") {
  House house;
  const std::string run = house.Run(1, 40);
  house.Know(1, v1::JOB_RUNNING, 40).mutable_status()->set_attempt(3);
  const std::string theirs = Attempt(house, "elsewhere", "1", 40, 2 * kMiB);
  fs::remove_all(run + "/attempts");
  fs::create_directory_symlink(house.path("elsewhere/attempts"), run + "/attempts");
  RetentionOptions options = AtMost(house, 0);
  options.log_days = 30;
  options.log_bytes = kMiB;
  Retention retention = house.Of(options);
  for (int look = 0; look < 3; ++look) retention.Look(kNowNs);
  CHECK(HasLogs(theirs));
}

}  // namespace trireme::coordinator
