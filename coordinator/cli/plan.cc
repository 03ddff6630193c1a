// `trireme plan`: what a job would do on n ranks, without running it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "coordinator/cli/byte_size.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/compression_lines.h"
#include "coordinator/cli/fit_lines.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/run_folder.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/fit.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/report/message_json.h"
#include "runtime/report/plan_view.h"
#include "runtime/report/progress.h"
#include "runtime/report/schedule_svg.h"

namespace trireme::cli {
namespace {

// Instructions grow with the square of the stages; without them a plan for hundreds stays readable.
void DropPrograms(v1::Plan& plan) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    stage.clear_step();
    stage.clear_evaluate();
    stage.clear_generate();
  }
}

void PrintJson(const v1::Plan& plan, bool readable) {
  const report::MessageStyle style{.with_zeros = false, .indented = readable};
  const std::string json = report::MessageJson(plan, style) + '\n';
  std::fwrite(json.data(), 1, json.size(), stdout);
}

// Does the job fit, and if not, with which change?
int PrintFit(const PlanOptions& options, uint64_t rank_bytes, const PlannedJob& planned) {
  const plan::FitLimit limit{.rank_bytes = rank_bytes};
  const auto fit = plan::FindFit(planned.plan.job(), planned.ranks, limit);
  if (!fit.ok()) return PrintError(fit.status());
  if (options.json) {
    PrintFitAsJson(*fit, limit);
  } else {
    std::fputs(FitLines(*fit, limit).c_str(), stdout);
  }
  return fit->fitting.has_value() ? kOk : kDoesNotFit;
}

}  // namespace

int RunPlan(const PlanOptions& options) {
  uint64_t rank_bytes = 0;
  if (options.fit.has_value()) {
    const auto parsed = ParseByteSize(*options.fit);
    if (!parsed.ok()) return PrintError(base::Annotate(parsed.status(), "--fit"));
    rank_bytes = *parsed;
  }
  auto planned = LoadAndPlan(options.job, options.overrides, options.ranks, TextUse::kOptional);
  if (!planned.ok()) return PrintError(planned.status());
  if (options.fit.has_value()) return PrintFit(options, rank_bytes, *planned);
  if (!options.out.empty()) {
    const auto written = WriteFile(options.out, plan::SerializePlan(planned->plan));
    if (!written.ok()) return PrintError(written);
  }
  if (!options.svg.empty()) {
    const auto svg = report::ScheduleSvg(planned->plan);
    if (!svg.ok()) return PrintError(svg.status());
    if (const auto written = WriteFile(options.svg, *svg); !written.ok())
      return PrintError(written);
  }
  if (options.json) {
    if (!options.programs) DropPrograms(planned->plan);
    PrintJson(planned->plan, /*readable=*/!options.programs);
    return kOk;
  }
  const report::ProgressStyle style = report::StyleOf(stdout);
  report::DescribeOptions describe;
  describe.width = isatty(STDOUT_FILENO) == 1 ? std::max(40, style.width) : 100;
  describe.unicode = style.unicode;
  describe.color = style.color;
  std::fputs(report::DescribePlan(planned->plan, describe).c_str(), stdout);
  std::fputs(ChoiceLines(planned->plan).c_str(), stdout);
  std::fputs(GradientTransferLines(planned->plan).c_str(), stdout);
  std::fputs(CompressionLines(planned->plan, plan::RankCount(planned->plan.mesh())).c_str(),
             stdout);
  return kOk;
}

}  // namespace trireme::cli
