// When an attempt that nobody answers for ends itself, and what keeps it.
#include "coordinator/keeper/lifeline.h"

#include <catch2/catch.hpp>
#include <thread>

#include "runtime/base/monotonic.h"
#include "runtime/run_claim/run_claim.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

constexpr int64_t kSecond = base::kNsPerSecond;
constexpr int64_t kEnd = 15 * kSecond;
constexpr const char kRuns[] = "echo $attempt >> $run/starts; sleep 600\n";

v1::DesiredAttempt EndingAfter(v1::DesiredAttempt attempt, double seconds) {
  attempt.set_end_after_seconds(seconds);
  return attempt;
}

}  // namespace

TEST_CASE("lifeline: silence ends it after its time, counted from any word") {
  const auto lasts = [](const Lifeline& line, int64_t until) {
    CHECK(line.Cut(kEnd, until - 1).empty());
    CHECK(!line.Cut(kEnd, until).empty());
  };
  const Lifeline silent(kSecond);
  lasts(silent, 16 * kSecond);
  Lifeline taken(0);
  taken.Taken(5 * kSecond);
  taken.Taken(3 * kSecond);  // an older one, late
  lasts(taken, 20 * kSecond);
  Lifeline seen(0);
  seen.Seen(ClaimSight::kOurs, 7 * kSecond);
  seen.Seen(ClaimSight::kUnknown, 9 * kSecond);  // a disk that says nothing is no word
  lasts(seen, 22 * kSecond);
}

TEST_CASE("lifeline: steps are word of other nodes, where there are any") {
  Lifeline several(0);
  several.Stepped(100, true, 4 * kSecond);  // the first look: it may be of long ago
  CHECK(!several.Cut(kEnd, 15 * kSecond).empty());
  several.Stepped(101, true, 6 * kSecond);
  several.Stepped(101, true, 9 * kSecond);  // no step
  CHECK(several.Cut(kEnd, 21 * kSecond - 1).empty());
  CHECK(!several.Cut(kEnd, 21 * kSecond).empty());
  Lifeline alone(0);
  for (int step = 1; step < 14; ++step) alone.Stepped(step, false, step * kSecond);
  CHECK(!alone.Cut(kEnd, 15 * kSecond).empty());
}

TEST_CASE("lifeline: one that waits for people ends by no silence, but by a newer attempt") {
  Lifeline line(0);
  CHECK(line.Cut(0, 1'000'000 * kSecond).empty());
  line.Seen(ClaimSight::kReplaced, kSecond);
  CHECK(!line.Cut(0, 2 * kSecond).empty());
  line.Seen(ClaimSight::kOurs, 3 * kSecond);  // a stale answer, late
  CHECK(!line.Cut(0, 4 * kSecond).empty());
}

TEST_CASE("lifeline: who was held up hears first what there is") {
  Lifeline line(0);
  line.HeldUp(100 * kSecond);
  CHECK(line.Cut(kEnd, 104 * kSecond).empty());
  CHECK(!line.Cut(kEnd, 105 * kSecond).empty());
  line.Seen(ClaimSight::kOurs, 104 * kSecond);
  CHECK(line.Cut(kEnd, 105 * kSecond).empty());
  line.HeldUp(110 * kSecond);
  line.Seen(ClaimSight::kReplaced, 110 * kSecond);
  CHECK(!line.Cut(kEnd, 110 * kSecond).empty());
  // Of one that was adopted nobody knows more.
  const Lifeline adopted = Lifeline::Adopted(100 * kSecond);
  CHECK(adopted.Cut(kEnd, 104 * kSecond).empty());
  CHECK(!adopted.Cut(kEnd, 105 * kSecond).empty());
}

TEST_CASE("lifeline: ranks that end with their keeper are cut off from nobody") {
  KeeperBench bench("sleep 2; exit 0\n");
  bench.options.ranks_end_with_us = true;
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({EndingAfter(bench.Attempt(1), 0.5)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
}

TEST_CASE("lifeline: only a claim that was read of late may be relied on") {
  Lifeline line(0);
  line.Taken(kSecond);
  CHECK(!line.claim_read(kEnd, kSecond));
  line.Seen(ClaimSight::kOurs, 2 * kSecond);
  CHECK(line.claim_read(kEnd, 3 * kSecond));
  CHECK(!line.claim_read(kEnd, 17 * kSecond));
  CHECK(!line.claim_read(0, 3 * kSecond));  // nothing would end it
}

TEST_CASE("lifeline: a keeper ends what is cut off, and lets nobody bring it back") {
  KeeperBench bench(kRuns);
  std::vector<std::string> warnings;
  bench.options.warn = [&](const std::string& words) { warnings.push_back(words); };
  const auto wanted = bench.Desired({EndingAfter(bench.Attempt(1), 0.5)});
  auto keeper = bench.Open();
  keeper->SetDesired(wanted);
  const v1::AttemptReport ended = bench.AwaitEnd(*keeper, 1);
  CHECK(ended.exit_code() != 0);
  CHECK(ended.failure().headline().find("was cut off") != std::string::npos);
  CHECK(ended.ends_after_seconds() == 0);  // no claim was read
  bench.CheckNothingLeft(1);
  keeper->SetDesired(wanted);
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() != 0);
  CHECK(bench.Lines("starts") <= 1);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("job 7 attempt 1 is ended here: this node was cut off") == 0);
}

TEST_CASE("lifeline: a claim keeps an attempt, and a newer one ends it") {
  const KeeperBench bench(kRuns);
  REQUIRE(run_claim::WriteRunClaim(bench.run, {7, 1, ""}).ok());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({EndingAfter(bench.Attempt(1), 3)}));
  bench.Await(*keeper, 1,
              [](const v1::AttemptReport& report) { return report.ends_after_seconds() == 3; });
  bench.AwaitFile("starts", "1\n");
  const int64_t until = base::BoottimeNs() + 4 * kSecond;
  while (base::BoottimeNs() < until) {
    REQUIRE(keeper->Poll().attempts(0).phase() != v1::ATTEMPT_ENDED);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  REQUIRE(run_claim::WriteRunClaim(bench.run, {7, 2, ""}).ok());
  const v1::AttemptReport ended = bench.AwaitEnd(*keeper, 1);
  CHECK(ended.failure().headline() == "a newer attempt of the job has replaced it");
  bench.CheckNothingLeft(1);
}

TEST_CASE("lifeline: an attempt that a newer one has replaced starts nothing") {
  const KeeperBench bench(kRuns);
  REQUIRE(run_claim::WriteRunClaim(bench.run, {7, 2, ""}).ok());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.AwaitEnd(*keeper, 1);
  CHECK(bench.Lines("starts") == 0);
}

TEST_CASE("lifeline: the end of one that was cut off goes on after a restart of the agent") {
  const KeeperBench bench("trap '' TERM; echo $attempt >> $run/starts; sleep 600\n");
  const auto wanted = bench.Desired({EndingAfter(bench.Attempt(1), 1)});
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(wanted);
    keeper->Poll();
    bench.AwaitFile("starts", "1\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    keeper->Poll();  // it is cut off now
  }
  const auto keeper = bench.Open();
  keeper->SetDesired(wanted);
  CHECK(bench.AwaitEnd(*keeper, 1).failure().headline().find("was cut off") != std::string::npos);
}

}  // namespace trireme::keeper
