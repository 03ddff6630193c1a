// `trireme watch`: what there has been, then what happens, until the job ends. Told as lines, with
// the progress of the ranks below them on a terminal.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <optional>

#include "coordinator/cli/away.h"
#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;
using base::Text;
using client::Pull;

// A stream that ends before its job has is asked for again at this pace.
constexpr std::chrono::milliseconds kAgain{1000};
constexpr size_t kHistoryLines = 12;

class Watcher {
 public:
  Watcher(client::Client& client, const v1::Job& job, const ControlOptions& control)
      : client_(client),
        job_(job),
        control_(control),
        color_(report::StyleOf(stdout).color),
        writer_(stdout, terminal_) {}

  // The exit code; or an error of the stream.
  absl::StatusOr<int> Run() {
    if (!json_) std::printf("%s\n", NameOf(job_).c_str());
    // A pause of the past is no end: it counts only if it is the newest state.
    RETURN_IF_ERROR(Take(/*follow=*/false));
    ShowHistory();
    while (!left_ && !Over()) {
      RETURN_IF_ERROR(Take(/*follow=*/true));
      if (left_ || Over()) break;
      RETURN_IF_ERROR(LookAgain());
    }
    if (!json_) writer_.Finish(view_, Seconds());
    if (left_ && !Over()) {
      if (json_) return kLeft;
      std::fprintf(stderr, "%s; trireme watch %llu comes back to it\n",
                   LeftText(job_, State()).c_str(), static_cast<unsigned long long>(job_.id()));
      return kLeft;
    }
    RETURN_IF_ERROR(Conclude());
    return ExitCodeOfState(state_);
  }

 private:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Before the first event what the daemon said.
  v1::JobState State() const {
    return state_ == v1::JOB_STATE_UNSPECIFIED ? job_.status().state() : state_;
  }
  bool Over() const { return HasEnded(state_) || state_ == v1::JOB_PAUSED; }

  absl::Status Take(bool follow) {
    v1::WatchRequest request;
    request.set_job_id(job_.id());
    request.set_after_sequence(sequence_);
    request.set_no_follow(!follow);
    const auto stream = client_.Watch(request);
    bool away = false;
    while (!left_ && !(follow && Over())) {
      v1::WatchResponse response;
      ASSIGN_OR_RETURN(const Pull pull, stream->Next(response, kLook));
      if (pull == Pull::kEnd) break;
      if (stream->interrupted() != away) {
        away = !away;
        // On a terminal above the progress, which would be drawn over a line of stderr.
        terminal_ && !json_ ? Say(AwayText(control_, away)) : TellAway(control_, away);
      }
      if (pull == Pull::kMessage) Hear(response, follow);
      if (follow && !away) TellWait();
      if (follow && !json_) writer_.Show(view_, Seconds());
      left_ = signals_.count() > 0;
    }
    return absl::OkStatus();
  }

  void Hear(const v1::WatchResponse& response, bool follow) {
    if (json_) PrintJsonLine(response);
    if (response.has_progress()) {
      view_.Update(ToProgress(response.progress().progress()), Seconds());
      return;
    }
    const v1::Event& event = response.event();
    sequence_ = event.sequence();
    if (event.has_state_changed()) {
      state_ = event.state_changed().to();
      wait_.clear();
      // Another attempt goes back to its checkpoint: its speed is measured anew.
      if (state_ == v1::JOB_LAUNCHING) view_ = report::ProgressView();
    }
    if (json_) return;
    const v1::JobState paint =
        event.has_state_changed() ? event.state_changed().to() : v1::JOB_STATE_UNSPECIFIED;
    std::string line = Shown(EventText(event));
    if (event.has_state_changed()) line = Painted(line, paint, color_);
    line = LocalTime(event.time_unix_ns()) + "  " + line;
    if (follow) return Say(line);
    // Of checkpoints that follow one another the newest says it all.
    size_t events = 1;
    if (event.has_checkpointed() && checkpoint_last_ && !history_.empty()) {
      events += history_.back().events;
      history_.pop_back();
    }
    checkpoint_last_ = event.has_checkpointed();
    history_.push_back({std::move(line), events});
    if (history_.size() <= kHistoryLines) return;
    earlier_ += history_.front().events;
    history_.pop_front();
  }

  // What a job in a queue waits for is no event: it is asked for, and told when it changes.
  void TellWait() {
    const v1::JobState state = State();
    const bool waits =
        state == v1::JOB_PENDING || state == v1::JOB_LAUNCHING || state == v1::JOB_RECOVERING;
    if (json_ || !waits || Clock::now() < next_look_) return;
    v1::GetRequest request;
    request.set_job_id(job_.id());
    const auto job = client_.Call(request);
    next_look_ = Clock::now() + (job.ok() ? kAgain : 30 * kAgain);
    // Of a daemon that does not answer the stream knows more. The state may have changed meanwhile.
    if (!job.ok() || job->status().state() != state) return;
    const std::string text = WaitText(*job);
    if (text == wait_) return;
    wait_ = text;
    if (!text.empty()) Say(LocalTime(NowUnixNs()) + "  " + Shown(text));
  }

  void Say(const std::string& line) { writer_.Say(line, view_, Seconds()); }

  void ShowHistory() {
    if (earlier_ > 0) Say(Text("... ", base::Counted(earlier_, "event"), " before these"));
    for (const Told& told : history_) Say(told.line);
    history_.clear();
  }

  absl::Status LookAgain() {
    v1::GetRequest request;
    request.set_job_id(job_.id());
    const auto job = client_.Call(request);
    if (job.ok()) job_ = *job;
    // A daemon that is away is waited for by the next stream.
    if (!job.ok() && !absl::IsUnavailable(job.status())) return job.status();
    if (HasEnded(job_.status().state())) state_ = job_.status().state();
    const Clock::time_point until = Clock::now() + kAgain;
    while (!Over() && !left_ && Clock::now() < until) {
      usleep(static_cast<useconds_t>(kLook.count()) * 1000);
      left_ = signals_.count() > 0;
    }
    return absl::OkStatus();
  }

  absl::Status Conclude() {
    v1::GetRequest request;
    request.set_job_id(job_.id());
    const auto job = client_.Call(request);
    if (job.ok()) job_ = *job;
    // How it ended is known, even if nobody is there any more to say why.
    if (!job.ok() && !absl::IsUnavailable(job.status())) return job.status();
    if (json_) return absl::OkStatus();
    const v1::JobStatus& status = job_.status();
    std::string text = Text(NameOf(job_), " is ", Painted(StateWord(state_), state_, color_));
    if (!status.reason().empty()) text += ": " + Shown(status.reason());
    std::printf("%s\n", text.c_str());
    if (state_ == v1::JOB_FAILED) {
      const v1::Failure& failure = status.failure();
      if (!failure.evidence().empty()) std::printf("%s\n", Shown(failure.evidence()).c_str());
      if (!failure.next_action().empty()) {
        std::printf("next: %s\n", Shown(failure.next_action()).c_str());
      }
    }
    if (state_ == v1::JOB_PAUSED) {
      std::printf("go on with: trireme resume %llu\n", static_cast<unsigned long long>(job_.id()));
    }
    if (!job_.run_folder().empty()) std::printf("run folder %s\n", job_.run_folder().c_str());
    return absl::OkStatus();
  }

  client::Client& client_;
  v1::Job job_;
  const ControlOptions& control_;
  const bool json_ = control_.json;
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  const bool color_;
  const Clock::time_point start_ = Clock::now();
  const launcher::SignalLatch signals_;
  report::ProgressView view_;
  report::ProgressWriter writer_;
  Clock::time_point next_look_ = start_;
  std::string wait_;  // told last
  struct Told {
    std::string line;
    size_t events = 1;  // of which it is the newest
  };
  std::deque<Told> history_;
  size_t earlier_ = 0;  // events older than the history
  bool checkpoint_last_ = false;
  uint64_t sequence_ = 0;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  bool left_ = false;
};

}  // namespace

int RunWatch(const ControlOptions& control, const std::string& name) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, name);
  if (!job.ok()) return PrintCallError(job.status());
  const auto code = Watcher(**client, *job, control).Run();
  if (!code.ok()) return PrintCallError(code.status());
  return *code;
}

}  // namespace trireme::cli
