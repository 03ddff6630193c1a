// Attempts of several stores, or of several histories of one, on one node: none takes another's
// folder, word or ranks for its own.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "catch2/catch.hpp"
#include "coordinator/keeper/attempt_folder.h"
#include "runtime/base/exit_code.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOne = "11111111-0000-4000-a000-000000000000";
constexpr const char* kOther = "22222222-0000-4000-a000-000000000000";
constexpr const char* kWaits =
    "echo $attempt >> $run/starts; while [ ! -e $run/go ]; do sleep 0.05; done";

v1::DesiredAttempt Of(v1::DesiredAttempt attempt, const std::string& store, uint64_t epoch = 1) {
  v1::StorePosition& position = *attempt.mutable_launch()->mutable_store();
  position.set_store(store);
  position.set_epoch(epoch);
  position.set_opening(epoch * 1000);
  return attempt;
}

// The last report of the attempt of this store: one that is not wanted is told as ended once.
v1::AttemptReport AwaitEndOf(Keeper& keeper, const std::string& store) {
  for (int step = 0; step < 600; ++step) {
    const v1::NodeReport report = keeper.Poll();
    for (const v1::AttemptReport& one : report.attempts()) {
      if (one.store().store() == store && one.phase() == v1::ATTEMPT_ENDED) return one;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  FAIL("no end of the attempt of store " << store);
  return {};
}

void CheckRefused(const v1::AttemptReport& end) {
  CHECK(end.exit_code() == base::kJobFailed);
  CHECK(end.failure().headline().find("was there before") != std::string::npos);
}

TEST_CASE("stores: a verdict that lay in the folder before is not the attempt's") {
  KeeperBench bench("touch $run/ran; exit 0");
  fs::create_directories(bench.Folder(1) + "/logs");
  std::ofstream(bench.Folder(1) + "/guard.json")
      << R"({"pid": 1, "start_ticks": 1, "boot_id": "x"})";
  std::ofstream(bench.Folder(1) + "/exit") << R"({"exit_code": 0})";
  const bool named = GENERATE(false, true);
  if (named) {
    std::ofstream(bench.Folder(1) + "/attempt.json")
        << R"({"version": 1, "job": 7, "attempt": 1, "store": ")" << kOther
        << R"(", "epoch": 1, "opening": 1000, "nodes": ["n1"]})";
  }
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne)}));
  CheckRefused(bench.AwaitEnd(*keeper, 1));
  CHECK(!fs::exists(bench.run + "/ran"));
  // Neither is what it says there touched.
  CHECK(Slurp(bench.Folder(1) + "/exit") == R"({"exit_code": 0})");
}

TEST_CASE("stores: another history's attempt of the same number runs on") {
  KeeperBench bench(kWaits);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne, 2)}));
  keeper->Poll();
  bench.AwaitFile("starts", "1\n");
  CHECK(ReadOwner(bench.Folder(1))->store.epoch() == 2);
  // A second keeper, which knows nothing of it, as of a store that was put back.
  KeeperOptions other = bench.options;
  other.state_folder += "-other";
  const auto second = Keeper::Open(other);
  REQUIRE(second.ok());
  (*second)->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne, 3)}));
  CheckRefused(bench.AwaitEnd(**second, 1));
  CHECK(keeper->Poll().attempts(0).phase() != v1::ATTEMPT_ENDED);
  CHECK(fs::exists(AttemptFolder(bench.Attempt(1)).temporary_folders().session));
  CHECK(keeper->HoldsLive());
  bench.Touch("go");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(!keeper->HoldsLive());
}

TEST_CASE("stores: jobs of one number of two stores are two, also after a restart") {
  KeeperBench bench(kWaits);
  v1::DesiredAttempt one = Of(bench.Attempt(1), kOne);
  v1::DesiredAttempt other = Of(bench.Attempt(1), kOther);
  other.mutable_launch()->set_run_folder(bench.run + "/other");
  fs::create_directories(bench.run + "/other");
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({one}));
    keeper->Poll();
    bench.AwaitFile("starts", "1\n");
  }
  const auto keeper = bench.Open();
  // The whole of what the other store has: the first one's job is none of it, and is ended.
  keeper->SetDesired(bench.Desired({other}));
  const v1::AttemptReport ended = AwaitEndOf(*keeper, kOne);
  CHECK(ended.exit_code() != 0);
  bench.Touch("go");
  CHECK(AwaitEndOf(*keeper, kOther).exit_code() == 0);
}

TEST_CASE(
    "stores: an attempt that an agent of before has begun is that of the store that names it") {
  KeeperBench bench(kWaits);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    keeper->Poll();
    bench.AwaitFile("starts", "1\n");
  }
  const std::string nameless = bench.options.state_folder + "/attempts/7-1.json";
  const std::string text = Slurp(nameless);
  for (int start = 0; start < 2; ++start) {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne)}));
    const v1::NodeReport report = keeper->Poll();
    REQUIRE(report.attempts_size() == 1);
    CHECK(report.attempts(0).store().store() == kOne);
    CHECK(report.attempts(0).phase() != v1::ATTEMPT_ENDED);
    CHECK(!fs::exists(nameless));
    // As if the power had gone before the old name was removed.
    if (start == 0) std::ofstream(nameless) << text;
  }
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne)}));
  bench.Touch("go");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(bench.Lines("starts") == 1);
}

TEST_CASE("stores: where the disk does not say whose an attempt is, it is not given up") {
  KeeperBench bench(kWaits);
  const auto wanted = bench.Desired({Of(bench.Attempt(1), kOne)});
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(wanted);
    keeper->Poll();
    bench.AwaitFile("starts", "1\n");
  }
  const std::string owner = bench.Folder(1) + "/attempt.json";
  fs::rename(owner, owner + ".away");
  fs::create_directory(owner);  // cannot be read
  const auto keeper = bench.Open();
  keeper->SetDesired(wanted);
  for (int turn = 0; turn < 5; ++turn) {
    CHECK(keeper->Poll().attempts(0).phase() != v1::ATTEMPT_ENDED);
  }
  fs::remove(owner);
  fs::rename(owner + ".away", owner);
  bench.Touch("go");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(bench.Lines("starts") == 1);
}

TEST_CASE("stores: a report says where the ranks of what is held are, if asked") {
  KeeperBench bench(kWaits);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({Of(bench.Attempt(1), kOne)}));
  v1::NodeReport report = keeper->Poll();
  CHECK(report.attempts(0).allocation_size() == 0);
  keeper->AddAllocations(report);
  REQUIRE(report.attempts(0).allocation_size() == 1);
  CHECK(report.attempts(0).allocation(0).ranks() == 1);
  bench.Touch("go");
  bench.AwaitEnd(*keeper, 1);
}

}  // namespace
}  // namespace trireme::keeper
