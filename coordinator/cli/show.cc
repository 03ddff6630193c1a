// `trireme show` and `trireme explain`: one job, as facts and as sentences.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "coordinator/cli/control.h"
#include "coordinator/cli/explanation.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/job_machine/memory_steps.h"
#include "coordinator/job_machine/time_limit.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "runtime/base/duration_text.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"
#include "runtime/report/stalled_ranks.h"

namespace trireme::cli {
namespace {

using base::Text;

// "label       text", further lines of the text below its first.
void Line(const std::string& label, const std::string& text) {
  if (text.empty()) return;
  std::string indented;
  for (const char c : Shown(text)) indented += c == '\n' ? "\n             " : std::string(1, c);
  std::printf("%-12s %s\n", label.c_str(), indented.c_str());
}

std::string StateLine(const v1::Job& job, int64_t now) {
  const v1::JobStatus& status = job.status();
  const std::string word =
      Painted(StateWord(status.state()), status.state(), report::StyleOf(stdout).color);
  std::string text = Text(word, " for ", Ago(status.changed_unix_ns(), now), " (since ",
                          LocalTime(status.changed_unix_ns()), ")");
  if (status.changed_unix_ns() == 0) text = word;
  if (status.desired_state() == v1::JOB_DESIRED_CANCEL && !HasEnded(status.state())) {
    text += ", to be cancelled";
  }
  if (status.desired_state() == v1::JOB_DESIRED_PAUSE && status.state() != v1::JOB_PAUSED) {
    text += ", to be paused";
  }
  return text;
}

std::string AttemptLine(const v1::JobStatus& status) {
  if (status.attempt() == 0) return "";
  std::string text = std::to_string(status.attempt());
  if (status.failures() > 0) {
    text += Text("; ", base::Counted(status.failures(), "failure"), " in a row ",
                 coordinator::WithoutProgress(status));
  }
  if (status.unable_nodes_size() > 0) {
    text += Text("; ", coordinator::UnableText(status), " could not start it");
  }
  return text;
}

std::string MemoryLine(const v1::JobStatus& status) {
  const std::string unused = coordinator::UnusedStepText(status);
  if (status.memory_step() == 0) return unused;
  return Text("went on at step ", status.memory_step(), unused.empty() ? "" : "; ", unused);
}

std::string TimeLimitLine(const v1::Job& job, int64_t now) {
  using coordinator::TimeLimitOf, coordinator::UsedNs;
  const std::chrono::nanoseconds limit = TimeLimitOf(job.spec());
  if (limit.count() == 0) return "";
  return Text(base::DurationText(limit), ", of which ",
              base::DurationText(std::chrono::nanoseconds(UsedNs(job.status(), now))), " are used");
}

void PrintJob(const v1::Job& job, const std::vector<std::string>& stalled) {
  const v1::JobStatus& status = job.status();
  const int64_t now = NowUnixNs();
  std::printf("%s\n", NameOf(job).c_str());
  const std::string paint = StateLine(job, now);
  std::printf("%-12s %s\n", "state", paint.c_str());
  Line("why", status.reason());
  if (status.state() == v1::JOB_PENDING) {
    Line("queue", job.queue_position() > 0 ? Text("number ", job.queue_position()) : "");
    Line("waits", job.waits_for());
  }
  if (status.state() == v1::JOB_RECOVERING && status.retry_at_unix_ns() > now) {
    Line("next try", "in " + Ago(now, status.retry_at_unix_ns()));
  }
  Line("owner", job.owner());
  Line("submitted", LocalTime(job.submitted_unix_ns()));
  if (job.priority() != 0) Line("priority", std::to_string(job.priority()));
  Line("asks for", RequestText(job.resources()));
  Line("allocation", AllocationText(job.allocation()));
  Line("attempt", AttemptLine(status));
  Line("time limit", TimeLimitLine(job, now));
  if (job.progress().steps_total() > 0) Line("progress", ProgressText(job.progress()));
  for (const std::string& rank : stalled) Line("stalled", rank);
  Line("checkpoint",
       status.checkpoint_step() > 0 ? Text("step ", status.checkpoint_step()) : "none yet");
  Line("memory", MemoryLine(status));
  if (status.has_failure()) {
    Line("failure", FailureText(status.failure()));
    Line("do next", status.failure().next_action());
  }
  if (HasEnded(status.state())) Line("exit code", std::to_string(status.exit_code()));
  Line("run folder", job.run_folder());
}

// All that has been told of a job so far.
absl::StatusOr<std::vector<v1::Event>> EventsOf(client::Client& client, uint64_t job_id) {
  v1::WatchRequest request;
  request.set_job_id(job_id);
  request.set_no_follow(true);
  const auto stream = client.Watch(request);
  std::vector<v1::Event> events;
  while (true) {
    v1::WatchResponse response;
    ASSIGN_OR_RETURN(const client::Pull pull,
                     stream->Next(response, std::chrono::milliseconds(1000)));
    if (pull == client::Pull::kEnd) return events;
    if (pull == client::Pull::kMessage && response.has_event()) events.push_back(response.event());
  }
}

}  // namespace

int RunShow(const ControlOptions& control, const std::string& name) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, name);
  if (!job.ok()) return PrintCallError(job.status());
  if (control.json) {
    PrintJsonLine(*job);
    return kOk;
  }
  std::vector<std::string> stalled;
  if (job->status().attempt_live()) {
    const auto events = EventsOf(**client, job->id());
    if (!events.ok()) return PrintCallError(events.status());
    stalled = report::StalledRanksOf(*job, *events);
  }
  PrintJob(*job, stalled);
  return kOk;
}

int RunExplain(const ControlOptions& control, const std::string& name) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, name);
  if (!job.ok()) return PrintCallError(job.status());
  const auto events = EventsOf(**client, job->id());
  if (!events.ok()) return PrintCallError(events.status());
  const Explanation why = Explain(*job, *events, NowUnixNs());
  if (control.json) {
    PrintJsonObject({{"job", ToJson(*job)}, {"sentences", why.sentences}, {"next", why.next}});
    return kOk;
  }
  for (const std::string& sentence : why.sentences) std::printf("%s\n", Shown(sentence).c_str());
  if (!why.next.empty()) std::printf("Next: %s\n", Shown(why.next).c_str());
  return kOk;
}

}  // namespace trireme::cli
