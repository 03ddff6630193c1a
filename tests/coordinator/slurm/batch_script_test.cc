// Batch files: what sbatch reads of them, and what bash makes of them with programs that stand for
// Slurm's.
#include "coordinator/slurm/batch_script.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "coordinator/process/command.h"
#include "tests/coordinator/slurm/fake_slurm.h"

namespace trireme::slurm {
namespace {

// A word that a shell would tear apart or obey.
constexpr const char* kHostile = "a b'c\"$(touch pwned)`touch pwned`;touch pwned\\&*|~#\nx";

BatchJob SmallJob() {
  BatchJob job;
  job.name = "tiny";
  job.ranks = 4;
  job.nodes = 2;
  job.worker = {"/opt/trireme-worker", "--job", "/data/job.yaml"};
  job.run_folder = "/data/runs/tiny";
  return job;
}

bool HasLine(const std::string& script, const std::string& line) {
  return ("\n" + script).find("\n" + line + "\n") != std::string::npos;
}

std::string MustStandAlone(const BatchJob& job, const BatchOptions& options = {}) {
  const auto script = StandaloneScript(job, options);
  REQUIRE(script.ok());
  return *script;
}

process::CommandResult RunScript(const FakeSlurm& fake, const std::string& script,
                                 const std::vector<std::string>& arguments = {}) {
  fake.Write("script", script);
  process::Command bash;
  bash.argv = {"bash", fake.folder() + "/script"};
  bash.argv.insert(bash.argv.end(), arguments.begin(), arguments.end());
  bash.environment = {"SLURM_JOB_ID=42", "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[1-2]",
                      "SLURM_PROCID=0"};
  bash.deadline = std::chrono::seconds(60);
  const auto result = process::RunCommand(bash);
  REQUIRE(result.ok());
  return *result;
}

// Parts of srun's script: what a worker does that notes and gives a checkpoint under `root`.
std::string Notes(const std::string& name) {
  return "for word; do [ \"$last\" = --save-log ] && log=$word; last=$word; done; echo " + name +
         " >>\"$log\"; ";
}
std::string Saves(const std::string& root, const std::string& name) {
  const std::string folder = root + "/" + name;
  return "mkdir -p '" + folder + "'; >'" + folder + "/manifest.json'; " + Notes(name);
}

// srun that shows its words, one a line.
constexpr const char* kShowWords = "for word; do printf '<%s>\\n' \"$word\"; done";

TEST_CASE("an attempt of a job with a time limit of its own asks Slurm for that and slack") {
  v1::LaunchSpec launch;
  v1::JobSpec& spec = *launch.mutable_job();
  CHECK(AttemptTimeLimit(launch).count() == 0);
  spec.mutable_runtime()->set_deadline_seconds(60);
  spec.mutable_resources()->set_time_limit_seconds(7200.5);
  BatchJob job = SmallJob();
  job.time_limit = AttemptTimeLimit(launch);
  CHECK(job.time_limit.count() == 7261 + 20 * 60);
  // Of a later attempt, what is left; never more than all of it.
  launch.set_time_left_seconds(100);
  CHECK(AttemptTimeLimit(launch).count() == 160 + 20 * 60);
  launch.set_time_left_seconds(9000);
  CHECK(AttemptTimeLimit(launch).count() == 7261 + 20 * 60);
  const auto script = AttemptScript(job, {}, "/data/runs/tiny/attempts/1");
  REQUIRE(script.ok());
  CHECK(HasLine(*script, "#SBATCH --time=142"));
  CHECK(HasLine(*script, "#SBATCH --signal=USR1@300"));
  // The site's own wins.
  const auto site = AttemptScript(job, {"", "", "10", {}}, "/data/runs/tiny/attempts/1");
  REQUIRE(site.ok());
  CHECK(HasLine(*site, "#SBATCH --time=10"));
  CHECK(HasLine(*site, "#SBATCH --signal=USR1@200"));
  // A batch file that goes on through time limits is the user's to bound.
  CHECK(BatchJobOf(spec, 4).time_limit.count() == 0);
}

TEST_CASE("the head of a batch file") {
  BatchJob job = SmallJob();
  job.cpus_per_rank = 3;
  const std::string script = MustStandAlone(job);
  CHECK(script.rfind("#!/bin/bash\n", 0) == 0);
  for (const char* line :
       {"#SBATCH --job-name=tiny", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2",
        "#SBATCH --ntasks=4", "#SBATCH --cpus-per-task=3", "#SBATCH --requeue",
        "#SBATCH --open-mode=append", "#SBATCH --signal=USR1@300",
        "#SBATCH --output=tiny-%j.log"}) {
    INFO(line);
    CHECK(HasLine(script, line));
  }
  for (const char* absent : {"--mem", "gpu", "--partition", "--account", "--time", "--comment"}) {
    INFO(absent);
    CHECK(script.find(std::string("#SBATCH ") + absent) == std::string::npos);
  }
  job.nodes = 0;
  const std::string free = MustStandAlone(job);
  CHECK(free.find("ntasks-per-node") == std::string::npos);
  CHECK(free.find("--nodes") == std::string::npos);
}

TEST_CASE("resources in a batch file") {
  v1::JobSpec spec;
  spec.set_name("big");
  spec.mutable_resources()->set_gpus_per_rank(2);
  spec.mutable_resources()->set_cpus_per_rank(3);
  spec.mutable_resources()->set_memory_mib_per_rank(1000);
  spec.mutable_runtime()->set_threads(8);
  BatchJob job = BatchJobOf(spec, 6);
  job.nodes = 4;
  const std::string script =
      MustStandAlone(job, {"gpu", "bank", "1-12:00:00", {"--qos=high --exclusive"}});
  for (const char* line :
       {"#SBATCH --gpus-per-task=2", "#SBATCH --gpu-bind=per_task:2", "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem-per-cpu=334M", "#SBATCH --ntasks-per-node=2", "#SBATCH --partition=gpu",
        "#SBATCH --account=bank", "#SBATCH --time=1-12:00:00", "#SBATCH --qos=high --exclusive"}) {
    INFO(line);
    CHECK(HasLine(script, line));
  }
  CHECK(script.find(" --gpus-per-task=2 --gpu-bind=per_task:2 \\\n") != std::string::npos);
  spec.clear_resources();
  CHECK(BatchJobOf(spec, 1).cpus_per_rank == 8);
  spec.clear_runtime();
  CHECK(BatchJobOf(spec, 1).cpus_per_rank == 1);
  CHECK(HasLine(MustStandAlone(SmallJob(), {"", "", "10", {}}), "#SBATCH --signal=USR1@200"));
}

TEST_CASE("what cannot stand in a batch file is refused") {
  BatchJob job = SmallJob();
  job.nodes = 5;
  CHECK(StandaloneScript(job, {}).status().message() ==
        "the job has 4 ranks, too few for 5 nodes: use at most -N 4, or more ranks");
  job.nodes = 2;
  for (const BatchOptions& options : std::vector<BatchOptions>{{"p\n#SBATCH --uid=0", "", "", {}},
                                                               {"", "a\rb", "", {}},
                                                               {"", "", "soon", {}},
                                                               {"", "", "", {"--qos=a\nrm -rf /"}},
                                                               {"", "", "", {"rm"}},
                                                               {"", "", "", {""}}}) {
    CHECK(StandaloneScript(job, options).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_FALSE(AttemptScript(job, options, "/run/attempts/1").ok());
  }
  // Blanks and the like reach sbatch as one word.
  CHECK(HasLine(MustStandAlone(job, {"a b#c'd", "", "", {}}), "#SBATCH --partition=a\\ b\\#c\\'d"));
}

TEST_CASE("a hostile word reaches the worker as it is") {
  FakeSlurm fake;
  fake.Program("srun", kShowWords);
  BatchJob job = SmallJob();
  job.run_folder = fake.folder() + "/" + kHostile;
  job.worker = {"/opt/trireme worker", "--job", kHostile};
  const auto result = RunScript(fake, MustStandAlone(job), {"--set", kHostile});
  CHECK(result.exit_code == 0);
  INFO(result.output << result.errors);
  CHECK(result.output.find("</opt/trireme worker>\n<--job>\n<" + std::string(kHostile) +
                           ">\n<--run-dir>\n<" + job.run_folder + "-42>\n<--save-log>\n<" +
                           job.run_folder + "-42/saves.42.1>\n<--set>\n<" + kHostile + ">\n") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists("pwned"));
}

TEST_CASE("a stopped job is queued again and a wrong one is not") {
  FakeSlurm fake;
  fake.Program("scontrol", "");
  fake.Program("srun", "exit 75");
  BatchJob job = SmallJob();
  job.run_folder = fake.folder() + "/run";
  const std::string script = MustStandAlone(job);
  CHECK(RunScript(fake, script).exit_code == 75);
  CHECK(fake.Read("scontrol.calls") == "requeue 42\n");
  // The request came before the ranks listened: they died of USR1.
  fake.Program("srun", "exit 138");
  CHECK(RunScript(fake, script).exit_code == 138);
  CHECK(fake.Read("scontrol.calls") == "requeue 42\nrequeue 42\n");
  std::filesystem::remove(fake.folder() + "/scontrol.calls");
  fake.Program("srun", "exit 2");
  CHECK(RunScript(fake, script).exit_code == 2);
  // A fault that brought a checkpoint is worth another attempt, one that brought none is not.
  fake.Program("srun", "exit 137");
  CHECK(RunScript(fake, script).exit_code == 137);
  CHECK(fake.Read("scontrol.calls").empty());
  fake.Program("srun", Saves(job.run_folder + "-42/checkpoints", "step-00000010") + "exit 137");
  CHECK(RunScript(fake, script).exit_code == 137);
  CHECK(fake.Read("scontrol.calls") == "requeue 42\n");
}

TEST_CASE("what an attempt has saved itself is worth another, whatever lies there") {
  FakeSlurm fake;
  fake.Program("scontrol", "");
  BatchJob job = SmallJob();
  job.run_folder = fake.folder() + "/run";
  const std::string run = job.run_folder + "-42";
  const std::string damaged = run + "/checkpoints/step-00000030";
  const auto requeued = [&](const std::string& srun, const std::vector<std::string>& words = {}) {
    std::filesystem::create_directories(damaged);
    std::ofstream(damaged + "/manifest.json") << "{}";
    std::filesystem::remove(fake.folder() + "/scontrol.calls");
    fake.Program("srun", srun + "exit 4");
    CHECK(RunScript(fake, MustStandAlone(job), words).exit_code == 4);
    return !fake.Read("scontrol.calls").empty();
  };
  // A damaged one has been set aside: that is no progress; to save before it, or at it again, is.
  const std::string aside = "rm -rf " + damaged + "; ";
  CHECK_FALSE(requeued(""));
  CHECK_FALSE(requeued(aside));
  CHECK(requeued(aside + Saves(run + "/checkpoints", "step-00000020")));
  CHECK(requeued(aside + Saves(run + "/checkpoints", "step-00000030")));
  // What the attempt before has noted is of that one.
  CHECK_FALSE(requeued(""));
  // Noted, and not come to.
  CHECK_FALSE(requeued(Notes("step-00000040")));
  // Elsewhere.
  const std::string other = fake.folder() + "/other folder";
  const std::string save = Saves(other, "step-00000007");
  CHECK(requeued(save, {"--set", "checkpoint.directory=" + other}));
  CHECK(requeued(save, {"--set=checkpoint.directory=" + other}));
  // Nothing of its own is left.
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    CHECK_FALSE(entry.path().filename().string().starts_with("saves."));
  }
}

TEST_CASE("a job that is sent to the folder of a live run neither takes nor touches its saves") {
  FakeSlurm fake;
  fake.Program("scontrol", "");
  const std::string run = fake.folder() + "/run-41";
  const std::string step = run + "/checkpoints/step-00000040";
  std::filesystem::create_directories(step);
  std::filesystem::create_directories(run + "/recorder");
  std::ofstream(step + "/manifest.json") << "{}";
  const std::vector<std::string> logs = {"run-41/recorder/saves", "run-41/saves.41.1"};
  std::string live;  // saves meanwhile
  for (const std::string& log : logs) {
    fake.Write(log, "step-00000030\n");
    live += "echo step-00000040 >>" + fake.folder() + "/" + log + "; ";
  }
  fake.Program("srun", live + "exit 4");
  CHECK(RunScript(fake, MustStandAlone(SmallJob()), {"--run-dir", run}).exit_code == 4);
  CHECK(fake.Read("scontrol.calls").empty());
  for (const std::string& log : logs) CHECK(fake.Read(log) == "step-00000030\nstep-00000040\n");
}

TEST_CASE("a batch file knows the run folder that its caller names") {
  FakeSlurm fake;
  fake.Program("scontrol", "");
  BatchJob job = SmallJob();
  job.run_folder = fake.folder() + "/run";
  const std::string script = MustStandAlone(job);
  const std::string old = fake.folder() + "/an old=one";
  size_t requeued = 0;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--run-dir", old}, {"--run-dir=" + old}}) {
    ++requeued;
    fake.Program("srun",
                 Saves(old + "/checkpoints", "step-0000001" + std::to_string(requeued)) + "exit 4");
    CHECK(RunScript(fake, script, words).exit_code == 4);
    CHECK(fake.Read("scontrol.calls").size() == std::string("requeue 42\n").size() * requeued);
  }
}

TEST_CASE("a batch file of an attempt claims its folder once") {
  FakeSlurm fake;
  const std::string folder = fake.folder() + "/" + kHostile;
  std::filesystem::create_directories(folder + "/logs");
  fake.Program("srun", "while [ \"$1\" != /bin/sh ]; do shift; done; \"$@\"; exit 75");
  BatchJob job = SmallJob();
  job.worker = {"/bin/echo", "rows"};
  job.comment = "trireme-7-1";
  const auto script = AttemptScript(job, {}, folder);
  REQUIRE(script.ok());
  CHECK(HasLine(*script, "#SBATCH --no-requeue"));
  CHECK(HasLine(*script, "#SBATCH --comment=trireme-7-1"));
  CHECK(RunScript(fake, *script).exit_code == 75);
  const std::string inside = std::string(kHostile) + "/";
  CHECK(fake.Read(inside + "guard.json") == "{\"slurm_job\": 42}\n");
  CHECK(fake.Read(inside + "exit") == "{\"exit_code\": 75}\n");
  CHECK(fake.Read(inside + "logs/rank-0.log") == "rows\n");
  const std::string calls = fake.Read("srun.calls");
  CHECK(RunScript(fake, *script).exit_code == 0);
  CHECK(fake.Read("srun.calls") == calls);
  CHECK(fake.Read(inside + "exit") == "{\"exit_code\": 75}\n");
  CHECK(fake.Read(inside + "logs/mpirun.log").find("not wanted") != std::string::npos);
}

}  // namespace
}  // namespace trireme::slurm
