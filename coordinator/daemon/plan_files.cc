// Files appear whole, by renaming.
#include "coordinator/daemon/plan_files.h"

#include <filesystem>

#include "coordinator/planning/job_planning.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/report/schedule_svg.h"
#include "runtime/spec/job_spec.h"

namespace trireme::coordinator {

namespace {

// What a disk refuses today it may take another time, unlike a plan that cannot be made.
absl::Status Write(const std::string& path, const std::string& text) {
  const absl::Status written = base::WriteWholeFile(path, text);
  return written.ok() ? written : absl::UnavailableError(base::MessageOf(written));
}

}  // namespace

absl::Status WritePlanFiles(const v1::Job& job, const std::function<void()>& step) {
  const std::string& folder = job.run_folder();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        base::Text("cannot make the run folder ", folder, ": ", error.message()));
  }
  const v1::JobSpec spec = CurrentSpec(job);
  ASSIGN_OR_RETURN(const v1::Plan plan,
                   plan::MakePlan(spec, static_cast<int>(job.resources().ranks()), [&] {
                     step();
                     return absl::OkStatus();
                   }));
  RETURN_IF_ERROR(Write(folder + "/job.yaml", spec::ToYaml(spec)));
  step();
  RETURN_IF_ERROR(Write(folder + "/plan.pb", plan::SerializePlan(plan)));
  step();
  // A picture for people; a plan whose schedule cannot be drawn runs all the same.
  if (const auto svg = report::ScheduleSvg(plan); svg.ok()) {
    RETURN_IF_ERROR(Write(folder + "/schedule.svg", *svg));
  }
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
