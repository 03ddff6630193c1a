// What Slurm's programs print, also as they should not.
#include "coordinator/slurm/answers.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "coordinator/slurm/time_limit.h"

namespace trireme::slurm {
namespace {

TEST_CASE("steps are read") {
  const auto steps = ParseSteps(
      "12.0|trireme-1-1-0000abcd\n12.batch|batch\n12.extern|extern\n12.13|a|b\n12|x\n.1|x\n12.|x\n"
      "12.1\n--all|x\n");
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].id == "12.0");
  CHECK(steps[0].name == "trireme-1-1-0000abcd");
  CHECK(steps[1].id == "12.13");
  CHECK(steps[1].name == "a|b");
  const auto parts = ParseSteps("12_3.0|of-an-array\n12+1.2|of-a-part\n12_3.batch|no\n-.0|no\n");
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].id == "12_3.0");
  CHECK(parts[1].id == "12+1.2");
}

TEST_CASE("squeue is read") {
  const auto jobs = ParseQueue(
      "12|PENDING|Resources|trireme-7-1-0000abcd\n"
      "13|RUNNING|None|a|b|c\n"
      "14|COMPLETING|None|(null)\n"
      "15|TIMEOUT|TimeLimit|\n"
      "16|SOMETHING_NEW|ReqNodeNotAvail, UnavailableNodes:n1|x\n");
  REQUIRE(jobs.size() == 5);
  CHECK(jobs[0].id == 12);
  CHECK(jobs[0].phase == JobPhase::kPending);
  CHECK(jobs[0].reason == "Resources");
  CHECK(jobs[0].comment == "trireme-7-1-0000abcd");
  CHECK(jobs[1].phase == JobPhase::kLive);
  CHECK(jobs[1].reason.empty());
  CHECK(jobs[1].comment == "a|b|c");
  CHECK(jobs[2].phase == JobPhase::kLive);
  CHECK(jobs[3].phase == JobPhase::kEnded);
  CHECK(jobs[4].phase == JobPhase::kLive);
  CHECK(jobs[4].reason == "ReqNodeNotAvail, UnavailableNodes:n1");
}

TEST_CASE("lines of squeue that make no sense are passed over") {
  CHECK(ParseQueue("").empty());
  CHECK(ParseQueue("\n\nslurm_load_jobs error: Unable to contact\n12|RUNNING\n|RUNNING|None|x\n"
                   "-3|RUNNING|None|x\n99999999999999999999999|RUNNING|None|x\n0|RUNNING|None|x\n"
                   "12 |RUNNING|None|x\n12||None|x")
            .empty());
  const auto cut = ParseQueue("7|PENDING|\x1b[31mBad\tWords|x");
  REQUIRE(cut.size() == 1);
  CHECK(cut[0].reason == "[31mBadWords");
  std::mt19937 random(5);
  const std::string letters = "0123456789|\nPENDING None\xff";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += letters[random() % letters.size()];
    for (const SlurmJob& job : ParseQueue(text)) CHECK(job.id > 0);
    ParsePartition(text, "main").status().IgnoreError();
    ParseExitCode(" ExitCode=" + text);
    ParseSubmitted(text);
    ParseTimeLimit(text).status().IgnoreError();
  }
}

TEST_CASE("sinfo is summed over the nodes of a partition") {
  const std::string text =
      "n1|main*|8|16000|gpu:a100:4(S:0-1),shard:16\n"
      "n1|debug|8|16000|gpu:a100:4(S:0-1),shard:16\n"
      "n2|main*|8+|16000+|gpu:2\n"
      "n2|main*|8|16000|gpu:2\n"
      "n3|debug|4|1000|(null)\n"
      "bad|main*|many|1|(null)\n"
      "n4|main*|2|500|gpu:a:1(S:0,1),gpu:b:x,license:gpu:7\n";
  const auto main = ParsePartition(text, "");
  REQUIRE(main.ok());
  CHECK(main->nodes == 3);
  CHECK(main->cpus == 18);
  CHECK(main->memory_bytes == (uint64_t{32500} << 20));
  CHECK(main->gpus == 7);
  CHECK(ParsePartition(text, "main")->nodes == 3);
  CHECK(ParsePartition(text, "debug")->cpus == 12);
  CHECK(ParsePartition(text, "none").status().message() ==
        "Slurm has no partition \"none\" with nodes; sinfo lists them");
  CHECK_FALSE(ParsePartition("n1|debug|8|16000|(null)\n", "").ok());
}

TEST_CASE("the exit code of scontrol") {
  CHECK(ParseExitCode("JobId=1 JobState=FAILED ExitCode=75:0 DerivedExitCode=0:0") == 75);
  CHECK(ParseExitCode("JobId=1 JobState=TIMEOUT ExitCode=0:15") == 143);
  CHECK_FALSE(ParseExitCode("JobId=1 DerivedExitCode=3:0"));
  CHECK_FALSE(ParseExitCode("JobId=1 ExitCode=a:0"));
  CHECK_FALSE(ParseExitCode("JobId=1 ExitCode=1"));
  CHECK_FALSE(ParseExitCode("JobId=1 ExitCode=300:0"));
}

TEST_CASE("the number that sbatch gives") {
  CHECK(ParseSubmitted("123\n") == 123);
  CHECK(ParseSubmitted("123;east\n") == 123);
  CHECK_FALSE(ParseSubmitted("Submitted batch job 123\n"));
  CHECK_FALSE(ParseSubmitted(""));
  CHECK_FALSE(ParseSubmitted("0"));
}

TEST_CASE("time limits of Slurm") {
  CHECK(ParseTimeLimit("90")->count() == 5400);
  CHECK(ParseTimeLimit("1:30")->count() == 90);
  CHECK(ParseTimeLimit("12:00:00")->count() == 43200);
  CHECK(ParseTimeLimit("2-6")->count() == 194400);
  CHECK(ParseTimeLimit("1-0:30")->count() == 88200);
  CHECK(ParseTimeLimit("1-00:00:05")->count() == 86405);
  for (const char* wrong : {"", "0", "0:00", "-1", "1:", "1:2:3:4", "1-1:1:1:1", "1-", "-5:0",
                            "UNLIMITED", "1 hour", "99999999999999999999", "1-2-3"}) {
    INFO(wrong);
    CHECK_FALSE(ParseTimeLimit(wrong).ok());
  }
  CHECK(WarningBefore(std::chrono::hours(12)).count() == 300);
  CHECK(WarningBefore(std::chrono::seconds(90)).count() == 30);
  CHECK(WarningBefore(std::chrono::seconds(1)).count() == 1);
}

}  // namespace
}  // namespace trireme::slurm
