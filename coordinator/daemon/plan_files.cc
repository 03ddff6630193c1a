// Files appear whole, by renaming.
#include "coordinator/daemon/plan_files.h"

#include <filesystem>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/report/schedule_svg.h"
#include "runtime/spec/job_spec.h"

namespace trireme::coordinator {

absl::Status WritePlanFiles(const v1::Job& job) {
  const std::string& folder = job.run_folder();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        base::Text("cannot make the run folder ", folder, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(const v1::Plan plan,
                   plan::MakePlan(job.spec(), static_cast<int>(job.resources().ranks())));
  RETURN_IF_ERROR(base::WriteWholeFile(folder + "/job.yaml", spec::ToYaml(job.spec())));
  RETURN_IF_ERROR(base::WriteWholeFile(folder + "/plan.pb", plan::SerializePlan(plan)));
  // A picture for people; a plan whose schedule cannot be drawn runs all the same.
  if (const auto svg = report::ScheduleSvg(plan); svg.ok()) {
    RETURN_IF_ERROR(base::WriteWholeFile(folder + "/schedule.svg", *svg));
  }
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
