// A request to stop reaches ranks that begin with USR1 ignored, also one that needs no mpirun and
// has no children.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/base/own_program.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

TEST_CASE("one rank without mpirun and without children hears a stop") {
  KeeperBench bench("");
  bench.options.worker = base::ProgramBesideUs("keeper_rank");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [](const auto& report) { return report.phase() == v1::ATTEMPT_RUNNING; });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP, 600)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 75);
  bench.CheckNothingLeft(1);
}

// As mpirun ends that waits for its daemons on other nodes.
TEST_CASE("a launch that ends by a stop before any rank is up has done no job") {
  KeeperBench bench(
      "trap 'exit 0' USR1; echo $attempt >> $run/starts; while :; do sleep 0.02; done");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  keeper->Poll();
  bench.AwaitFile("starts", "1\n");
  // Unless one was: what that says counts.
  const bool up = GENERATE(false, true);
  if (up) std::ofstream(bench.Folder(1) + "/recorder/rank-0.recorder") << "a recording";
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP, 600)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == (up ? 0 : 75));
  CHECK_FALSE(end.has_failure());
  bench.CheckNothingLeft(1);
}

TEST_CASE("a kill reaches ranks of which the disk does not say how they are") {
  KeeperBench bench("echo $attempt >> $run/starts; exec sleep 1000");
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  keeper->Poll();
  bench.AwaitFile("starts", "1\n");
  // Also by a keeper that has never seen the guard.
  if (GENERATE(false, true)) {
    keeper.reset();
    keeper = bench.Open();
  } else {
    keeper->Poll();
  }
  const std::string claim = bench.Folder(1) + "/guard.json";
  std::filesystem::rename(claim, claim + ".away");
  std::filesystem::create_directory(claim);  // cannot be read
  REQUIRE(!bench.Living().empty());
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  bench.Await(*keeper, 1, [&](const auto& report) {
    CHECK(report.phase() != v1::ATTEMPT_ENDED);  // what it ended with may be read yet
    return bench.Living().empty();
  });
  std::filesystem::remove(claim);
  std::filesystem::rename(claim + ".away", claim);
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() != 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("a stop at any moment of a start ends it in order", "[mpi]") {
  // Nobody kills them, and nobody dies of the signal: not mpirun without ranks, not ranks that do
  // not listen yet.
  for (int early_ms = 0; early_ms < 400; early_ms += 40) {
    const auto bench = KeeperBench::Recorded(2);
    const auto keeper = bench->Open();
    keeper->SetDesired(bench->Desired({bench->Attempt(1)}));
    bench->Await(*keeper, 1, [&](const auto&) { return bench->Guard(1).pid > 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(early_ms));
    keeper->SetDesired(bench->Desired({bench->Attempt(1, v1::ATTEMPT_STOP, 600)}));
    const v1::AttemptReport end = bench->AwaitEnd(*keeper, 1);
    CAPTURE(early_ms, end.failure().headline());
    CHECK(end.exit_code() == 75);
    bench->CheckNothingLeft(1);
  }
}

}  // namespace
}  // namespace trireme::keeper
