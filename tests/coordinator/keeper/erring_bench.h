// An attempt whose run folder errs or is away, as where its mount is stale or was taken off. The
// error is ELOOP, of a name that leads to itself.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/exit_code.h"
#include "runtime/base/monotonic.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {

// A process that outlives its guard, as its child does.
inline constexpr char kRunsOn[] =
    "echo $attempt >> $run/starts; trap '' TERM USR1; while :; do sleep 600; done\n";

class ErringBench : public KeeperBench {
 public:
  explicit ErringBench(const std::string& script) : KeeperBench(script) {
    options.turn_wait = std::chrono::milliseconds(20);
    options.stalled_after = std::chrono::milliseconds(200);
    NameFolder(7);
  }
  // As the daemon does.
  void NameFolder(uint64_t job) const {
    std::ofstream(run + "/run.json") << R"({"job": )" << job << R"(, "store": "a store"})";
  }
  // Named, so that a keeper has to read whose its folder is.
  v1::DesiredAttempt Named(v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN,
                           double grace_seconds = 60) const {
    v1::DesiredAttempt attempt = Attempt(1, desired_state, grace_seconds);
    attempt.mutable_launch()->mutable_store()->set_store("a store");
    attempt.mutable_launch()->mutable_store()->set_epoch(1);
    return attempt;
  }
  void Want(Keeper& keeper, v1::AttemptDesiredState desired_state,
            double grace_seconds = 60) const {
    keeper.SetDesired(Desired({Named(desired_state, grace_seconds)}));
  }
  void Run(Keeper& keeper) {
    Want(keeper, v1::ATTEMPT_RUN);
    Await(keeper, 1, [&](const auto&) { return Lines("starts") == 1; });
    guard = Guard(1);
    REQUIRE(launcher::IsAlive(guard));
  }
  void Break() const {
    std::filesystem::rename(run, run + ".away");
    std::filesystem::create_symlink(run, run);
  }
  void TakeAway() const { std::filesystem::rename(run, run + ".away"); }
  // The attempt's folder alone: somebody has removed it.
  void Remove() const { std::filesystem::remove_all(Folder(1)); }
  // As where the agent's own disk was made anew.
  void LoseRecord(std::unique_ptr<Keeper>& keeper) const {
    keeper.reset();
    std::filesystem::remove_all(options.state_folder);
  }
  void Mend() const {
    std::filesystem::remove_all(run);
    std::filesystem::rename(run + ".away", run);
  }
  void PollFor(Keeper& keeper, std::chrono::milliseconds time) const {
    const int64_t until = base::MonotonicNs() + std::chrono::nanoseconds(time).count();
    while (base::MonotonicNs() < until) {
      const v1::NodeReport report = keeper.Poll();
      REQUIRE(report.attempts_size() == 1);
      REQUIRE(report.attempts(0).phase() != v1::ATTEMPT_ENDED);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  // Nothing of it is left at the very report of its end.
  v1::AttemptReport CheckEndsUnread(Keeper& keeper) const {
    const v1::AttemptReport end = Await(keeper, 1, [&](const v1::AttemptReport& report) {
      if (report.phase() != v1::ATTEMPT_ENDED) return false;
      CHECK(Living().empty());
      CHECK_FALSE(launcher::IsAlive(guard));
      return true;
    });
    CHECK(end.launcher());
    CHECK(end.exit_code() == base::kKilledCode);
    CHECK_THAT(end.failure().headline(),
               Catch::Contains("node n1") && Catch::Contains("not known") &&
                   Catch::Contains(run + "/attempts/1") && Catch::Contains("symbolic links"));
    CHECK_THAT(end.failure().next_action(), Catch::Contains("mount"));
    CHECK(end.stalled().empty());
    CheckNothingLeft(1);
    return end;
  }

  launcher::ProcessIdentity guard;
};

}  // namespace trireme::keeper
