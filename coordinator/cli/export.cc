// `trireme export`: a checkpoint of a job as a Hugging Face folder, written by the daemon. The
// folder's name alone on stdout.
#include <cstdio>
#include <optional>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/transfer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::cli {
namespace {

// What became of it; nothing: Ctrl-C.
absl::StatusOr<std::optional<v1::ExportResponse>> Export(client::Client& client,
                                                         const v1::ExportRequest& request,
                                                         bool json) {
  const auto stream = client.Export(request);
  TransferLine line(!json);
  v1::ExportResponse last;
  const auto whole = TakeAll(*stream, [&](const v1::ExportResponse& response) {
    if (json) PrintJsonLine(response);
    // Each part has them.
    for (int i = last.passed_over_size(); i < response.passed_over_size(); ++i) {
      PrintWarning(base::Text("passed over as damaged: ", response.passed_over(i), "; step ",
                              response.step(), " is exported instead"));
    }
    line.Show(base::Text("step ", response.step()), response.bytes_done(), response.bytes_total());
    last = response;
    return absl::OkStatus();
  });
  if (absl::IsUnavailable(whole.status())) {
    return base::Annotate(whole.status(), "the export was interrupted, and nothing is left of it");
  }
  if (!whole.ok()) return whole.status();
  if (!*whole) return std::nullopt;
  if (!last.done()) return absl::InternalError("the coordinator has not said that it is done");
  return last;
}

}  // namespace

int RunExport(const ControlOptions& control, const ExportOptions& options) {
  const auto folder = AbsoluteFolder("--to", options.to);
  if (!folder.ok()) return PrintError(folder.status());
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, options.job);
  if (!job.ok()) return PrintCallError(job.status());
  v1::ExportRequest request;
  request.set_job_id(job->id());
  request.set_step(options.step);
  request.set_folder(*folder);
  const auto end = Export(**client, request, control.json);
  if (!end.ok()) return PrintCallError(end.status());
  if (!*end) {
    PrintError(absl::CancelledError("given up by Ctrl-C; the coordinator removes what there was"));
    return kCancelled;
  }
  if (control.json) return kOk;
  std::printf("%s\n", (*end)->folder().c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "%s, step %llu, is there as a Hugging Face folder\n", NameOf(*job).c_str(),
               static_cast<unsigned long long>((*end)->step()));
  return kOk;
}

}  // namespace trireme::cli
