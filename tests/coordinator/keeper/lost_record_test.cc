// A keeper that knows nothing of an attempt which runs here, as where the agent's own disk was made
// anew, and cannot read its run folder either: what runs is ended as asked, and nothing that runs
// is told as ended.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "coordinator/launcher/guard_search.h"
#include "tests/coordinator/keeper/erring_bench.h"

namespace trireme::keeper {
namespace {

using std::chrono::milliseconds;

void LoseFolder(const ErringBench& bench, bool errs) { errs ? bench.Break() : bench.TakeAway(); }

void CheckNothingLives(const ErringBench& bench) {
  CHECK(bench.Living().empty());
  CHECK_FALSE(launcher::IsAlive(bench.guard));
}

TEST_CASE("lost record: what runs on a folder that errs or is away has begun") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.LoseRecord(keeper);
  const bool errs = GENERATE(true, false);
  const auto [how, grace] =
      GENERATE(std::pair(v1::ATTEMPT_RUN, 600.0), std::pair(v1::ATTEMPT_STOP, 600.0),
               std::pair(v1::ATTEMPT_STOP, 0.2), std::pair(v1::ATTEMPT_KILL, 0.0));
  CAPTURE(errs, how, grace);
  LoseFolder(bench, errs);
  keeper = bench.Open();
  bench.Want(*keeper, how, grace);
  if (grace > 1) {
    // Longer than it would be waited for without a guard.
    bench.PollFor(*keeper, milliseconds(2000));
    CHECK(launcher::IsAlive(bench.guard));
    CHECK(bench.Living().size() == 2);
    bench.Want(*keeper, v1::ATTEMPT_STOP, 0.2);
  }
  const v1::AttemptReport end = bench.Await(*keeper, 1, [&](const v1::AttemptReport& report) {
    if (report.phase() != v1::ATTEMPT_ENDED) return false;
    CheckNothingLives(bench);
    return true;
  });
  CHECK(end.exit_code() == base::kKilledCode);
  CHECK_FALSE(end.never_started());
  CHECK_THAT(end.failure().headline(), Catch::Contains("killed as asked"));
}

TEST_CASE("lost record: ranks whose guard is gone are no end of it") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.LoseRecord(keeper);
  const bool errs = GENERATE(true, false);
  const auto how = GENERATE(v1::ATTEMPT_RUN, v1::ATTEMPT_STOP);
  CAPTURE(errs, how);
  LoseFolder(bench, errs);
  launcher::SendSignal(bench.guard, SIGKILL);
  keeper = bench.Open();
  bench.Want(*keeper, how, 600);
  bench.PollFor(*keeper, milliseconds(2000));
  CHECK_FALSE(bench.Living().empty());
  bench.Want(*keeper, v1::ATTEMPT_STOP, 0.2);
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == base::kKilledCode);
  CheckNothingLives(bench);
}

TEST_CASE("lost record: an attempt that was seen to live has begun, also for the next keeper") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.LoseRecord(keeper);
  keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  bench.PollFor(*keeper, milliseconds(200));
  keeper.reset();
  bench.Break();
  launcher::SendSignal(bench.guard, SIGKILL);
  keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  bench.CheckEndsUnread(*keeper);
}

// A guard that a disk holds may start something when that answers.
TEST_CASE("an attempt whose folder was removed has not ended while its guard lives") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  REQUIRE(launcher::SendSignal(bench.guard, SIGSTOP));
  bench.Remove();
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CheckNothingLives(bench);
  CHECK(end.exit_code() == base::kKilledCode);
}

}  // namespace
}  // namespace trireme::keeper
