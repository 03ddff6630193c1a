// An attempt that is never started: whether its node says that this is its own doing, for which the
// job pays nothing and the node may be drained.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "runtime/base/exit_code.h"
#include "runtime/run_claim/run_claim.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

v1::AttemptReport EndOf(const KeeperBench& bench, Keeper& keeper,
                        const v1::DesiredAttempt& attempt) {
  keeper.SetDesired(bench.Desired({attempt}));
  return bench.AwaitEnd(keeper, attempt.attempt());
}

TEST_CASE("what this node cannot start it says to be its own doing, also after a restart") {
  KeeperBench bench("echo begun >> $run/counter\n");
  std::string cause;
  SECTION("no program") {
    bench.options.worker = "/nonexistent/trireme-worker";
    cause = bench.options.worker;
  }
  SECTION("no run folder, as where its mount is away") {
    bench.run = bench.root + "/away/run";
    cause = bench.run + " is not to be seen here";
  }
  auto keeper = bench.Open();
  SECTION("no room for its record") {
    fs::create_symlink("/dev/full", bench.options.state_folder + "/attempts/7-1.json.partial");
    cause = "is full";
  }
  const auto check = [&](const v1::AttemptReport& end) {
    INFO(end.failure().headline());
    CHECK(end.never_started());
    CHECK(end.exit_code() == base::kJobFailed);
    CHECK(end.failure().headline().find(cause) != std::string::npos);
  };
  check(EndOf(bench, *keeper, bench.Attempt(1)));
  // Nothing is made where the run folder should be.
  CHECK_FALSE(fs::exists(bench.root + "/away"));
  if (bench.HasRecord(1)) {
    keeper.reset();
    keeper = bench.Open();
    check(EndOf(bench, *keeper, bench.Attempt(1)));
  }
  CHECK(bench.Lines("counter") == 0);
}

TEST_CASE("what others keep from starting is not said to be this node's doing") {
  KeeperBench bench("exit 2\n");
  const auto keeper = bench.Open();
  CHECK_FALSE(EndOf(bench, *keeper, bench.Attempt(1, v1::ATTEMPT_STOP)).never_started());
  CHECK_FALSE(EndOf(bench, *keeper, bench.Attempt(2, v1::ATTEMPT_KILL)).never_started());
  fs::create_directories(bench.Folder(3));
  CHECK_FALSE(EndOf(bench, *keeper, bench.Attempt(3)).never_started());
  v1::DesiredAttempt nameless = bench.Attempt(4);
  nameless.mutable_launch()->set_key("no key");
  CHECK_FALSE(EndOf(bench, *keeper, nameless).never_started());
  REQUIRE(run_claim::WriteRunClaim(bench.run, {7, 6, ""}).ok());
  // Seen before its start, or by the watch of claims.
  const v1::AttemptReport replaced = EndOf(bench, *keeper, bench.Attempt(5));
  CHECK(replaced.exit_code() != 0);
  CHECK_FALSE(replaced.never_started());
  // It began.
  const v1::AttemptReport ran = EndOf(bench, *keeper, bench.Attempt(6));
  CHECK(ran.exit_code() == 2);
  CHECK_FALSE(ran.never_started());
}

TEST_CASE("a run that ends with its keeper has no other node, and fails as before") {
  KeeperBench bench("");
  bench.options.ranks_end_with_us = true;
  int exit_code = base::kBadInput;
  SECTION("no program") { bench.options.worker = "/nonexistent/trireme-worker"; }
  const auto keeper = bench.Open();
  SECTION("no room for its record") {
    fs::create_symlink("/dev/full", bench.options.state_folder + "/attempts/7-1.json.partial");
    exit_code = base::kJobFailed;
  }
  const v1::AttemptReport end = EndOf(bench, *keeper, bench.Attempt(1));
  CHECK(end.failure().headline().find("was not started") != std::string::npos);
  CHECK(end.exit_code() == exit_code);
  CHECK_FALSE(end.never_started());
}

}  // namespace
}  // namespace trireme::keeper
