// Attempts as jobs of a Slurm that is played by scripts: each is submitted once, found again,
// asked, cancelled, and judged by what its batch script or Slurm says.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "coordinator/keeper/attempt_record.h"
#include "coordinator/process/command.h"
#include "tests/coordinator/keeper/keeper_bench.h"
#include "tests/coordinator/slurm/fake_slurm.h"

namespace trireme::keeper {
namespace {

// Jobs are lines of the file `jobs`, as squeue prints them.
class SlurmBench {
 public:
  explicit SlurmBench(const std::string& rank = "exit 0") : keeper(rank + "\n") {
    keeper.options.slurm = slurm::BatchOptions{"main", "", "10", {}};
    const std::string jobs = slurm.folder() + "/jobs";
    slurm.Write("jobs", "");
    slurm.Program("squeue", "cat " + jobs);
    // Numbers by the lines so far.
    slurm.Program("sbatch", "id=$(($(wc -l <" + jobs + ") + 1))\ncomment=$(sed -n 's/^#SBATCH " +
                                "--comment=//p' \"$2\")\necho \"$id|PENDING|Resources|$comment\" " +
                                ">>" + jobs + "\necho $id");
    slurm.Program("scancel", "case $1 in --*) touch " + keeper.run +
                                 "/end;; *) sed -i \"s/^$1|[A-Z]*|/$1|CANCELLED|/\" " + jobs +
                                 ";; esac");
    slurm.Program("scontrol", "echo 'JobId=1 ExitCode=0:15'");
    slurm.Program("srun",
                  "while [ \"$1\" != /bin/sh ]; do shift; done; SLURM_PROCID=0; "
                  "export SLURM_PROCID; exec \"$@\"");
  }
  void State(uint64_t id, const std::string& state) const {
    process::Command sed;
    sed.argv = {"/usr/bin/sed", "-i",
                fmt::format("s/^{0}|[A-Z_]*|[A-Za-z]*|/{0}|{1}|None|/", id, state),
                slurm.folder() + "/jobs"};
    CHECK(process::OutputOf(sed).ok());
  }
  // As Slurm would: the state goes with the script.
  void RunBatch(uint64_t id, const std::string& after = "COMPLETED") const {
    State(id, "RUNNING");
    process::Command bash;
    bash.argv = {"/bin/bash", keeper.Folder(1) + "/batch.sh"};
    bash.environment = {fmt::format("SLURM_JOB_ID={}", id),
                        "PATH=" + slurm.folder() + ":/usr/bin:/bin"};
    bash.deadline = std::chrono::seconds(60);
    CHECK(process::RunCommand(bash).ok());
    State(id, after);
  }
  v1::DesiredAttempt Attempt(v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN) const {
    v1::DesiredAttempt attempt = keeper.Attempt(1, desired_state);
    attempt.mutable_launch()->mutable_job()->set_name("tiny");
    return attempt;
  }
  void AwaitQueued(Keeper& one) const {
    keeper.Await(one, 1, [](const v1::AttemptReport& report) {
      CHECK(report.phase() == v1::ATTEMPT_STARTING);
      return report.waits_for() == "waits in Slurm's queue as job 1: Resources";
    });
  }
  // The guard.json of a batch script that has begun.
  void Claim(uint64_t id) const {
    std::ofstream(keeper.Folder(1) + "/guard.json") << fmt::format("{{\"slurm_job\": {}}}", id);
    State(id, "RUNNING");
  }

  KeeperBench keeper;  // first: it sets PATH aside
  slurm::FakeSlurm slurm;
};

TEST_CASE("an attempt is one Slurm job and ends with its code") {
  SlurmBench bench("for each in \"$@\"; do echo \"$each\" >> $run/arguments; done; exit 75");
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.RunBatch(1);
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  CHECK(end.launcher());
  CHECK_FALSE(end.has_failure());
  CHECK(end.waits_for().empty());
  CHECK(bench.slurm.Read("sbatch.calls") == "--parsable " + bench.keeper.Folder(1) + "/batch.sh\n");
  CHECK(Slurp(bench.keeper.run + "/arguments").find("own argument\n--job\n") == 0);
  const std::string script = Slurp(bench.keeper.Folder(1) + "/batch.sh");
  CHECK(script.find("#SBATCH --job-name=tiny-7-1\n") != std::string::npos);
  CHECK(script.find("#SBATCH --time=10\n") != std::string::npos);
}

TEST_CASE("a keeper that forgot its submission finds it in the queue") {
  SlurmBench bench;
  {
    const auto keeper = bench.keeper.Open();
    keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
    bench.keeper.Await(*keeper, 1,
                       [](const v1::AttemptReport& report) { return !report.waits_for().empty(); });
  }
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.RunBatch(1);
  CHECK(bench.keeper.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(bench.slurm.Read("jobs").find("2|") == std::string::npos);
}

TEST_CASE("a queued attempt that is stopped never runs") {
  SlurmBench bench("echo up >> $run/up; exit 0");
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt(v1::ATTEMPT_STOP)}));
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  // Slurm may have started it this moment.
  bench.RunBatch(1, "COMPLETED");
  CHECK(bench.keeper.Lines("up") == 0);
  bench.keeper.Await(
      *keeper, 1, [&](const auto&) { return bench.slurm.Read("scancel.calls").find("1\n") == 0; });
}

TEST_CASE("a grace ends also where the machine of the keeper was started anew meanwhile") {
  SlurmBench bench;
  {
    const auto keeper = bench.keeper.Open();
    keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
    bench.AwaitQueued(*keeper);
    bench.Claim(1);
    v1::DesiredAttempt stop = bench.Attempt(v1::ATTEMPT_STOP);
    stop.set_grace_seconds(3600);
    keeper->SetDesired(bench.keeper.Desired({stop}));
    bench.keeper.Await(*keeper, 1, [&](const auto&) {
      return bench.slurm.Read("scancel.calls").find("--signal=USR1 1\n") == 0;
    });
  }
  // As if that machine had been up for ten years longer.
  const std::string& state = bench.keeper.options.state_folder;
  auto records = LoadRecords(state);
  REQUIRE((records.ok() && records->size() == 1));
  const int64_t asked_ns = records->front().stop_at_ns;
  CHECK(asked_ns > 0);
  records->front().stop_at_ns += int64_t{10} * 365 * 86400 * 1000000000;
  REQUIRE(SaveRecord(state, records->front()).ok());
  const auto keeper = bench.keeper.Open();
  v1::DesiredAttempt stop = bench.Attempt(v1::ATTEMPT_STOP);
  stop.set_grace_seconds(0.3);
  keeper->SetDesired(bench.keeper.Desired({stop}));
  CHECK(bench.keeper.AwaitEnd(*keeper, 1).exit_code() == 128 + SIGKILL);
  records = LoadRecords(state);
  REQUIRE((records.ok() && records->size() == 1));
  const int64_t after_ns = records->front().stop_at_ns - asked_ns;
  CHECK((after_ns > 0 && after_ns < int64_t{3600} * 1000000000));
}

TEST_CASE("a running Slurm job is asked and then cancelled") {
  SlurmBench bench;
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.Claim(1);
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt(v1::ATTEMPT_STOP)}));
  bench.keeper.Await(*keeper, 1, [&](const auto&) {
    return bench.slurm.Read("scancel.calls").find("--signal=USR1 1\n") == 0;
  });
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt(v1::ATTEMPT_KILL)}));
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 128 + SIGKILL);
  CHECK(end.failure().headline() == "killed as asked");
}

TEST_CASE("what Slurm refuses is told and not tried again") {
  SlurmBench bench;
  bench.slurm.Program("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1");
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 2);
  CHECK(end.failure().headline().find("Invalid account") != std::string::npos);
}

TEST_CASE("a Slurm job that ends without a word is judged by its state") {
  SlurmBench bench;
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.Claim(1);
  bench.State(1, "TIMEOUT");
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 143);
  CHECK(end.failure().headline() == "Slurm ended job 1: TIMEOUT");
  CHECK(end.failure().next_action().find("--time") != std::string::npos);
}

// No agent is where Slurm's ranks are, so it is Slurm that says when their node is lost.
TEST_CASE("a Slurm job whose node failed has failed, though Slurm says 0 of it") {
  SlurmBench bench;
  bench.slurm.Program("scontrol", "echo 'JobId=1 JobState=NODE_FAIL ExitCode=0:0'");
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.Claim(1);
  bench.State(1, "NODE_FAIL");
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 137);
  CHECK(end.failure().headline() == "Slurm ended job 1: NODE_FAIL");
  CHECK(end.failure().next_action() == "look at the node: sinfo -R");
}

TEST_CASE("a Slurm job whose node failed before it began is tried again") {
  SlurmBench bench;
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.State(1, "NODE_FAIL");
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  // Another attempt may fare better: no bad input.
  CHECK(end.exit_code() == 4);
  CHECK(end.failure().headline() ==
        "attempt 1 was not started: Slurm job 1 has ended before it began: NODE_FAIL");
}

TEST_CASE("a Slurm job whose script has come to say how it ended is not judged by its node") {
  SlurmBench bench("exit 75");
  const auto keeper = bench.keeper.Open();
  keeper->SetDesired(bench.keeper.Desired({bench.Attempt()}));
  bench.AwaitQueued(*keeper);
  bench.RunBatch(1, "NODE_FAIL");
  const v1::AttemptReport end = bench.keeper.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  CHECK_FALSE(end.has_failure());
}

}  // namespace
}  // namespace trireme::keeper
