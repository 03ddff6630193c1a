#include "coordinator/cli/run_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/job_machine/reasons.h"
#include "coordinator/job_machine/stop_grace.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/status_macros.h"
#include "runtime/report/progress.h"
#include "trireme/v1/control.pb.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTurn{20};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class RunWatcher {
 public:
  RunWatcher(coordinator::LocalRun& run, const v1::JobSpec& job, const RunWatchOptions& options)
      : run_(run), spec_(job), options_(options), writer_(stdout, terminal_) {
    outcome_.first_step = options.first_step;
  }

  absl::StatusOr<RunOutcome> Run() {
    while (true) {
      RETURN_IF_ERROR(run_.Turn());
      for (const v1::Event& event : run_.TakeEvents()) Hear(event);
      outcome_.job = run_.job();
      outcome_.seconds = SecondsSince(start_);
      Look();
      if (run_.Over()) break;
      if (!options_.json) writer_.Show(view_, outcome_.seconds);
      RETURN_IF_ERROR(PassSignalsOn());
      std::this_thread::sleep_for(kTurn);
    }
    if (!options_.json) writer_.Finish(view_, outcome_.seconds);
    return outcome_;
  }

 private:
  void Look() {
    const v1::JobState state = outcome_.job.status().state();
    const bool at_work = state == v1::JOB_RUNNING || state == v1::JOB_PAUSING;
    if (!outcome_.job.has_progress() || (!at_work && !run_.Over())) return;
    const recorder::Progress progress = ToProgress(outcome_.job.progress());
    if (!first_step_) first_step_ = progress.steps_done;
    const bool news = progress.steps_done != view_.progress().steps_done;
    view_.Update(progress, outcome_.seconds);
    if (!options_.json || !news) return;
    v1::WatchResponse response;
    response.mutable_progress()->set_job_id(outcome_.job.id());
    *response.mutable_progress()->mutable_progress() = outcome_.job.progress();
    PrintJsonLine(response);
  }

  void Hear(const v1::Event& event) {
    if (options_.json) {
      v1::WatchResponse response;
      *response.mutable_event() = event;
      PrintJsonLine(response);
    }
    const bool wanted = !outcome_.stop_asked && !outcome_.kill_asked;
    if (event.has_stalled() && wanted) Say(event.stalled().text());
    if (!event.has_state_changed()) return;
    const v1::JobStateChanged& change = event.state_changed();
    if (change.to() == v1::JOB_RECOVERING) Say(change.reason());
    // It is at work as it was: news of its saves.
    if (change.from() == v1::JOB_RUNNING && change.to() == v1::JOB_RUNNING) {
      saves_fail_ = coordinator::TellsOfFailedSaves(change.reason());
      Say(change.reason());
    }
    if (change.to() != v1::JOB_LAUNCHING) return;
    // Another attempt goes back to its checkpoint: its speed is measured anew.
    if (attempts_++ > 0) Say(change.reason());
    view_ = report::ProgressView();
    saves_fail_ = false;
    first_step_.reset();
    attempt_start_ = Clock::now();
  }

  void Say(const std::string& text) {
    if (!options_.json) writer_.Say(Shown(text), view_, outcome_.seconds);
  }

  // What comes before the first step is counted with it, which only makes it longer.
  double GraceSeconds() const {
    if (options_.grace_seconds > 0) return options_.grace_seconds;
    const uint64_t steps = view_.progress().steps_done - first_step_.value_or(0);
    const double step_seconds =
        SecondsSince(attempt_start_) / static_cast<double>(std::max<uint64_t>(1, steps));
    return coordinator::StopGraceSeconds(spec_, step_seconds);
  }

  std::string StopWords(double grace) const {
    if (!saves_fail_) {
      return fmt::format(
          "stopping at the next step with a checkpoint, within {:.0f} s; once more to kill", grace);
    }
    const uint64_t step = outcome_.job.status().checkpoint_step();
    return fmt::format(
        "stopping at the next step, within {:.0f} s, but its checkpoints could not be written: if "
        "this one cannot either, {} lost (make room now); once more to kill",
        grace,
        step == 0 ? "all that this run has done is" : fmt::format("the steps after {} are", step));
  }

  absl::Status PassSignalsOn() {
    for (; heard_ < signals_.count(); ++heard_) {
      const bool first = heard_ == 0;
      const double grace = GraceSeconds();
      const std::string words = first ? StopWords(grace) : "killing the ranks";
      if (options_.json) PrintWarning(words);
      if (!options_.json) {
        std::fprintf(stderr, "%s%s\n", terminal_ && view_.progress().steps_done > 0 ? "\n" : "",
                     words.c_str());
      }
      if (first) outcome_.stop_asked = outcome_.job.status().attempt_live();
      if (!first) outcome_.kill_asked = true;
      RETURN_IF_ERROR(first ? run_.Stop(grace) : run_.Kill());
      if (run_.Over()) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  coordinator::LocalRun& run_;
  const v1::JobSpec& spec_;
  const RunWatchOptions options_;
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  const launcher::SignalLatch signals_;
  int heard_ = 0;
  report::ProgressWriter writer_;
  report::ProgressView view_;
  std::optional<uint64_t> first_step_;  // what was done before, on a resume
  int attempts_ = 0;
  bool saves_fail_ = false;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point attempt_start_ = start_;
  RunOutcome outcome_;
};

}  // namespace

absl::StatusOr<RunOutcome> WatchRun(coordinator::LocalRun& run, const v1::JobSpec& job,
                                    const RunWatchOptions& options) {
  return RunWatcher(run, job, options).Run();
}

}  // namespace trireme::cli
