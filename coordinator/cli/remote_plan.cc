// `trireme plan --remote`: the plan as the coordinator would make it for a submission.
#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/control.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunRemotePlan(const ControlOptions& control, const PlanOptions& options) {
  auto job = LoadResolvedJob(options.job, options.overrides);
  if (!job.ok()) return PrintError(job.status());
  if (options.programs) {
    return PrintError(absl::InvalidArgumentError(
        "--programs: the coordinator's plan comes without its instructions; leave out --remote"));
  }
  if (options.ranks > 0) job->mutable_resources()->set_ranks(options.ranks);
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  v1::PreviewPlanRequest request;
  *request.mutable_job() = *std::move(job);
  const auto preview = (*client)->Call(request);
  if (!preview.ok()) return PrintCallError(preview.status());
  if (control.json) {
    std::printf("%s\n", preview->json().c_str());
    return kOk;
  }
  std::fputs(Shown(preview->text()).c_str(), stdout);
  std::printf("asks for         %s\n", Shown(RequestText(preview->resources())).c_str());
  return kOk;
}

}  // namespace trireme::cli
