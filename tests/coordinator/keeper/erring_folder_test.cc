// A run folder that answers with an error, as where its mount is stale: what goes on, what is ended
// all the same, and what is told of it. The error is ELOOP, of a name that leads to itself.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "coordinator/keeper/launch.h"
#include "coordinator/launcher/guard_search.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/monotonic.h"
#include "tests/coordinator/keeper/erring_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr char kEndsWhenTold[] =
    "echo $attempt >> $run/starts; cd /; while [ ! -e $run.go ]; do sleep 0.02; done; exit 3\n";

TEST_CASE("erring folder: a kill, or a stop whose grace is over, ends the attempt without it") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const bool same_keeper = GENERATE(true, false);
  const auto [how, grace] =
      GENERATE(std::pair(v1::ATTEMPT_KILL, 0.0), std::pair(v1::ATTEMPT_STOP, 0.2));
  CAPTURE(same_keeper, how);
  if (same_keeper) bench.PollFor(*keeper, milliseconds(50));
  if (!same_keeper) keeper.reset();
  bench.Break();
  // One that has never seen the guard finds it by its name.
  if (!same_keeper) keeper = bench.Open();
  bench.Want(*keeper, how, grace);
  const v1::AttemptReport end = bench.CheckEndsUnread(*keeper);
  CHECK_THAT(end.failure().headline(), Catch::Contains("killed as asked"));
  // It is over for good, also when the folder is back.
  bench.Mend();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == base::kKilledCode);
  keeper->SetDesired(bench.Desired({}));
  bench.Await(*keeper, 1, [](const auto& report) { return report.attempt() == 0; });
}

TEST_CASE("erring folder: what runs there runs on, within the grace of a stop too, and is told") {
  ErringBench bench(kRunsOn);
  auto keeper = bench.Open();
  bench.Run(*keeper);
  const bool same_keeper = GENERATE(true, false);
  if (!same_keeper) keeper.reset();
  bench.Break();
  if (!same_keeper) keeper = bench.Open();
  bench.Want(*keeper, GENERATE(v1::ATTEMPT_RUN, v1::ATTEMPT_STOP), 600);
  // On a busy machine its answer may be late first.
  const v1::AttemptReport erring = bench.Await(*keeper, 1, [](const v1::AttemptReport& report) {
    return report.stalled().find("errs on node n1") != std::string::npos;
  });
  CHECK_THAT(erring.stalled(), Catch::Contains(bench.run) && Catch::Contains("symbolic links"));
  bench.PollFor(*keeper, milliseconds(2000));  // longer than it would be waited for if it had ended
  CHECK(bench.Living().size() == 2);
  CHECK(launcher::IsAlive(bench.guard));
  bench.Mend();
  bench.Await(*keeper, 1, [](const auto& report) { return report.stalled().empty(); });
  bench.Want(*keeper, v1::ATTEMPT_KILL);
  CHECK(bench.AwaitEnd(*keeper, 1).failure().headline() == "killed as asked");
  bench.CheckNothingLeft(1);
}

TEST_CASE("erring folder: an attempt that ends by itself there is not for ever at work") {
  ErringBench bench(kEndsWhenTold);
  const auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.Break();
  bench.PollFor(*keeper, milliseconds(50));
  std::ofstream(bench.run + ".go") << "go";
  const v1::AttemptReport end = bench.CheckEndsUnread(*keeper);
  CHECK_THAT(end.failure().headline(), !Catch::Contains("killed as asked"));
  bench.Mend();
}

TEST_CASE(
    "erring folder: what has ended there is told after all if the folder comes back in time") {
  ErringBench bench(kEndsWhenTold);
  const auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.Break();
  bench.PollFor(*keeper, milliseconds(50));
  std::ofstream(bench.run + ".go") << "go";
  for (int i = 0; i < 500 && launcher::IsAlive(bench.guard); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  bench.Mend();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 3);
  bench.CheckNothingLeft(1);
}

TEST_CASE("erring folder: what has not begun begins when it comes back") {
  ErringBench bench(kRunsOn);
  bench.Break();
  const auto keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  bench.PollFor(*keeper, milliseconds(600));
  bench.Mend();
  bench.Run(*keeper);
  bench.Want(*keeper, v1::ATTEMPT_KILL);
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == base::kKilledCode);
  bench.CheckNothingLeft(1);
}

TEST_CASE("erring folder: a node on which an attempt cannot begin for it could not start it") {
  ErringBench bench(kRunsOn);
  bench.Break();
  const auto keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.never_started());
  CHECK_THAT(end.failure().headline(),
             Catch::Contains("its run folder errs here") && Catch::Contains("symbolic links"));
  bench.Mend();
  CHECK(bench.Lines("starts") == 0);
}

// Its folder begins to err as it starts, so that it cannot even be sealed.
class BreakingLaunch final : public Launch {
 public:
  BreakingLaunch(const ErringBench& bench, const AttemptFolder& folder, std::atomic<bool>& broken)
      : bench_(bench), folder_(folder), broken_(broken) {}
  Seen Look(int64_t) override { return folder_.Look(); }
  bool Ready() override { return true; }
  absl::Status Start(const std::function<bool()>&) override {
    bench_.Break();
    broken_ = true;
    return absl::UnavailableError("cannot open its control");
  }
  void AskToStop(int64_t) override {}
  void Kill(int64_t) override {}
  absl::Status Seal() override { return folder_.Seal(); }
  bool SweptClean() override { return true; }
  bool RunnerGone() override { return true; }
  void CleanUp() override {}

 private:
  const ErringBench& bench_;
  const AttemptFolder& folder_;
  std::atomic<bool>& broken_;
};

TEST_CASE(
    "erring folder: a start that fails for it is the node's failure, also for the next keeper") {
  ErringBench bench(kRunsOn);
  std::atomic<bool> broken = false;
  bench.options.make_launch = [&](const AttemptRecord&, const AttemptFolder& folder) {
    return std::make_unique<BreakingLaunch>(bench, folder, broken);
  };
  auto keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  if (GENERATE(false, true)) {
    bench.Await(*keeper, 1, [&](const auto& report) {
      REQUIRE(report.phase() != v1::ATTEMPT_ENDED);
      return broken.load();
    });
    keeper.reset();
    keeper = bench.Open();
    bench.Want(*keeper, v1::ATTEMPT_RUN);
  }
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.never_started());
  CHECK_THAT(end.failure().headline(), Catch::Contains("cannot open its control"));
  bench.Mend();
}

// A start that has forked its guard, and fails as the folder begins to err, or is away.
class ForkedLaunch final : public Launch {
 public:
  ForkedLaunch(const ErringBench& bench, const AttemptRecord& record, const AttemptFolder& folder,
               std::function<void()> lose)
      : bench_(bench),
        real_(MakeMpirunLaunch(bench.options, record, folder)),
        lose_(std::move(lose)) {}
  Seen Look(int64_t now_ns) override { return real_->Look(now_ns); }
  bool Ready() override { return real_->Ready(); }
  absl::Status Start(const std::function<bool()>& called_off) override {
    const absl::Status started = real_->Start(called_off);
    for (int i = 0; i < 500 && bench_.Lines("starts") == 0; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    lose_();
    return started.ok() ? absl::UnavailableError("the guard cannot claim its folder") : started;
  }
  void AskToStop(int64_t now_ns) override { real_->AskToStop(now_ns); }
  void Kill(int64_t now_ns) override { real_->Kill(now_ns); }
  absl::Status Seal() override { return real_->Seal(); }
  bool SweptClean() override { return real_->SweptClean(); }
  bool RunnerGone() override { return real_->RunnerGone(); }
  bool HasRanks() override { return real_->HasRanks(); }
  void CleanUp() override { real_->CleanUp(); }

 private:
  const ErringBench& bench_;
  const std::unique_ptr<Launch> real_;
  const std::function<void()> lose_;
};

TEST_CASE(
    "erring folder: what a failed start has left running has begun, also for the next keeper") {
  ErringBench bench(kRunsOn);
  const bool errs = GENERATE(true, false);
  const bool same_keeper = GENERATE(true, false);
  const bool comes_back = GENERATE(true, false);
  CAPTURE(errs, same_keeper, comes_back);
  std::atomic<bool> lost = false;
  bench.options.make_launch = [&](const AttemptRecord& record, const AttemptFolder& folder) {
    return std::make_unique<ForkedLaunch>(bench, record, folder, [&] {
      bench.guard = bench.Guard(1);
      errs ? bench.Break() : bench.TakeAway();
      lost = true;
    });
  };
  auto keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  bench.Await(*keeper, 1, [&](const auto& report) {
    REQUIRE(report.phase() != v1::ATTEMPT_ENDED);
    return lost.load();
  });
  bench.PollFor(*keeper, milliseconds(2000));
  REQUIRE(launcher::IsAlive(bench.guard));
  CHECK(bench.Living().size() == 2);
  if (!same_keeper) keeper.reset();
  if (comes_back) bench.Mend();
  if (!comes_back) {
    launcher::SendSignal(bench.guard, SIGKILL);
    // Those that it leaves may end before anybody looks.
    for (const int pid : bench.Living()) kill(pid, SIGKILL);
  }
  if (!same_keeper) keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  if (comes_back) {
    bench.PollFor(*keeper, milliseconds(500));
    CHECK(launcher::IsAlive(bench.guard));
    CHECK(bench.Lines("starts") == 1);
    bench.Want(*keeper, v1::ATTEMPT_KILL);
  }
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kKilledCode);
  CHECK_FALSE(end.never_started());
  CHECK(bench.Living().empty());
}

TEST_CASE("erring folder: what has not begun ends as it is asked to") {
  ErringBench bench(kRunsOn);
  bench.Break();
  const auto keeper = bench.Open();
  bench.Want(*keeper, v1::ATTEMPT_RUN);
  bench.PollFor(*keeper, milliseconds(50));
  const auto how = GENERATE(v1::ATTEMPT_KILL, v1::ATTEMPT_STOP);
  CAPTURE(how);
  bench.Want(*keeper, how);
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK_FALSE(end.never_started());  // it was called off, which is nobody's doing
  CHECK(end.exit_code() == (how == v1::ATTEMPT_STOP ? base::kCheckpointed : base::kKilledCode));
  bench.Mend();
  CHECK(bench.Lines("starts") == 0);
}

// One of another test that is about to be gone has no title left, so that it may be any.
bool GuardsBecome(size_t count, const std::string& folder) {
  for (int looks = 0; looks < 500; ++looks) {
    if (launcher::GuardsOf(folder).size() == count) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST_CASE("erring folder: while a guard lives that may be its own, it has not ended") {
  ErringBench bench(kRunsOn);
  const auto keeper = bench.Open();
  bench.Run(*keeper);
  bench.Break();
  bench.Want(*keeper, v1::ATTEMPT_STOP, 600);
  bench.PollFor(*keeper, milliseconds(600));
  CHECK(GuardsBecome(1, bench.Folder(1)));
  CHECK(GuardsBecome(0, bench.Folder(1) + "2"));
  bench.Want(*keeper, v1::ATTEMPT_KILL);
  bench.CheckEndsUnread(*keeper);
  CHECK(GuardsBecome(0, bench.Folder(1)));
  bench.Mend();
}

}  // namespace
}  // namespace trireme::keeper
