// The queue with programs that stand for Slurm's.
#include "coordinator/slurm/queue.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/coordinator/slurm/fake_slurm.h"

namespace trireme::slurm {
namespace {

bool Until(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_CASE("a script is submitted once and withdrawn") {
  FakeSlurm fake;
  fake.Program("sbatch", "sleep 0.2; echo 77");
  fake.Program("scancel", "");
  Queue queue;
  for (int i = 0; i < 3; ++i) queue.Submit("7-1", "/run/it's/batch.sh");
  queue.Submit("7-2", "/other");
  queue.Withdraw("7-2");  // most likely while it is under way
  queue.Forget("7-2");
  REQUIRE(Until([&] { return !queue.Find("7-1")->under_way; }));
  CHECK(queue.Find("7-1")->id == 77);
  queue.Submit("7-1", "/run/it's/batch.sh");
  REQUIRE(Until([&] { return fake.Read("scancel.calls") == "77\n"; }));
  CHECK_FALSE(queue.Find("7-2"));
  CHECK(fake.Read("sbatch.calls") == "--parsable /run/it's/batch.sh\n--parsable /other\n");
  queue.AskToStop(5);
  queue.Withdraw("7-1");
  CHECK(Until([&] { return fake.Read("scancel.calls") == "77\n--signal=USR1 5\n77\n"; }));
  CHECK_FALSE(queue.Find("7-1"));
}

TEST_CASE("a refusal of sbatch is told from its silence") {
  FakeSlurm fake;
  fake.Program("sbatch", "echo 'sbatch: error: invalid account' >&2; exit 1");
  Queue queue;
  queue.Submit("a", "/a");
  REQUIRE(Until([&] { return !queue.Find("a")->under_way; }));
  CHECK(queue.Find("a")->status.message() ==
        "sbatch does not take it (exit code 1): sbatch: error: invalid account");
  CHECK(absl::IsInvalidArgument(queue.Find("a")->status));
  fake.Program("sbatch", "echo 'sbatch: error: Unable to contact slurm controller' >&2; exit 1");
  queue.Submit("b", "/b");
  REQUIRE(Until([&] { return !queue.Find("b")->under_way; }));
  CHECK(absl::IsUnavailable(queue.Find("b")->status));
  // Behind what a site has it say first.
  fake.Program(
      "sbatch",
      "printf 'welcome\\nsbatch: error: QOSMaxSubmitJobPerUserLimit\\nsbatch: error: Batch "
      "job submission failed: Job violates accounting policy\\n' >&2; exit 1");
  queue.Submit("later", "/later");
  REQUIRE(Until([&] { return !queue.Find("later")->under_way; }));
  CHECK(absl::IsUnavailable(queue.Find("later")->status));
  CHECK(
      queue.Find("later")->status.message() ==
      "sbatch does not take it (exit code 1): sbatch: error: QOSMaxSubmitJobPerUserLimit; sbatch: "
      "error: Batch job submission failed: Job violates accounting policy");
  fake.Program("sbatch", "echo hello");
  queue.Submit("c", "/c");
  REQUIRE(Until([&] { return !queue.Find("c")->under_way; }));
  CHECK_FALSE(queue.Find("c")->status.ok());
  // What failed may be tried again.
  fake.Program("sbatch", "echo 5");
  queue.Submit("b", "/b");
  CHECK(Until([&] { return queue.Find("b")->id == 5; }));
}

TEST_CASE("one squeue serves all and its last answer stays") {
  FakeSlurm fake;
  fake.Program("squeue", "echo '12|PENDING|Resources|mine'");
  fake.Program("scontrol", "echo 'JobId=12 ExitCode=75:0'");
  Queue queue;
  REQUIRE(Until([&] { return queue.view()->asked_ns != 0; }));
  REQUIRE(queue.view()->jobs.size() == 1);
  CHECK(queue.view()->jobs[0].comment == "mine");
  fake.Program("squeue", "exit 1");
  const auto calls = [&] { return fake.Read("squeue.calls").size(); };
  const size_t before = calls();
  REQUIRE(Until([&] {
    queue.view();
    return calls() > before;
  }));
  CHECK(queue.view()->jobs.size() == 1);
  std::optional<int> code;
  REQUIRE(Until([&] {
    code = queue.TakeExitCode(12);
    return code.has_value();
  }));
  CHECK(code == 75);
}

TEST_CASE("the capacity of a partition") {
  FakeSlurm fake;
  fake.Program("sinfo", "echo 'n1|main*|4|1000|(null)'; echo 'n2|main*|4|1000|gpu:1'");
  const auto capacity = CapacityOf("main");
  REQUIRE(capacity.ok());
  CHECK(capacity->cpus == 8);
  CHECK(capacity->gpus == 1);
  fake.Program("sinfo", "echo 'sinfo: error: no controller' >&2; exit 1");
  CHECK(CapacityOf("main").status().message() == "sinfo: exit code 1: sinfo: error: no controller");
}

}  // namespace
}  // namespace trireme::slurm
