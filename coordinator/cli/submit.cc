// `trireme submit`: a job file to the coordinator's queue.
#include <fmt/format.h>

#include <cstdio>
#include <random>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/client/call_status.h"
#include "coordinator/planning/job_planning.h"
#include "coordinator/process/shell_quote.h"
#include "runtime/base/status_macros.h"

namespace trireme::cli {
namespace {

std::string NewRequestId() {
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) id += fmt::format("{:08x}", device());
  return id;
}

// Faults of the data are better heard here than from a job that has waited for its allocation. A
// text that is not on this machine may well be on the coordinator's.
absl::Status CheckData(v1::JobSpec job) {
  const absl::Status data = coordinator::ResolveVocabulary(job);
  if (!absl::IsNotFound(data)) return data;
  PrintWarning("the coordinator will look for what is not here: " + base::MessageOf(data));
  return absl::OkStatus();
}

// After these the job may be there or not.
bool MayHaveArrived(const absl::Status& status) {
  if (client::NeverSent(status)) return false;
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<client::Client>> Connect(const ControlOptions& options) {
  client::ClientOptions connection = options.connection;
  connection.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
  return client::Client::Open(connection);
}

int RunSubmit(const ControlOptions& control, const SubmitOptions& options) {
  const auto job = LoadResolvedJob(options.job, options.overrides);
  if (!job.ok()) return PrintError(job.status());
  if (const absl::Status data = CheckData(*job); !data.ok()) return PrintError(data);
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  v1::SubmitRequest request;
  request.set_request_id(options.request_id.empty() ? NewRequestId() : options.request_id);
  *request.mutable_job() = *job;
  const auto response = (*client)->Call(request);
  if (!response.ok()) {
    const int code = PrintCallError(response.status());
    if (MayHaveArrived(response.status())) {
      PrintWarning("if it has arrived nevertheless, the same command with --request-id " +
                   process::ShellQuote(request.request_id()) + " finds it and makes no second job");
    }
    return code;
  }
  const v1::Job& made = response->job();
  const std::string id = std::to_string(made.id());
  if (control.json && !options.watch) PrintJsonLine(*response);
  if (response->repeated() && (!control.json || options.watch)) {
    PrintWarning("request id " + process::ShellQuote(request.request_id()) +
                 " was used before: this is job " + id + " as it was submitted then");
  }
  if (!control.json) {
    std::printf("%s\n", id.c_str());
    std::fflush(stdout);
    std::string state = response->repeated() ? StateWord(made.status().state()) : "in the queue";
    if (!response->repeated() && !options.watch) state += "; trireme watch " + id + " shows it";
    std::fprintf(stderr, "%s is %s\n", NameOf(made).c_str(), state.c_str());
  }
  return options.watch ? RunWatch(control, id) : kOk;
}

}  // namespace trireme::cli
