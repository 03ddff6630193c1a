// `trireme run`: a job on this machine, from file to summary, without a daemon.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "checkpoint/client/reader.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/resume_point.h"
#include "coordinator/cli/run_folder.h"
#include "coordinator/cli/run_summary.h"
#include "coordinator/command/shell_quote.h"
#include "coordinator/launcher/diagnosis.h"
#include "coordinator/launcher/mpirun_launcher.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/plan_file.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/report/progress.h"
#include "runtime/report/schedule_svg.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

constexpr int kPollMs = 100;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<std::string> PrepareFolder(RunOptions& options, const PlannedJob& planned) {
  ASSIGN_OR_RETURN(const std::string folder,
                   ChooseRunFolder({planned.job.runtime().runs_directory(), planned.job.name(),
                                    options.run_dir, options.resume == "auto"}));
  RETURN_IF_ERROR(LockRunFolder(folder));
  ASSIGN_OR_RETURN(const ResumePoint point, FindResumePoint(options.resume, folder, planned.job));
  for (const std::string& note : point.notes) std::fprintf(stderr, "resume: %s\n", note.c_str());
  options.resume = point.checkpoint;
  RETURN_IF_ERROR(WriteFile(folder + "/job.yaml", spec::ToYaml(planned.job)));
  RETURN_IF_ERROR(WriteFile(folder + "/plan.pb", plan::SerializePlan(planned.plan)));
  if (const auto svg = report::ScheduleSvg(planned.plan); svg.ok()) {
    RETURN_IF_ERROR(WriteFile(folder + "/schedule.svg", *svg));
  }
  return folder;
}

// The ranks check again, each for its machine; this keeps a thousand of them from starting first.
absl::Status CheckFitsHere(const PlannedJob& planned) {
  std::ifstream memory("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0, available_kib = 0;
  while (memory >> name >> kib && std::getline(memory, unit)) {
    if (name == "MemAvailable:") available_kib = kib;
  }
  const uint64_t per_stage = static_cast<uint64_t>(planned.ranks) / planned.plan.stages_size();
  uint64_t wanted = 0;
  for (const auto& stage : planned.plan.stages()) wanted += stage.arena_bytes() * per_stage;
  if (available_kib == 0 || wanted / 1024 <= available_kib) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("the plan needs {} MiB on this machine for {}, but {} MiB are available. Lower "
                  "training.micro_batch_size, set parallelism.zero_stage: 1, or use fewer ranks",
                  wanted >> 20, base::Counted(planned.ranks, "rank"), available_kib >> 10));
}

launcher::LaunchOptions LaunchOptionsOf(const RunOptions& options, const PlannedJob& planned,
                                        const std::string& folder) {
  launcher::LaunchOptions launch;
  launch.worker = base::ProgramBesideUs("trireme-worker");
  launch.arguments = {"--job", folder + "/job.yaml", "--run-dir", folder};
  if (!options.resume.empty()) {
    launch.arguments.insert(launch.arguments.end(), {"--resume", options.resume});
  }
  launch.ranks = planned.ranks;
  launch.run_folder = folder;
  launch.threads = static_cast<int>(planned.job.runtime().threads());
  launch.bind_to_cores = options.bind_cores;
  return launch;
}

struct Ended {
  launcher::LaunchResult result;
  recorder::Progress progress;
  double seconds = 0;
};

// What an honest stop may need: the rest of a step, an evaluation's pass and a whole step more, the
// deadline of a rank that hears nothing, and a minute for the disk. Steps before the first are
// counted with the start, which only makes it longer.
double GraceSeconds(const RunOptions& options, const v1::JobSpec& job, double seconds,
                    uint64_t steps) {
  if (options.grace_seconds > 0) return options.grace_seconds;
  const double step_seconds = seconds / static_cast<double>(std::max<uint64_t>(1, steps));
  return 60 + job.runtime().deadline_seconds() + 3 * step_seconds;
}

// Shows progress, passes signals on, until the ranks are gone.
Ended Watch(launcher::MpirunLauncher& ranks, const launcher::SignalLatch& signals,
            const RunOptions& options, const v1::JobSpec& job, const std::string& folder) {
  const auto start = std::chrono::steady_clock::now();
  const std::string recording = folder + "/recorder/rank-000.rec";
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  report::ProgressWriter writer(stdout, terminal);
  report::ProgressView view;
  int seen = 0;
  std::optional<uint64_t> first_step;  // what was done before, on a resume
  while (true) {
    const auto result = ranks.Poll();
    if (const auto now = recorder::ReadRecording(recording); now.ok()) {
      if (!first_step && now->state == recorder::RankState::kRunning) {
        first_step = now->progress.steps_done;
      }
      view.Update(now->progress, SecondsSince(start));
    }
    if (result) {
      writer.Finish(view, SecondsSince(start));
      return {*result, view.progress(), SecondsSince(start)};
    }
    writer.Show(view, SecondsSince(start));
    for (; seen < signals.count(); ++seen) {
      const uint64_t steps = view.progress().steps_done - first_step.value_or(0);
      const double grace = GraceSeconds(options, job, SecondsSince(start), steps);
      const std::string words =
          seen == 0 ? fmt::format(
                          "stopping at the next step with a checkpoint, within {:.0f} s; "
                          "once more to kill",
                          grace)
                    : "killing the ranks";
      std::fprintf(stderr, "%s%s\n", terminal && view.progress().steps_done > 0 ? "\n" : "",
                   words.c_str());
      ranks.set_grace(std::chrono::milliseconds(static_cast<int64_t>(grace * 1000)));
      ranks.RequestStop();
    }
    poll(nullptr, 0, kPollMs);
  }
}

// The folder's own job holds the overrides of this call.
std::string RunAgain(const PlannedJob& planned, const std::string& folder) {
  return fmt::format("trireme run {} -n {}", command::ShellQuote(folder + "/job.yaml"),
                     planned.ranks);
}

std::string GoOn(const PlannedJob& planned, const std::string& folder) {
  return fmt::format("go on with:\n  {} --run-dir {} --resume auto", RunAgain(planned, folder),
                     command::ShellQuote(folder));
}

// After an end that the job did not choose.
std::string Next(const PlannedJob& planned, const std::string& folder) {
  if (checkpoint::FindNewest(CheckpointRoot(folder, planned.job)).ok()) {
    return "from the last checkpoint " + GoOn(planned, folder);
  }
  return "no checkpoint was saved; start anew with:\n  " + RunAgain(planned, folder);
}

int Conclude(const PlannedJob& planned, const std::string& folder, const Ended& ended) {
  int code = ended.result.exit_code;
  if (ended.result.stop_requested && code == 128 + SIGUSR1) {
    code = launcher::ExitCodeSaid(folder).value_or(code);
  }
  if (code == kOk) {
    const auto text =
        SummariseRun(planned, {folder, ended.progress, ended.seconds}, report::StyleOf(stdout));
    std::printf("\n%s", text.c_str());
    const absl::Status outcome = CheckOutcome(folder);
    if (outcome.ok()) return kOk;
    PrintError(outcome);
    std::fprintf(stderr, "%s\n", Next(planned, folder).c_str());
    return kJobFailed;
  }
  if (code == kCheckpointed) {
    std::printf("stopped at step %llu with a checkpoint; %s\n",
                static_cast<unsigned long long>(ended.progress.steps_done),
                GoOn(planned, folder).c_str());
    return kCheckpointed;
  }
  if (ended.result.stop_requested) {
    // Nobody killed them: why they did not save is news.
    if (!ended.result.killed) {
      std::fprintf(stderr, "trireme: could not stop in order: %s\n",
                   launcher::Diagnose(folder, ended.result).Text().c_str());
    }
    std::fprintf(stderr, "cancelled; %s\n", Next(planned, folder).c_str());
    return kCancelled;
  }
  const auto diagnosis = launcher::Diagnose(folder, ended.result);
  std::fprintf(stderr, "trireme: job failed: %s\n", diagnosis.Text().c_str());
  if (code == kBadInput || code == kDoesNotFit) return code;
  std::fprintf(stderr, "%s\n", Next(planned, folder).c_str());
  // Without a rank to name it was mpirun that ended, or was ended.
  return code == kInternal && diagnosis.rank >= 0 ? kInternal : kJobFailed;
}

}  // namespace

int RunRun(const RunOptions& given) {
  RunOptions options = given;
  const auto planned = LoadAndPlan(options.job, options.overrides, options.ranks);
  if (!planned.ok()) return PrintError(planned.status());
  if (const auto fits = CheckFitsHere(*planned); !fits.ok()) return PrintError(fits);
  const auto folder = PrepareFolder(options, *planned);
  if (!folder.ok()) return PrintError(folder.status());
  std::printf("%s: %s\nrun folder %s\n", planned->job.name().c_str(),
              OneLine(planned->plan).c_str(), folder->c_str());
  std::fflush(stdout);
  // A reader who leaves (| head, or a tee that Ctrl-C ended first) must not end the training.
  std::signal(SIGPIPE, SIG_IGN);
  const launcher::SignalLatch signals;
  auto ranks = launcher::MpirunLauncher::Start(LaunchOptionsOf(options, *planned, *folder));
  if (!ranks.ok()) return PrintError(ranks.status());
  const Ended ended = Watch(**ranks, signals, options, planned->job, *folder);
  return Conclude(*planned, *folder, ended);
}

}  // namespace trireme::cli
