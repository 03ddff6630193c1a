// Ranks and the keeper of their node over a socket: who is let in, what he gets, and that neither
// side's absence holds up the other.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "coordinator/keeper/fresher.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/slice.h"
#include "tests/coordinator/keeper/link/link_bench.h"
#include "tests/skip.h"

namespace trireme::keeper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool Refuses(const absl::StatusOr<v1::Plan>& answer, absl::StatusCode code,
             const std::string& part) {
  INFO(answer.status().ToString());
  CHECK(answer.status().code() == code);
  CHECK_THAT(std::string(answer.status().message()), Catch::Contains(part));
  return !answer.ok();
}

TEST_CASE("worker link: each rank gets its slice of the coordinator's plan") {
  LinkBench bench;
  bench.Listen();
  for (const uint32_t rank : {0, 1, 2, 3, 3, 0}) {
    const auto slice = bench.Join(bench.Who(rank));
    INFO(slice.status().ToString());
    REQUIRE(slice.ok());
    const int number = static_cast<int>(rank);
    CHECK(plan::SerializePlan(*slice) == plan::SerializePlan(plan::SliceOf(bench.plan, number)));
    CHECK(slice->stages(number / 2).step().instructions_size() > 0);
    CHECK(slice->stages(1 - number / 2).step().instructions_size() == 0);
  }
  struct stat about {};
  REQUIRE(stat(bench.seat.socket.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
}

TEST_CASE("worker link: who is not of the attempt is a leftover") {
  LinkBench bench;
  bench.Listen();
  constexpr auto kLeftover = absl::StatusCode::kFailedPrecondition;
  v1::JoinRequest who = bench.Who(0);
  who.set_job_id(8);
  CHECK(Refuses(bench.Join(who), kLeftover, "here is attempt 3 of job 7, not attempt 3 of job 8"));
  who = bench.Who(0);
  who.set_attempt(2);
  CHECK(Refuses(bench.Join(who), kLeftover, "this rank is a leftover and is to end"));
  CHECK(Refuses(bench.Join(bench.Who(4)), kLeftover, "rank 4 is not of this node"));
  who = bench.Who(0);
  who.set_ranks(8);
  CHECK(Refuses(bench.Join(who), kLeftover, "the attempt has 4 ranks, not 8"));
  CHECK(bench.Join(bench.Who(0)).ok());
  bench.seat.wanted = false;
  bench.Listen();
  CHECK(Refuses(bench.Join(bench.Who(0)), kLeftover, "not wanted any more"));
}

TEST_CASE("worker link: a node without a keeper and a keeper without a plan are told apart") {
  LinkBench bench;
  CHECK(Refuses(bench.Join(bench.Who(0)), absl::StatusCode::kNotFound, "no keeper listens"));
  bench.Listen();
  std::filesystem::remove(bench.seat.plan_file);
  CHECK(Refuses(bench.Join(bench.Who(0)), absl::StatusCode::kNotFound, "there is no plan"));
  REQUIRE(base::WriteWholeFile(bench.seat.plan_file, "rubbish").ok());
  CHECK(Refuses(bench.Join(bench.Who(0)), absl::StatusCode::kDataLoss, "not a plan"));
  v1::Plan larger = bench.plan;
  larger.mutable_mesh()->set_data(4);
  REQUIRE(base::WriteWholeFile(bench.seat.plan_file, plan::SerializePlan(larger)).ok());
  CHECK(Refuses(bench.Join(bench.Who(0)), absl::StatusCode::kFailedPrecondition,
                "is for 8 ranks, but the attempt has 4"));
}

TEST_CASE("worker link: a dead keeper's socket is waited at and taken over") {
  LinkBench bench;
  bench.HangUp(/*killed=*/true);
  const auto alone =
      bench.Dial(bench.Who(1))->Join({.appear = milliseconds(1), .answer = milliseconds(300)});
  CHECK(Refuses(alone, absl::StatusCode::kUnavailable, "does not answer"));
  absl::StatusOr<v1::Plan> answer;
  std::thread rank([&] { answer = bench.Join(bench.Who(1)); });
  std::this_thread::sleep_for(milliseconds(50));
  bench.Listen();
  rank.join();
  INFO(answer.status().ToString());
  CHECK(answer.ok());
}

TEST_CASE("worker link: a folder that is not its user's alone is neither dialled nor listened in") {
  LinkBench bench;
  bench.Listen();
  std::string why;
  SECTION("others may write to it") {
    std::filesystem::permissions(bench.folder, std::filesystem::perms(GENERATE(0770, 0702)));
    why = "may be written to by others";
  }
  SECTION("it is a link, though to a good one") {
    std::filesystem::rename(bench.folder, bench.folder + "_good");
    std::filesystem::create_directory_symlink(bench.folder + "_good", bench.folder);
    why = "Not a directory";
  }
  SECTION("another user has made it") {
    if (geteuid() != 0) TRIREME_SKIP("not here: root, who can give files away");
    REQUIRE(chown(bench.folder.c_str(), 65534, 65534) == 0);
    why = "belongs to user 65534";
  }
  const auto link = bench.Dial(bench.Who(0));
  const auto answer = link->Join({});
  // So the rank reads the plan itself.
  CHECK(Refuses(answer, absl::StatusCode::kUnavailable, "no keeper of ours"));
  CHECK(Refuses(answer, absl::StatusCode::kUnavailable, why));
  link->StartReports([&] { return bench.Status(0, 5); });
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(bench.Heard().ranks(0).step() == 0);
  WorkerLinks second;
  std::filesystem::remove(bench.seat.socket);
  CHECK_THAT(std::string(second.Serve({bench.seat}).message()), Catch::Contains(why));
  CHECK_FALSE(std::filesystem::exists(bench.seat.socket));
  std::filesystem::remove_all(bench.folder + "_good");
}

TEST_CASE("worker link: reports go on after the keeper was away") {
  LinkBench bench;
  bench.Listen();
  std::atomic<uint64_t> step = 5;
  const auto link = bench.Dial(bench.Who(0));
  link->StartReports([&] { return bench.Status(0, step); });
  const auto heard = [](uint64_t of) {
    return [of](const v1::AttemptReport& report) {
      return report.ranks(0).step() == of && report.progress().steps_done() == of;
    };
  };
  CHECK(bench.Await(heard(5)));
  CHECK(bench.Heard().ranks(0).position() == "F of micro-batch 1");
  CHECK(bench.Heard().ranks(1).position().empty());
  for (const bool killed : {false, true}) {
    bench.HangUp(killed);
    ++step;
    bench.Listen();
    CHECK(bench.Await(heard(step)));
  }
}

TEST_CASE("worker link: a step is told with the look of its rank that did not have it yet") {
  LinkBench bench;
  bench.Listen();
  const auto link = bench.Dial(bench.Who(0));
  std::atomic<uint64_t> step{4};
  std::atomic<int64_t> looked_ns{0};  // the last time at which it had done 4
  link->StartReports([&] {
    if (step == 4) looked_ns = base::BoottimeNs();
    return bench.Status(0, step);
  });
  REQUIRE(bench.Await([](const auto& heard) { return heard.ranks(0).step() == 4; }));
  REQUIRE(bench.links->steps().size() == 1);
  CHECK(bench.links->steps()[0].step == 4);
  CHECK(bench.links->steps()[0].since_ns == 0);  // the first may be old
  step = 5;
  REQUIRE(bench.Await([](const auto& heard) { return heard.ranks(0).step() == 5; }));
  const keeper::StepNews news = bench.links->steps()[0];
  CHECK((news.job_id == bench.seat.job_id && news.attempt == bench.seat.attempt));
  CHECK(news.store == bench.seat.store);
  CHECK(news.step == 5);
  CHECK(news.since_ns > 0);
  CHECK(news.since_ns <= looked_ns);
}

TEST_CASE("worker link: of two stores' jobs of one number each has the words of its own ranks") {
  LinkBench bench, other;
  other.seat.store = "other";
  WorkerLinks links;
  REQUIRE(links.Serve({bench.seat, other.seat}).ok());
  const auto link = bench.Dial(bench.Who(0));
  link->StartReports([&] { return bench.Status(0, 4); });
  v1::NodeReport report;
  for (const keeper::Seat& seat : {bench.seat, other.seat}) {
    v1::AttemptReport& attempt = *report.add_attempts();
    attempt.set_job_id(seat.job_id);
    attempt.set_attempt(seat.attempt);
    attempt.mutable_store()->set_store(seat.store);
    attempt.add_ranks();
  }
  for (int i = 0; i < 6000 && report.attempts(0).ranks(0).step() != 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    links.Freshen(report);
  }
  CHECK(report.attempts(0).ranks(0).step() == 4);
  CHECK(report.attempts(1).ranks(0).step() == 0);
  const std::vector<keeper::StepNews> steps = links.steps();
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].store != steps[1].store);
}

TEST_CASE("worker link: a removed socket is made anew") {
  LinkBench bench;
  bench.Listen();
  std::filesystem::remove(bench.seat.socket);
  bench.Listen();
  CHECK(bench.Join(bench.Who(0)).ok());
  // And an attempt that is over is served no more.
  REQUIRE(bench.links->Serve({}).ok());
  CHECK_FALSE(std::filesystem::exists(bench.seat.socket));
}

TEST_CASE("worker link: what a rank has sent counts where it is newer than the look at it") {
  v1::RankReport seen;
  seen.set_step(8);
  seen.set_position("REDUCE");
  seen.set_still_ms(4000);
  seen.set_life(v1::RANK_ALIVE);
  v1::RankReport said;
  said.set_step(9);
  said.set_position("NORM");
  said.set_peer(2);
  said.set_still_ms(100);
  said.set_waiting_ms(50);
  said.mutable_timing()->set_step(8);
  v1::RankReport both = seen;
  TakeFresher(said, 5000, both);
  CHECK((both.position() == "REDUCE" && both.timing().step() == 8));
  both = seen;
  TakeFresher(said, 300, both);
  CHECK((both.position() == "NORM" && both.step() == 9 && both.peer() == 2));
  CHECK((both.still_ms() == 400 && both.waiting_ms() == 350 && both.life() == v1::RANK_ALIVE));
  // What both have of one look at the recorder is the keeper's.
  both = seen;
  both.set_still_ms(402);
  both.set_waiting_ms(300);
  TakeFresher(said, 300, both);
  CHECK((both.position() == "REDUCE" && both.waiting_ms() == 300));
  both = seen;
  both.set_life(v1::RANK_DEAD);
  both.mutable_timing()->set_step(9);
  TakeFresher(said, 0, both);
  CHECK((both.position() == "REDUCE" && both.timing().step() == 9));
  said.set_step(7);
  both = seen;
  TakeFresher(said, 0, both);
  CHECK(both.position() == "REDUCE");
}

}  // namespace
}  // namespace trireme::keeper
