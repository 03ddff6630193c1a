// `trireme cancel`, `pause`, `resume`: what its people want of a job; and `trireme checkpoints`.
#include <fmt/format.h>

#include <cstdio>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {
namespace {

// "job 12 (demo) is running, to be paused: ..."
void PrintState(const v1::Job& job) {
  const v1::JobStatus& status = job.status();
  std::string text = NameOf(job) + " is " + StateWord(status.state());
  if (status.desired_state() == v1::JOB_DESIRED_CANCEL && !HasEnded(status.state())) {
    text += ", to be cancelled";
  }
  if (status.desired_state() == v1::JOB_DESIRED_PAUSE && status.state() != v1::JOB_PAUSED &&
      status.state() != v1::JOB_PAUSING) {
    text += ", to be paused";
  }
  if (!status.reason().empty()) text += ": " + status.reason();
  std::printf("%s\n", Shown(text).c_str());
}

// Finds the job, asks `request` of it, says what it is then.
template <typename Request>
int Ask(const ControlOptions& control, const std::string& name, Request request) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto found = FindJob(**client, name);
  if (!found.ok()) return PrintCallError(found.status());
  request.set_job_id(found->id());
  const auto job = (*client)->Call(request);
  if (!job.ok()) return PrintCallError(job.status());
  control.json ? PrintJsonLine(*job) : PrintState(*job);
  return kOk;
}

}  // namespace

int RunCancel(const ControlOptions& control, const std::string& job, double grace_seconds) {
  v1::CancelRequest request;
  request.set_grace_seconds(grace_seconds);
  return Ask(control, job, request);
}

int RunPause(const ControlOptions& control, const std::string& job) {
  return Ask(control, job, v1::PauseRequest());
}

int RunResume(const ControlOptions& control, const std::string& job) {
  return Ask(control, job, v1::ResumeRequest());
}

int RunCheckpoints(const ControlOptions& control, const std::string& name) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, name);
  if (!job.ok()) return PrintCallError(job.status());
  v1::ListCheckpointsRequest request;
  request.set_job_id(job->id());
  const auto list = (*client)->Call(request);
  if (!list.ok()) return PrintCallError(list.status());
  if (control.json) {
    PrintJsonLine(*list);
    return kOk;
  }
  for (const std::string& each : list->damaged()) PrintWarning("does not open: " + each);
  if (list->checkpoints().empty()) {
    std::printf("%s has no checkpoints\n", NameOf(*job).c_str());
    return kOk;
  }
  fmt::print("{:>10} {:>12}  {:<19}  {}\n", "step", "bytes", "written", "folder");
  for (const v1::CheckpointInfo& one : list->checkpoints()) {
    fmt::print("{:>10} {:>12}  {:<19}  {}\n", one.step(), report::ReadableBytes(one.bytes()),
               LocalTime(one.written_unix_ns()), one.path());
  }
  return kOk;
}

}  // namespace trireme::cli
