// A run folder that is away, as where its mount was taken off to be made anew: what has begun there
// runs on. In its place there is nothing, or what the mount has hidden.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <string>

#include "coordinator/launcher/guard_search.h"
#include "tests/coordinator/keeper/erring_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

enum Hidden {
  kNothingHidden,
  kEmptyFolder,
  kFolderOfNobody,
  kFolderOfAnother,
};

void TakeMountOff(const ErringBench& bench, Hidden hidden) {
  bench.TakeAway();
  if (hidden == kNothingHidden) return;
  fs::create_directories(bench.run);
  if (hidden == kEmptyFolder) return;
  fs::create_directories(bench.run + "/attempts");
  if (hidden == kFolderOfAnother) bench.NameFolder(8);
}

Hidden AnyHidden() {
  return GENERATE(kNothingHidden, kEmptyFolder, kFolderOfNobody, kFolderOfAnother);
}

TEST_CASE("away folder: what has begun runs on, within the grace of a stop too, and is told") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const bool same_keeper = GENERATE(true, false);
  const Hidden hidden = AnyHidden();
  const auto how = GENERATE(v1::ATTEMPT_RUN, v1::ATTEMPT_STOP);
  CAPTURE(same_keeper, hidden, how);
  if (same_keeper) bench.PollFor(*keeper, milliseconds(50));
  if (!same_keeper) keeper.reset();
  TakeMountOff(bench, hidden);
  if (!same_keeper) keeper = bench.Open();
  bench.Want(*keeper, how, 600);
  bench.Await(*keeper, 1, [&](const v1::AttemptReport& report) {
    REQUIRE(report.phase() != v1::ATTEMPT_ENDED);
    return report.stalled().find(bench.run) != std::string::npos &&
           report.stalled().find("mounted") != std::string::npos;
  });
  bench.PollFor(*keeper, milliseconds(500));
  CHECK(bench.Living().size() == 2);
  CHECK(launcher::IsAlive(bench.guard));
  bench.Mend();
  bench.Await(*keeper, 1, [](const auto& report) { return report.stalled().empty(); });
  CHECK(launcher::IsAlive(bench.guard));
  CHECK(bench.Lines("starts") == 1);
  bench.Want(*keeper, v1::ATTEMPT_KILL);
  CHECK(bench.AwaitEnd(*keeper, 1).failure().headline() == "killed as asked");
  bench.CheckNothingLeft(1);
}

TEST_CASE("away folder: a kill, or a stop whose grace is over, ends the attempt without it") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const auto [how, grace] =
      GENERATE(std::pair(v1::ATTEMPT_KILL, 0.0), std::pair(v1::ATTEMPT_STOP, 0.2));
  const Hidden hidden = AnyHidden();
  CAPTURE(how, hidden);
  TakeMountOff(bench, hidden);
  bench.Want(*keeper, how, grace);
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kKilledCode);
  CHECK_FALSE(end.never_started());
  CHECK_THAT(end.failure().headline(), Catch::Contains("killed as asked"));
  CHECK(bench.Living().empty());
  CHECK_FALSE(launcher::IsAlive(bench.guard));
}

TEST_CASE("away folder: an attempt whose guard has gone meanwhile has ended, and its end is told") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const Hidden hidden = AnyHidden();
  CAPTURE(hidden);
  TakeMountOff(bench, hidden);
  launcher::SendSignal(bench.guard, SIGKILL);
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kKilledCode);
  CHECK_FALSE(end.never_started());
  CHECK_THAT(end.failure().headline(), Catch::Contains("what it ended with is not known"));
  CHECK(bench.Living().empty());
}

// Whatever runs there runs in vain.
TEST_CASE("away folder: in a run folder that is there, an attempt's own that is gone ends it") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const bool same_keeper = GENERATE(true, false);
  CAPTURE(same_keeper);
  if (!same_keeper) keeper.reset();
  bench.Remove();
  if (!same_keeper) keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kKilledCode);
  CHECK_THAT(end.failure().headline(), Catch::Contains("guard of the ranks vanished"));
  CHECK(bench.Living().empty());
  CHECK_FALSE(launcher::IsAlive(bench.guard));
}

}  // namespace
}  // namespace trireme::keeper
