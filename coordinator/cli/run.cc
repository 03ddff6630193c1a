// `trireme run`: a job on this machine, from file to summary, without a daemon.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer_claim.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/fits_here.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/resume_point.h"
#include "coordinator/cli/run_folder.h"
#include "coordinator/cli/run_summary.h"
#include "coordinator/cli/run_watch.h"
#include "coordinator/cli/snapshots_here.h"
#include "coordinator/job_machine/memory_steps.h"
#include "coordinator/keeper/attempt_end.h"
#include "coordinator/launcher/launch_command.h"
#include "coordinator/local_run/local_run.h"
#include "coordinator/process/shell_quote.h"
#include "runtime/base/memory_here.h"
#include "runtime/base/own_program.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/plan/plan_file.h"
#include "runtime/report/progress.h"
#include "runtime/report/schedule_svg.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

// Of Slurm (salloc, sbatch): the ranks are then a step of it, on whichever of its nodes.

struct Begin {
  std::string folder;
  uint64_t step = 0;  // from which it goes on
};

absl::Status CheckThisMachine(const PlannedJob& planned) {
  if (launcher::InAllocation()) return absl::OkStatus();  // the ranks may be on others
  RETURN_IF_ERROR(CheckFitsHere(planned.plan, planned.ranks, base::LookAtMemory()));
  return CheckOffloadsHere(planned.plan);
}

absl::StatusOr<Begin> PrepareFolder(RunOptions& options, const PlannedJob& planned) {
  // Before a folder is made for a run that cannot begin.
  if (!options.resume.empty() && options.resume != "auto") {
    RETURN_IF_ERROR(
        FindResumePoint(options.resume, /*run_folder=*/"", planned.job, Trust::kHeaders).status());
  }
  const bool shared = planned.job.checkpoint().has_directory();
  ASSIGN_OR_RETURN(const RunFolder chosen,
                   ChooseRunFolder({planned.job.runtime().runs_directory(), planned.job.name(),
                                    options.run_dir, options.resume == "auto", !shared}));
  const std::string& folder = chosen.path;
  RETURN_IF_ERROR(LockRunFolder(folder));
  // What one machine's ranks read again comes from its memory; many nodes read faster than this.
  ASSIGN_OR_RETURN(ResumePoint point,
                   FindResumePoint(options.resume, folder, planned.job,
                                   launcher::InAllocation() ? Trust::kHeaders : Trust::kBytes));
  // Of a folder that this call has made nobody would look for checkpoints.
  if (!shared && !chosen.searched.empty()) {
    point.notes = {fmt::format("no checkpoint in {}: from the start", chosen.searched)};
  }
  for (const std::string& note : point.notes) {
    options.json ? PrintWarning("resume: " + note)
                 : void(std::fprintf(stderr, "resume: %s\n", note.c_str()));
  }
  // The ranks look for themselves, and again in every attempt, at what is intact by then.
  const bool look = !point.checkpoint.empty() || planned.job.snapshots().every_step();
  if (options.resume != "auto" || !look) options.resume = point.checkpoint;
  RETURN_IF_ERROR(WriteFile(folder + "/job.yaml", spec::ToYaml(planned.job)));
  RETURN_IF_ERROR(WriteFile(folder + "/plan.pb", plan::SerializePlan(planned.plan)));
  if (const auto svg = report::ScheduleSvg(planned.plan); svg.ok()) {
    RETURN_IF_ERROR(WriteFile(folder + "/schedule.svg", *svg));
  }
  return Begin{folder, point.step};
}

// The folder's own job holds the overrides of this call.
std::string RunAgain(const PlannedJob& planned, const std::string& folder) {
  return fmt::format("trireme run {} -n {}", process::ShellQuote(folder + "/job.yaml"),
                     planned.ranks);
}

std::string GoOn(const PlannedJob& planned, const std::string& folder) {
  return fmt::format("go on with:\n  {} --run-dir {} --resume auto", RunAgain(planned, folder),
                     process::ShellQuote(folder));
}

// After a stop before this run had saved anything. What lies in a folder that the job names may be
// another run's. `resume`: as this call was given it.
std::string BeginAgain(const PlannedJob& planned, const std::string& folder,
                       const std::string& resume) {
  const bool shared = planned.job.checkpoint().has_directory();
  if (resume == "auto" || (resume.empty() && !shared)) return GoOn(planned, folder);
  const std::string from = resume.empty() ? "" : " --resume " + process::ShellQuote(resume);
  return fmt::format("start anew with:\n  {}{}", RunAgain(planned, folder), from);
}

// After an end that the job did not choose.
std::string Next(const PlannedJob& planned, const std::string& folder) {
  if (const auto here = FindSnapshotsHere(folder)) {
    return fmt::format(
        "step {} is in memory ({} in {}, until it is removed or the machine restarts); {}",
        here->step, base::ReadableBytes(here->bytes), here->folder, GoOn(planned, folder));
  }
  if (checkpoint::FindNewest(CheckpointRoot(folder, planned.job)).ok()) {
    return "from the last checkpoint " + GoOn(planned, folder);
  }
  return "no checkpoint was saved; start anew with:\n  " + RunAgain(planned, folder);
}

// "rank 3 died ...", then what is known of it.
std::string FailedText(const v1::JobStatus& status) {
  const v1::Failure& failure = status.failure();
  std::string text = failure.headline();
  // Bad input ends a run by itself, however many attempts there were before.
  const bool by_count = status.exit_code() != kBadInput && status.exit_code() != kDoesNotFit;
  if (by_count && status.failures() > 1) {
    text = fmt::format("{} in a row {} (resources.max_failures), at last: {}",
                       base::Counted(status.failures(), "failure"),
                       coordinator::WithoutProgress(status), text);
  } else if (by_count && status.setbacks() > 1) {
    text = fmt::format(
        "{} that saved nothing beyond the attempt before, nor beyond step {}, at "
        "last: {}",
        base::Counted(status.setbacks(), "failure"), status.furthest_step(), text);
  }
  std::istringstream evidence(failure.evidence());
  const char* title = "evidence:";
  for (std::string line; std::getline(evidence, line); title = "") {
    text += fmt::format("\n  {:<9} {}", title, line);
  }
  if (!failure.next_action().empty())
    text += fmt::format("\n  next:     {}", failure.next_action());
  return text;
}

// What is said once nothing runs any more.
struct Conclusion {
  int code = kOk;
  std::string told;   // to stdout
  std::string error;  // to stderr, as all errors are
  std::string next;   // what to do now; to stderr where it is not a part of `told`
};

Conclusion ConcludeCompleted(const PlannedJob& planned, const std::string& folder,
                             const RunOutcome& outcome) {
  Conclusion end;
  end.told = "\n" + SummariseRun(planned,
                                 {folder, ToProgress(outcome.job.progress()), outcome.seconds,
                                  outcome.first_step},
                                 report::StyleOf(stdout));
  if (const absl::Status written = CheckOutcome(folder); !written.ok()) {
    end.code = kJobFailed;
    end.error = base::MessageOf(written);
    end.next = Next(planned, folder);
  }
  return end;
}

Conclusion ConcludeFailed(const PlannedJob& planned, const std::string& folder,
                          const v1::JobStatus& status) {
  Conclusion end;
  end.code = status.exit_code();
  end.error = "job failed: " + FailedText(status);
  if (end.code == kBadInput || end.code == kDoesNotFit) return end;
  end.next = Next(planned, folder);
  // Without a rank to name it was mpirun that ended, or was ended.
  const bool by_rank = status.failure().rank() >= 0;
  end.code = end.code == kInternal && by_rank ? kInternal : kJobFailed;
  return end;
}

Conclusion ConcludeStopped(const PlannedJob& planned, const std::string& folder,
                           const std::string& resume, const RunOutcome& outcome) {
  const v1::JobStatus& status = outcome.job.status();
  Conclusion end;
  if (status.state() == v1::JOB_PAUSED && status.exit_code() == kCheckpointed) {
    end.code = kCheckpointed;
    const bool saved = status.checkpoint_attempt() > 0;
    end.next = saved ? GoOn(planned, folder) : BeginAgain(planned, folder, resume);
    end.told = saved ? fmt::format("stopped at step {} with a checkpoint; {}\n",
                                   outcome.job.progress().steps_done(), end.next)
                     : fmt::format("stopped before anything was saved; {}\n", end.next);
    return end;
  }
  // Nobody killed them: why they did not save is news.
  const bool news = outcome.stop_asked && !outcome.kill_asked && status.has_failure() &&
                    status.failure().headline() != keeper::kKilledAsAsked;
  if (news) end.error = "could not stop in order: " + FailedText(status);
  end.code = kCancelled;
  end.next = "cancelled; " + Next(planned, folder);
  return end;
}

Conclusion Conclude(const PlannedJob& planned, const std::string& folder, const std::string& resume,
                    const RunOutcome& outcome) {
  const v1::JobStatus& status = outcome.job.status();
  switch (status.state()) {
    case v1::JOB_COMPLETED:
      return ConcludeCompleted(planned, folder, outcome);
    case v1::JOB_FAILED:
      return ConcludeFailed(planned, folder, status);
    default:
      return ConcludeStopped(planned, folder, resume, outcome);
  }
}

// The last line of --json; "report" is report.json of a run that came to its end.
void PrintAsJson(const Conclusion& end, const std::string& folder, const RunOutcome& outcome) {
  nlohmann::ordered_json line = {{"job", ToJson(outcome.job)}, {"run_folder", folder},
                                 {"seconds", outcome.seconds}, {"exit_code", end.code},
                                 {"error", end.error},         {"next", end.next}};
  nlohmann::ordered_json report;
  if (outcome.job.status().state() == v1::JOB_COMPLETED) {  // else it may be an earlier run's
    report = json_text::ParseOrdered(ReadFile(folder + "/report.json"));
  }
  if (!report.is_object()) report = nullptr;
  line["report"] = std::move(report);
  PrintJsonObject(line);
}

void Print(const Conclusion& end) {
  std::fputs(end.told.c_str(), stdout);
  if (!end.error.empty()) std::fprintf(stderr, "trireme: %s\n", end.error.c_str());
  if (!end.next.empty() && end.told.find(end.next) == std::string::npos) {
    std::fprintf(stderr, "%s\n", end.next.c_str());
  }
}

coordinator::LocalRunOptions LocalRunOptionsOf(const RunOptions& options, const PlannedJob& planned,
                                               const std::string& folder) {
  coordinator::LocalRunOptions local;
  local.job = planned.job;
  local.ranks = planned.ranks;
  local.run_folder = folder;
  local.resume = options.resume;
  local.worker = base::ProgramBesideUs("trireme-worker");
  local.bind_to_cores = options.bind_cores;
  local.in_allocation = launcher::InAllocation();
  return local;
}

// Where the ranks are about to wait, which only their logs tell.
void TellIfHeld(const PlannedJob& planned, const std::string& folder, bool json) {
  const std::string root = CheckpointRoot(folder, planned.job);
  if (!checkpoint::IsClaimed(root)) return;
  const std::string text = base::Text(
      root,
      ": another run writes its checkpoints here; the ranks wait for it for two minutes, "
      "and again in the next attempts");
  json ? PrintWarning(text) : void(std::fprintf(stderr, "%s\n", text.c_str()));
}

void Announce(const PlannedJob& planned, const std::string& folder) {
  std::printf("%s: %s\nrun folder %s\n", planned.job.name().c_str(), OneLine(planned.plan).c_str(),
              folder.c_str());
  if (launcher::InAllocation())
    std::printf("ranks by srun, in Slurm job %s\n", std::getenv("SLURM_JOB_ID"));
  std::fflush(stdout);
}

}  // namespace

int RunRun(const RunOptions& given) {
  RunOptions options = given;
  const auto planned = LoadAndPlan(options.job, options.overrides, options.ranks);
  if (!planned.ok()) return PrintError(planned.status());
  if (const auto fits = CheckThisMachine(*planned); !fits.ok()) return PrintError(fits);
  const auto begin = PrepareFolder(options, *planned);
  if (!begin.ok()) return PrintError(begin.status());
  const std::string& folder = begin->folder;
  if (!options.json) Announce(*planned, folder);
  TellIfHeld(*planned, folder, options.json);
  // A reader who leaves (| head, or a tee that Ctrl-C ended first) must not end the training.
  std::signal(SIGPIPE, SIG_IGN);
  const auto run = coordinator::LocalRun::Start(LocalRunOptionsOf(options, *planned, folder));
  if (!run.ok()) return PrintError(run.status());
  const auto outcome =
      WatchRun(**run, planned->job, {options.grace_seconds, options.json, begin->step});
  (*run)->Close();
  if (!outcome.ok()) return PrintError(outcome.status());
  const Conclusion end = Conclude(*planned, folder, given.resume, *outcome);
  options.json ? PrintAsJson(end, folder, *outcome) : Print(end);
  return end.code;
}

}  // namespace trireme::cli
