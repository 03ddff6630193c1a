// The program `trireme` from outside: exit codes, messages, files.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/coordinator/cli/bench.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

TEST_CASE("help, version and words that are no commands") {
  const Bench bench;
  const Result help = bench.Run("--help");
  CHECK(help.code == 0);
  for (const char* word : {"run", "plan", "generate", "validate", "checkpoint", "version"}) {
    CHECK(Holds(help.out, word));
  }
  CHECK(Holds(bench.Run("run --help").out, "Examples:"));
  CHECK(bench.Run("version").out.rfind("trireme 0.", 0) == 0);
  CHECK(bench.Run("--version").out == bench.Run("version").out);
  CHECK(bench.Run("version --json").out.rfind("{\"version\":\"0.", 0) == 0);
  const Result typo = bench.Run("rnu job.yaml");
  CHECK(typo.code == 2);
  CHECK(Holds(typo.out, "did you mean run?"));
  CHECK(Holds(bench.Run("checkpoint verfy x").out, "did you mean checkpoint verify?"));
  CHECK_FALSE(Holds(bench.Run("xyzzy").out, "did you mean"));
  CHECK(bench.Run("").code == 2);
  CHECK(bench.Run("").out == "trireme: a command is missing (trireme --help lists the commands)\n");
  const Result lacks = bench.Run("plan");
  CHECK(lacks.code == 2);
  CHECK(lacks.out.rfind("trireme plan: job is required", 0) == 0);
  const Result option = bench.Run("show --jsn");
  CHECK(option.code == 2);
  CHECK(option.out.rfind("trireme show: unknown option --jsn, did you mean --json?", 0) == 0);
  CHECK(Holds(bench.Run("codec stat --nosuch x y").out, "codec stat: unknown option --nosuch ("));
  CHECK(Holds(bench.Run("show a b").out, "trireme show: The following argument was not expected"));
  CHECK(bench.Run("run job.yaml -n 0").code == 2);
}

TEST_CASE("who gives -n to a command without it is told what to write") {
  const Bench bench;
  const Result submit = bench.Run("submit job.yaml -n 2");
  CHECK(submit.code == 2);
  CHECK(submit.out.rfind("trireme submit: unknown option -n, use --set resources.ranks=2 (", 0) ==
        0);
  CHECK(Holds(bench.Run("submit job.yaml -n4").out, "use --set resources.ranks=4 ("));
  CHECK(Holds(bench.Run("submit job.yaml --ranks=8").out, "use --set resources.ranks=8 ("));
  CHECK(Holds(bench.Run("submit -n 2 job.yaml").out, "use --set resources.ranks=N ("));
  CHECK(Holds(bench.Run("validate job.yaml --ranks 2").out, "use --set resources.ranks=2 ("));
  // Of a command that takes no job.
  CHECK_FALSE(Holds(bench.Run("show 1 -n 2").out, "resources.ranks"));
  CHECK(Holds(bench.Run("submit --help").out, "--set resources.ranks=4"));
}

TEST_CASE("slurm-script: as JSON with the file it was written to") {
  const Bench bench;
  const std::string begin = "{\"script\":\"#!/bin/bash\\n";
  const Result shown = bench.Run("slurm-script job.yaml --json");
  CHECK(shown.code == 0);
  CHECK(shown.out.rfind(begin, 0) == 0);
  CHECK(Holds(shown.out, "\"file\":\"\"}\n"));
  const Result written = bench.Run("slurm-script job.yaml --json -o s.sbatch");
  CHECK(written.out.rfind(begin, 0) == 0);
  CHECK(Holds(written.out, "\"file\":\"s.sbatch\"}\n"));
  CHECK(Slurp(bench.folder() + "/s.sbatch").rfind("#!/bin/bash\n", 0) == 0);
}

// Submitted from another folder it means the same files, and looks for what was saved where the
// ranks save.
TEST_CASE("slurm-script: paths given by --set are meant from here") {
  const Bench bench;
  const Result script = bench.Run(
      "slurm-script job.yaml --set 'checkpoint={directory: saved}' --set "
      "data.text_files=[text.txt] --set seed=7");
  CAPTURE(script.out);
  CHECK(script.code == 0);
  CHECK(Holds(script.out, "checkpoints=" + bench.folder() + "/saved\n"));
  CHECK(Holds(script.out, "checkpoint.directory=\"" + bench.folder() + "/saved\""));
  CHECK(Holds(script.out, "data.text_files=[\"" + bench.folder() + "/text.txt\"]"));
  CHECK(Holds(script.out, "--set seed=7"));
}

TEST_CASE("bad input ends with 2 before anything is made, and is said once") {
  const Bench bench;
  const Result missing = bench.Run("run none.yaml -n 1");
  CHECK(missing.code == 2);
  CHECK(Count(missing.out, "none.yaml") == 1);
  const Result unknown = bench.Run("run job.yaml -n 1 --set training.stps=4");
  CHECK(unknown.code == 2);
  CHECK(Holds(unknown.out, "steps"));
  std::ofstream(bench.folder() + "/text.txt") << "short";
  const Result text = bench.Run("validate job.yaml");
  CHECK(text.code == 2);
  CHECK(Holds(text.out, "too short"));
  CHECK(bench.Run("plan job.yaml -n 3 --set parallelism.tensor_parallel_size=2").code == 2);
  CHECK_FALSE(fs::exists(bench.folder() + "/runs"));
}

TEST_CASE("what the text decides is refused before the ranks start") {
  const Bench bench;
  const Result prompt = bench.Run("run job.yaml --set 'generation.prompt=the QueZen'");
  CHECK(prompt.code == 2);
  CHECK(Holds(prompt.out, "generation.prompt: the character 'Q' (U+0051) at byte 4 and later"));
  CHECK(Holds(prompt.out, "'Z' (U+005A) are not in the vocabulary"));
  CHECK(bench
            .Run("validate job.yaml --set generation.prompt=Q "
                 "--set generation.max_new_tokens=0")
            .code == 0);
  std::ofstream(bench.folder() + "/text.txt") << std::string(500, 'a');
  const Result split = bench.Run("plan job.yaml --set parallelism.tensor_parallel_size=2");
  CHECK(split.code == 2);
  CHECK(Holds(split.out, "tensor_parallel_size: 2 ranks cannot share vocab_size 1"));
  // The default prompt is a line feed, which is not there either, and nobody's fault.
  CHECK(bench.Run("validate job.yaml").code == 0);
  CHECK_FALSE(fs::exists(bench.folder() + "/runs"));
}

TEST_CASE("validate and plan speak of the job") {
  const Bench bench;
  CHECK(Holds(bench.Run("validate job.yaml --json").out,
              R"("ranks":{"least":1,"most":4,"step":1}})"));
  const Result valid = bench.Run("validate job.yaml");
  CHECK(valid.code == 0);
  CHECK(Holds(valid.out, "vocabulary of 13 tokens"));
  const Result plan = bench.Run(
      "plan job.yaml --ranks 2 --set parallelism.pipeline_parallel_size=2 --out p.pb --svg s.svg");
  CHECK(plan.code == 0);
  CHECK(fs::file_size(bench.folder() + "/p.pb") > 100);
  CHECK(Holds(Slurp(bench.folder() + "/s.svg"), "<svg"));
  const Result json = bench.Run("plan job.yaml -n 1 --json");
  CHECK(json.out.rfind("{", 0) == 0);
  CHECK(Holds(json.out, "\"vocab_size\": \"13\""));
  CHECK_FALSE(Holds(json.out, "instructions"));
  const Result programs = bench.Run("plan job.yaml -n 1 --json --programs");
  CHECK(Holds(programs.out, "\"instructions\":[{\"kind\":\"LOAD\""));
  CHECK(Count(programs.out, "\n") == 1);
  CHECK(bench.Run("plan job.yaml -n 1 --programs").code == 2);
}

TEST_CASE("the job gives the number of ranks and -n wins") {
  Bench bench;
  const std::string plan = "plan job.yaml --set resources.ranks=4 ";
  CHECK(Holds(bench.Run(plan).out, "4 ranks"));
  CHECK(Holds(bench.Run(plan + "-n 2").out, "2 ranks"));
  const Result odd = bench.Run(plan + "--set parallelism.data_parallel_size=3");
  CHECK(odd.code == 2);
  CHECK(Holds(odd.out, "resources.ranks: 4 is not data_parallel_size 3 x"));
}

TEST_CASE("plan says whether compression pays on the job's link") {
  const Bench bench;
  const std::string plan = "plan job.yaml -n 4 --set parallelism.pipeline_parallel_size=2 ";
  CHECK_FALSE(Holds(bench.Run(plan).out, "\ncompression\n"));
  const std::string small = "--set compression.data_parallel.min_bytes=0 ";
  const Result slow = bench.Run(plan + small + "--set compression.link_gbits=0.1");
  CAPTURE(slow.out);
  CHECK(slow.code == 0);
  CHECK(Holds(slow.out, "gradients   off; if on, rms:0.55: "));
  CHECK(Holds(slow.out, "messages    off; if on, rms:0.05: 0 of 1 transfers"));  // too small
  CHECK(Holds(slow.out, "on 0.1 Gb/s a rank: "));
  CHECK(Holds(slow.out, "coded: pays"));
  const Result fast = bench.Run(plan + small + "--set compression.link_gbits=90000");
  CHECK(Holds(fast.out, "coded: does not pay"));
  const Result on = bench.Run(plan + small + "--set compression.data_parallel.mode=on");
  CHECK(Holds(on.out, "gradients   on, rms:0.55: "));
  CHECK(Holds(on.out, "pays below "));
  const Result absolute = bench.Run(plan + small +
                                    "--set compression.data_parallel.mode=on "
                                    "--set compression.data_parallel.bound=abs:1e-4");
  CHECK(Holds(absolute.out, "no forecast: it needs a bound rms:E"));
  CHECK_FALSE(
      Holds(bench.Run("plan job.yaml -n 1 --set compression.link_gbits=1").out, "\ncompression\n"));
}

TEST_CASE("plan says what gradients that travel as bf16 take") {
  const Bench bench;
  const std::string plan = "plan job.yaml -n 4 ",
                    as_bf16 = "--set training.gradient_transfer=bf16 ";
  CHECK_FALSE(Holds(bench.Run(plan).out, "gradients as bf16"));
  const Result result = bench.Run(plan + as_bf16 + "--set compression.link_gbits=1");
  CAPTURE(result.out);
  CHECK(result.code == 0);
  CHECK(Holds(result.out,
              "\ngradients as bf16: 1 of 1 transfers between replicas, which are sums\n"
              "  of these a rank sends "));
  CHECK_FALSE(Holds(result.out, "gathers of weights"));
  const Result sharded = bench.Run(plan + as_bf16 + "--set parallelism.zero_stage=1");
  CHECK(Holds(sharded.out, "\n  with the gathers of weights and small sums "));
  CHECK(Holds(result.out, "gradients   off; if on, rms:0.55: "));  // another way, beside it
  CHECK_FALSE(Holds(bench.Run("plan job.yaml -n 1 " + as_bf16).out, "gradients as bf16"));
  const Result both = bench.Run(plan + as_bf16 + "--set compression.data_parallel.mode=on");
  CHECK(both.code == 2);
  CHECK(Holds(both.out, "training.gradient_transfer: bf16 and compression.data_parallel.mode: on"));
}

TEST_CASE("validate says on which counts of ranks the job runs, and they do") {
  const Bench bench;
  const auto counts = [&](const std::string& more) {
    return bench.Run("validate job.yaml --set parallelism." + more).out;
  };
  CHECK(Holds(counts("data_parallel_size=0"), "1 to 4 ranks)"));
  CHECK(Holds(counts("data_parallel_size=2"), "tokens, 2 ranks)"));
  CHECK(Holds(counts("data_parallel_size=1"), "tokens, 1 rank)"));
  CHECK(Holds(counts("tensor_parallel_size=2"), "2 to 8 ranks in steps of 2)"));
  for (int ranks = 1; ranks <= 10; ++ranks) {
    const Result plan = bench.Run("plan job.yaml --set parallelism.tensor_parallel_size=2 -n " +
                                  std::to_string(ranks));
    CAPTURE(ranks, plan.out);
    CHECK((plan.code == 0) == (ranks % 2 == 0 && ranks <= 8));
  }
}

TEST_CASE("what cannot be written is no success") {
  const Bench bench;
  for (const char* words : {"validate job.yaml", "plan job.yaml", "plan job.yaml --json", "version",
                            "--version", "plan --help"}) {
    CAPTURE(words);
    const Result full = bench.Run(std::string(words) + " >/dev/full 2>err #");
    CHECK(full.code == 4);
    CHECK(Holds(Slurp(bench.folder() + "/err"), "could not be written"));
  }
}

TEST_CASE("files of a plan replace files only") {
  const Bench bench;
  symlink("there.pb", (bench.folder() + "/link.pb").c_str());
  std::ofstream(bench.folder() + "/there.pb") << "old";
  CHECK(bench.Run("plan job.yaml --out link.pb").code == 0);
  CHECK(fs::is_symlink(bench.folder() + "/link.pb"));
  CHECK(fs::file_size(bench.folder() + "/there.pb") > 100);
  REQUIRE(mkfifo((bench.folder() + "/pipe").c_str(), 0600) == 0);
  const pid_t reader = bench.Start("plan job.yaml --svg pipe");
  CHECK(Slurp(bench.folder() + "/pipe").rfind("<svg", 0) == 0);
  CHECK(bench.End(reader).code == 0);
  CHECK(fs::is_fifo(bench.folder() + "/pipe"));
  const Result folder = bench.Run("plan job.yaml --out .");
  CHECK(folder.code == 2);
  CHECK(Holds(folder.out, "cannot write .: it is a folder"));
  CHECK_FALSE(fs::exists(bench.folder() + "/link.pb.partial"));
}

TEST_CASE("a reader who leaves does not end the run", "[mpi]") {
  Bench bench;
  bench.Worker(R"([ $rank = 0 ] || exit 0
sleep 1
echo '{"step":1,"loss":2.5}' >$run/metrics.jsonl
printf 'the \377\033[31m oars' >$run/sample.txt
echo '{"checkpoint":"/there/step-00000003"}' >$run/report.json
)");
  const std::string run = "run job.yaml -n 1 --run-dir r 2>err | head -n 1 >head #";
  CHECK(bench.Run(run).code == 0);
  const std::string page = Slurp(bench.folder() + "/r/report.html");
  CHECK(Holds(page, "the \xEF\xBF\xBD\xEF\xBF\xBD[31m oars"));
}

TEST_CASE("a run's summary says how long it waited for offload, and of what bytes were spared",
          "[mpi]") {
  Bench bench;
  bench.Worker(R"([ $rank = 0 ] || exit 0
echo '{"step":1,"loss":2.5}' >$run/metrics.jsonl
offload=0.0004
[ -f "${0%/*}/waits" ] && offload=0.123
echo '{"checkpoint":"/there/step-00000003","exposed_communication_share":0.25,
  "exposed_bubble_share":0.125,"exposed_offload_share":'$offload',
  "compression":{"gradients":{"plain_bytes":8,"ratio":2.0},"messages":{"plain_bytes":0}}}' \
  >$run/report.json
)");
  const Result none = bench.Run("run job.yaml -n 1 --run-dir none");
  CHECK(Holds(none.out, ", exposed communication 25.0 % (late ranks 12.5 %)\n"));
  CHECK(Holds(none.out, "compression      sums of gradients 2.0 times fewer bytes\n"));
  CHECK_FALSE(Holds(Slurp(bench.folder() + "/none/report.html"), "waiting for offload"));
  std::ofstream(bench.folder() + "/waits") << "";
  const Result some = bench.Run("run job.yaml -n 1 --run-dir some");
  CAPTURE(some.out);
  CHECK(Holds(some.out, " (late ranks 12.5 %), waiting for offload 12.3 %\n"));
  const std::string page = Slurp(bench.folder() + "/some/report.html");
  CHECK(Holds(page, "waiting for offload"));
  CHECK(Holds(page, "12.3 %"));
}

TEST_CASE("a run whose offload folder is no folder ends before it makes anything") {
  const Bench bench;
  const std::string job = " job.yaml --set offload.optimizer_state=file --set offload.directory=";
  const auto error = [&](const std::string& folder) {
    const Result result = bench.Run("run" + job + folder);
    CHECK(result.code == 2);
    CHECK_FALSE(fs::exists(bench.folder() + "/runs"));
    return result.out;
  };
  CHECK(error("nowhere") == "trireme: offload.directory: cannot make a file in " + bench.folder() +
                                "/nowhere: No such file or directory; make the folder, or give "
                                "another\n");
  CHECK(Holds(error("text.txt"), "/text.txt: Not a directory; make the folder, or give another"));
  // It may be there where the job runs.
  for (const char* elsewhere : {"plan", "validate"}) {
    CHECK(bench.Run(elsewhere + job + "nowhere").code == 0);
  }
}

TEST_CASE("a run from file to summary", "[mpi]") {
  Bench bench;
  bench.Worker(R"([ $rank = 0 ] || exit 0
echo '{"step":1,"loss":2.5}' >$run/metrics.jsonl
echo '{"step":3,"loss":1.25}' >>$run/metrics.jsonl
echo '{"step":3,"validation_loss":1.5}' >>$run/metrics.jsonl
echo 'the oars' >$run/sample.txt
echo '{"checkpoint":"/there/step-00000003"}' >$run/report.json
)");
  const Result result = bench.Run("run job.yaml -n 2 --set parallelism.data_parallel_size=2");
  CAPTURE(result.out);
  CHECK(result.code == 0);
  CHECK(Holds(result.out, "2 ranks = 1 pipeline x 2 data x 1 tensor"));
  CHECK(Holds(result.out, "training loss    2.5000 -> 1.2500"));
  CHECK(Holds(result.out, "validation loss  1.5000  (a bigram model: "));
  CHECK(Holds(result.out, "  the oars\n"));
  CHECK(Holds(result.out, "checkpoint  /there/step-00000003\n"));
  const std::string run = bench.RunFolder();
  for (const char* file : {"/job.yaml", "/plan.pb", "/report.html", "/schedule.svg"}) {
    CAPTURE(file);
    CHECK(fs::exists(run + file));
  }
  CHECK(Holds(Slurp(run + "/job.yaml"), bench.folder() + "/text.txt"));
  CHECK(Holds(Slurp(run + "/job.yaml"), "vocab_size: 13"));
  // The echo is a job of its own, wherever it lies.
  CHECK(bench.Run("validate " + run + "/job.yaml").code == 0);
}

TEST_CASE("a run without a checkpoint of its end has failed", "[mpi]") {
  Bench bench;
  bench.Worker("echo '{\"checkpoint\":\"\"}' >$run/report.json\n");
  const Result lost = bench.Run("run job.yaml -n 1 --run-dir a");
  CHECK(lost.code == 4);
  CHECK(Holds(lost.out, "the last checkpoint could not be written"));
  const std::string log = bench.folder() + "/a/logs/rank-0.log";
  CHECK(Holds(lost.out, "checkpoint  none was written: see " + log));
  // The newest that there is, and what failed before the end too.
  const std::string older = bench.folder() + "/c/checkpoints/step-00000002";
  bench.Worker("mkdir -p $run/checkpoints && cp -r " TRIREME_SOURCE_DIR
               "/tests/checkpoint/fixtures/version_1/step-00000007 " +
               older +
               "\necho '{\"step\":3,\"loss\":2.5}' >$run/metrics.jsonl\n"
               "echo '{\"checkpoint\":\"\",\"failed_saves\":2}' >$run/report.json\n");
  const Result kept = bench.Run("run job.yaml -n 1 --run-dir c");
  CAPTURE(kept.out);
  CHECK(kept.code == 4);
  CHECK(Holds(kept.out, "checkpoint  " + older + "; that of the end was not written: see "));
  CHECK(Holds(kept.out, "not saved        2 checkpoints could not be written: see "));
  CHECK(Holds(Slurp(bench.folder() + "/c/report.html"), older));
  bench.Worker("true\n");
  const Result emptied = bench.Run("run job.yaml -n 1 --run-dir b");
  CHECK(emptied.code == 4);
  CHECK(Holds(emptied.out, "b/report.json is not there"));
}

TEST_CASE("failures keep their code, are explained, and the folder is not taken again", "[mpi]") {
  Bench bench;
  bench.Worker("[ $rank = 1 ] && { echo oar broken; exit 3; }; sleep 50\n");
  const std::string two = " -n 2 --run-dir here --set parallelism.data_parallel_size=2";
  Result result = bench.Run("run job.yaml" + two);
  CAPTURE(result.out);
  CHECK(result.code == 3);
  CHECK(Count(result.out, "job failed") == 1);
  CHECK((Holds(result.out, "rank 1 exited with code 3") || Holds(result.out, "exit code 3")));
  CHECK(Holds(result.out, "oar broken"));
  const Result again = bench.Run("run job.yaml" + two);
  CHECK(again.code == 2);
  CHECK(Holds(again.out, "already holds a run"));
  bench.Worker("[ $rank = 1 ] && kill -9 $$; sleep 50\n");
  result = bench.Run("run job.yaml --resume --set resources.max_failures=1" + two);
  CHECK(result.code == 4);
  CAPTURE(result.out);
  CHECK(Holds(result.out, "rank 1 died (signal 9, Killed)"));
  CHECK(Holds(result.out, "no checkpoint in " + bench.folder() + "/here/checkpoints"));
  CHECK_FALSE(fs::exists(bench.folder() + "/here/resumed"));
  // The first ended at once, this one was the second.
  CHECK(fs::read_symlink(bench.folder() + "/here/logs") == "attempts/2/logs");
  CHECK_FALSE(fs::exists(bench.folder() + "/here/attempts/3"));
}

TEST_CASE("a crash is followed by another attempt until there were too many", "[mpi]") {
  Bench bench;
  bench.Worker("echo begun >>$run/begun; echo oar broken; exit 7\n");
  const Result loop = bench.Run("run job.yaml -n 1 --run-dir r --set resources.max_failures=2");
  CAPTURE(loop.out);
  CHECK(loop.code == 4);
  CHECK(Count(Slurp(bench.folder() + "/r/begun"), "begun\n") == 2);
  CHECK(Holds(loop.out, "attempt 1 failed (1 of at most 2 in a row), the next one follows in 1 s"));
  CHECK(Holds(loop.out, "job failed: 2 failures in a row without a newer checkpoint"));
  CHECK(Holds(loop.out, "oar broken"));
  CHECK(fs::exists(bench.folder() + "/r/attempts/1/logs/rank-0.log"));
  CHECK(fs::exists(bench.folder() + "/r/attempts/2/logs/rank-0.log"));
  // Nothing to begin from: not once was it told to.
  CHECK_FALSE(fs::exists(bench.folder() + "/r/resumed"));
}

TEST_CASE("bad input that an attempt finds is told as such, whatever was before it", "[mpi]") {
  Bench bench;
  bench.Worker("echo begun >>$run/begun; [ $(wc -l <$run/begun) = 3 ] && exit 2; exit 7\n");
  const Result bad = bench.Run("run job.yaml -n 1 --run-dir r");
  CAPTURE(bad.out);
  CHECK(bad.code == 2);
  CHECK(Holds(bad.out, "job failed: "));
  CHECK_FALSE(Holds(bad.out, "failures in a row without"));
}

TEST_CASE("a folder in which a run is at work is left alone", "[mpi]") {
  Bench bench;
  bench.Worker("trap 'exit 75' USR1\ntouch $run/up\nwhile true; do sleep 0.02; done\n");
  const pid_t first = bench.Start("run job.yaml -n 1 --run-dir r");
  AwaitFile(bench.folder() + "/r/up");
  const Result second = bench.Run("run job.yaml -n 1 --run-dir r --resume >second 2>&1 #");
  CHECK(second.code == 4);  // nothing is wrong with it: it may be called again later
  CHECK(Holds(Slurp(bench.folder() + "/second"), "another trireme run is at work there"));
  CHECK_FALSE(fs::exists(bench.folder() + "/r/attempts/2"));
  kill(first, SIGINT);
  CHECK(bench.End(first).code == 75);
  bench.Worker("exit 3\n");
  CHECK(bench.Run("run job.yaml -n 1 --run-dir r --resume").code == 3);
}

TEST_CASE("a resume that finds nothing says where, and begins beside no run that lives", "[mpi]") {
  Bench bench;
  const std::string runs = bench.folder() + "/runs";
  bench.Worker(
      "up=$run/../../up; [ -e $up ] && exit 3\n"
      "trap 'exit 75' USR1\ntouch $up\nwhile true; do sleep 0.02; done\n");
  const pid_t first = bench.Start("run job.yaml -n 1");
  AwaitFile(bench.folder() + "/up");
  const std::string live = bench.RunFolder();
  const Result second = bench.Run("run job.yaml -n 1 --resume >second 2>&1 #");
  const std::string told = Slurp(bench.folder() + "/second");
  CAPTURE(told);
  CHECK(second.code == 4);
  CHECK(Holds(told, live + ": another trireme run is at work there, without a checkpoint yet"));
  CHECK(std::distance(fs::directory_iterator(runs), {}) == 1);
  kill(first, SIGINT);
  CHECK(bench.End(first).code == 75);
  bench.Worker("exit 3\n");
  const Result none = bench.Run("run job.yaml -n 1 --resume");
  CAPTURE(none.out);
  CHECK(none.code == 3);
  CHECK(Holds(none.out, "resume: no checkpoint in " + runs + "/tiny-DATE-TIME: from the start\n"));
  // Where the job names a folder it is that one which was searched.
  const Result named = bench.Run("run job.yaml -n 1 --resume --set checkpoint.directory=saved");
  CHECK(Holds(named.out, "resume: no checkpoint in " + bench.folder() + "/saved: from the start"));
}

TEST_CASE("commands to copy are quoted for the shell", "[mpi]") {
  Bench bench;
  bench.Worker("exit 4\n");
  const Result failed =
      bench.Run("run job.yaml -n 1 --set resources.max_failures=1 --run-dir \"it's here\"");
  CHECK(failed.code == 4);
  CHECK(Holds(failed.out, "trireme run '" + bench.folder() + "/it'\\''s here/job.yaml' -n 1\n"));
}

TEST_CASE("Ctrl-C leads to a checkpoint and 75, twice to 5", "[mpi]") {
  for (const bool twice : {false, true}) {
    Bench bench;
    const std::string trap =
        twice ? "trap '' USR1\n" : "trap '[ $rank = 0 ] && exit 75; exit 0' USR1\n";
    bench.Worker(trap + "touch $run/up-$rank\nwhile true; do sleep 0.02; done\n");
    const pid_t pid =
        bench.Start("run job.yaml -n 2 --run-dir r --set parallelism.data_parallel_size=2");
    for (const char* up : {"/r/up-0", "/r/up-1"}) AwaitFile(bench.folder() + up);
    kill(pid, SIGINT);
    if (twice) {
      // Two that come before either is heard are one.
      AwaitFile(bench.folder() + "/out", "once more to kill");
      kill(pid, SIGINT);
    }
    const Result result = bench.End(pid);
    CAPTURE(result.out);
    CHECK(result.code == (twice ? 5 : 75));
    // The one that was killed has no checkpoint to go on from.
    CHECK(Holds(result.out, " --run-dir " + bench.folder() + "/r --resume auto") == !twice);
    CHECK(Holds(result.out, "start anew with:\n  trireme run " + bench.folder() +
                                "/r/job.yaml -n 2\n") == twice);
  }
}

}  // namespace
}  // namespace trireme::cli
