// The head for sbatch, the srun line and the two tails.
#include "coordinator/slurm/batch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coordinator/process/shell_quote.h"
#include "coordinator/slurm/time_limit.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::slurm {
namespace {

using process::ShellQuote;

// A word of a #SBATCH line: sbatch knows backslashes there, and ends at a '#'.
std::string DirectiveWord(const std::string& word) {
  std::string escaped;
  for (const char c : word) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string("-_.,:=@/+%[]").find(c) != std::string::npos;
    if (!plain) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

bool HasControl(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; });
}

class Script {
 public:
  void Line(const std::string& text) { text_ += text + "\n"; }
  void Directive(const std::string& option) { Line("#SBATCH --" + option); }
  void Directive(const std::string& option, const std::string& value) {
    if (!value.empty()) Directive(option + "=" + DirectiveWord(value));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_ = "#!/bin/bash\n";
};

absl::Status CheckLayout(const BatchJob& job) {
  if (job.nodes <= job.ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the job has {}, too few for {} nodes: use at most -N {}, or more ranks",
                  base::Counted(job.ranks, "rank"), job.nodes, job.ranks));
}

// The third of the time limit, or what a site's own limit surely leaves.
absl::StatusOr<std::chrono::seconds> Warning(const BatchJob& job, const BatchOptions& options) {
  if (options.time_limit.empty() && job.time_limit.count() > 0) {
    return WarningBefore(job.time_limit);
  }
  if (options.time_limit.empty()) return kLongestWarning;
  ASSIGN_OR_RETURN(const std::chrono::seconds limit, ParseTimeLimit(options.time_limit));
  return WarningBefore(limit);
}

absl::Status AddHead(const BatchJob& job, const BatchOptions& options, Script& script) {
  RETURN_IF_ERROR(CheckLayout(job));
  RETURN_IF_ERROR(CheckBatchOptions(options));
  ASSIGN_OR_RETURN(const std::chrono::seconds warning, Warning(job, options));
  script.Directive("job-name", job.name);
  script.Directive("comment", job.comment);
  script.Directive("partition", options.partition);
  script.Directive("account", options.account);
  script.Directive("time",
                   options.time_limit.empty() && job.time_limit.count() > 0
                       ? base::Text(std::chrono::ceil<std::chrono::minutes>(job.time_limit).count())
                       : options.time_limit);
  if (job.nodes > 0) {
    script.Directive("nodes", base::Text(job.nodes));
    script.Directive("ntasks-per-node", base::Text((job.ranks + job.nodes - 1) / job.nodes));
  }
  script.Directive("ntasks", base::Text(job.ranks));
  script.Directive("cpus-per-task", base::Text(job.cpus_per_rank));
  if (job.gpus_per_rank > 0) {
    script.Directive("gpus-per-task", base::Text(job.gpus_per_rank));
    script.Directive("gpu-bind", base::Text("per_task:", job.gpus_per_rank));
  }
  if (job.memory_mib_per_rank > 0) {
    // Slurm counts memory by node or by CPU, not by task.
    const int64_t cpus = std::max<int64_t>(1, job.cpus_per_rank);
    script.Directive("mem-per-cpu", base::Text((job.memory_mib_per_rank + cpus - 1) / cpus, "M"));
  }
  script.Directive("signal", base::Text("USR1@", warning.count()));
  script.Directive("open-mode", "append");
  return absl::OkStatus();
}

// After our own, so that they win.
void AddMore(const BatchOptions& options, Script& script) {
  for (const std::string& line : options.more) script.Line("#SBATCH " + line);
}

// srun and its options; the command of a rank follows.
//
// srun does not take the cores of a task from sbatch. PMIx ends the step within seconds of a rank's
// death, else the ranks' own deadline does; with --kill-on-bad-exit the others, to whom TERM means
// a checkpoint, would wait for the dead one until Slurm's KillWait is over. --wait ends a step
// whose first rank left before PMIx knew it. Consecutive ranks share a node.
std::string Srun(const BatchJob& job) {
  std::string line =
      base::Text("srun --mpi=pmix --kill-on-bad-exit=0 --wait=60 --distribution=block",
                 " --cpus-per-task=", job.cpus_per_rank);
  if (job.gpus_per_rank > 0) {
    line += base::Text(" --gpus-per-task=", job.gpus_per_rank,
                       " --gpu-bind=per_task:", job.gpus_per_rank);
  }
  return line;
}

std::string Words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + ShellQuote(word);
  return text;
}

// With the default fence of Slurm 22.05 a rank can leave MPI_Init before another is ready for
// messages, which then crashes: once in 150 starts over two nodes of a busy machine; with the ring
// never in 700.
constexpr const char* kFence = "export SLURM_PMIX_FENCE=ring";

constexpr const char* kStandaloneBegin = R"(set -uo pipefail
options=("$@")
for i in "${!options[@]}"; do
  case ${options[i]} in
    --run-dir) run=${options[i + 1]:-} ;;
    --run-dir=*) run=${options[i]#*=} ;;
    checkpoint.directory=* | --set=checkpoint.directory=*)
      checkpoints=${options[i]#*checkpoint.directory=} ;;
  esac
done
attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
# Rank 0 notes there the name of each checkpoint before it gives it. It is this attempt's alone:
# another job may be at work in the same folder.
saves=$run/saves.$SLURM_JOB_ID.$attempt
has_saved() {
  local name
  [[ -r $saves ]] || return 1
  while IFS= read -r name; do
    [[ $name == step-* && -e ${checkpoints:-$run/checkpoints}/$name/manifest.json ]] && return
  done <"$saves"
  return 1
}

echo "trireme: Slurm job $SLURM_JOB_ID, attempt $attempt, $SLURM_NTASKS ranks" \
  "on $SLURM_JOB_NODELIST"
code=0)";

constexpr const char* kStandaloneEnd = R"(
why=
if ((code == 75)); then
  why="stopped with a checkpoint"
elif ((code == 138)); then
  # By the default of USR1, which comes once: no rank may ignore it before it listens.
  why="stopped before the ranks were up"
elif ((code == 4 || code > 128)) && has_saved; then
  # A rank or a node was lost. Only an attempt that got further is worth another, so a fault that
  # returns ends the job.
  why="failed after a new checkpoint"
fi
rm -f "$saves"
if [[ -n $why ]]; then
  # Said first: with the requeue Slurm ends this script.
  echo "trireme: $why (exit code $code), asking Slurm to queue the job again"
  scontrol requeue "$SLURM_JOB_ID" ||
    echo "trireme: Slurm does not queue it again; to go on: sbatch SCRIPT --run-dir $run" >&2
fi
exit "$code")";

constexpr const char* kAttemptBegin = R"(mine=guard.json.$SLURM_JOB_ID
printf '{"slurm_job": %d}\n' "$SLURM_JOB_ID" >"$mine" || exit 1
# Of several submissions of this attempt one runs; none, if it was sealed.
if ! ln "$mine" guard.json 2>/dev/null; then
  echo "trireme: Slurm job $SLURM_JOB_ID: this attempt runs as another Slurm job," \
    "or is not wanted any more" >&2
  rm -f "$mine"
  exit 0
fi
rm -f "$mine"
# The verdict is written also if Slurm ends this job; the ranks get the signal themselves.
trap : TERM
code=0)";

// A rank has its own log, and a request to stop that comes before it listens does not end it: it is
// made again.
constexpr const char* kRankShell =
    R"sh(trap "" USR1; exec >>"logs/rank-$SLURM_PROCID.log" 2>&1; exec "$@")sh";

constexpr const char* kAttemptEnd = R"(# The last act.
printf '{"exit_code": %d}\n' "$code" >exit.new && mv exit.new exit
exit "$code")";

}  // namespace

absl::Status CheckBatchOptions(const BatchOptions& options) {
  for (const auto& [name, value] :
       {std::pair("partition", &options.partition), std::pair("account", &options.account)}) {
    if (HasControl(*value)) {
      return absl::InvalidArgumentError(fmt::format("{}: holds a line feed or the like", name));
    }
  }
  if (!options.time_limit.empty()) RETURN_IF_ERROR(ParseTimeLimit(options.time_limit).status());
  for (const std::string& line : options.more) {
    if (HasControl(line) || line.compare(0, 1, "-") != 0) {
      return absl::InvalidArgumentError(
          fmt::format("\"{}\": expected options of sbatch on one line, as in '--qos=high "
                      "--exclusive'",
                      line.substr(0, line.find('\n'))));
    }
  }
  return absl::OkStatus();
}

std::chrono::seconds AttemptTimeLimit(const v1::LaunchSpec& launch) {
  const v1::JobSpec& job = launch.job();
  const double whole = job.resources().time_limit_seconds();
  if (!(whole > 0)) return std::chrono::seconds(0);
  // A coordinator of before does not say what is left.
  const double limit =
      launch.time_left_seconds() > 0 ? std::min(whole, launch.time_left_seconds()) : whole;
  // Slurm's own warning, which comes so long before its end, is to find nothing to do.
  constexpr std::chrono::seconds kSlack = std::chrono::minutes(15) + kLongestWarning;
  const double stop = std::max(0.0, job.runtime().deadline_seconds());
  return kSlack +
         std::chrono::seconds(static_cast<int64_t>(std::ceil(std::min(limit, 1e9) + stop)));
}

BatchJob BatchJobOf(const v1::JobSpec& job, int ranks) {
  BatchJob batch;
  const v1::ResourceSpec& asked = job.resources();
  batch.name = job.name();
  batch.ranks = ranks;
  const int64_t cpus = asked.cpus_per_rank() > 0 ? asked.cpus_per_rank() : job.runtime().threads();
  batch.cpus_per_rank = std::max<int64_t>(1, cpus);
  batch.gpus_per_rank = asked.gpus_per_rank();
  batch.memory_mib_per_rank = asked.memory_mib_per_rank();
  batch.checkpoint_folder = job.checkpoint().directory();
  return batch;
}

absl::StatusOr<std::string> StandaloneScript(const BatchJob& job, const BatchOptions& options) {
  Script script;
  script.Line(
      "# Trains a job through as many time limits as it takes: before each the ranks write a");
  script.Line(
      "# checkpoint, the job is queued again, and goes on where it stopped. Written by trireme");
  script.Line("# slurm-script; submit it with: sbatch THIS_FILE [option of trireme-worker]...");
  RETURN_IF_ERROR(AddHead(job, options, script));
  script.Directive("requeue");
  script.Directive("output", job.name + "-%j.log");
  AddMore(options, script);
  script.Line(fmt::format("run={}-$SLURM_JOB_ID", ShellQuote(job.run_folder)));
  script.Line("checkpoints=" + ShellQuote(job.checkpoint_folder));
  script.Line(kStandaloneBegin);
  script.Line(kFence);
  script.Line(Srun(job) + " \\");
  script.Line(" " + Words(job.worker) +
              " --run-dir \"$run\" --save-log \"$saves\" \"$@\" || code=$?");
  script.Line(kStandaloneEnd);
  return script.Take();
}

absl::StatusOr<std::string> AttemptScript(const BatchJob& job, const BatchOptions& options,
                                          const std::string& attempt_folder) {
  Script script;
  RETURN_IF_ERROR(AddHead(job, options, script));
  AddMore(options, script);
  // After the site's: the coordinator starts the next attempt, and the file names have no pattern.
  script.Directive("no-requeue");
  script.Directive("output", "/dev/null");
  script.Line(fmt::format("cd {} || exit 1", ShellQuote(attempt_folder)));
  script.Line("exec >>logs/mpirun.log 2>&1 </dev/null");
  script.Line(kAttemptBegin);
  script.Line(kFence);
  script.Line(fmt::format("{} \\\n  /bin/sh -c {} sh{} || code=$?", Srun(job),
                          ShellQuote(kRankShell), Words(job.worker)));
  script.Line(kAttemptEnd);
  return script.Take();
}

}  // namespace trireme::slurm
