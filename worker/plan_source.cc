#include "worker/plan_source.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/slice.h"
#include "worker/compared_job.h"

namespace trireme::worker {

namespace {

// A plan from outside: whatever it says must not be asked for what it does not have.
absl::Status CheckPlan(const v1::Plan& plan, const v1::JobSpec& job, const comm::Fabric& fabric) {
  if (!plan::IsPlanVersion(plan.version())) {
    return absl::AbortedError(absl::StrCat(
        "the plan has version ", plan.version(), ", this program reads ", plan::kPlanVersion,
        " and ", plan::kPlanVersionWithSlots, "; are all programs of one version?"));
  }
  const v1::Mesh& mesh = plan.mesh();
  const uint64_t ranks = uint64_t{mesh.pipeline()} * mesh.data() * mesh.tensor();
  if (ranks != static_cast<uint64_t>(fabric.size()) ||
      plan.stages_size() != static_cast<int>(mesh.pipeline())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan is for ", base::Counted(static_cast<int64_t>(ranks), "rank"),
                     ", but there are ", fabric.size(), "; was it made for another attempt?"));
  }
  const v1::StagePlan& own =
      plan.stages(static_cast<int>(plan::CoordinatesOf(mesh, fabric.rank()).pipeline));
  if (own.step().instructions().empty() || own.pools().empty() ||
      own.fingerprint_size() != own.first_block_size() * static_cast<int>(mesh.tensor())) {
    return absl::DataLossError("the plan has nothing for this rank to do");
  }
  const std::string differences = DifferencesOf(ComparedJob(plan::JobOnMesh(job, mesh)),
                                                ComparedJob(plan.job()), "in the plan");
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the plan is another job's", differences));
}

// `whole`: it is a file's, and so of all ranks.
absl::StatusOr<v1::Plan> FindPlan(const PlanSource& source, bool& whole) {
  absl::StatusOr<v1::Plan> plan = absl::NotFoundError("nobody is named who has a plan");
  if (source.link != nullptr) plan = source.link->Join({});
  if (plan.ok()) spdlog::info("the plan is from the keeper of this node");
  const bool elsewhere = absl::IsNotFound(plan.status()) || absl::IsUnavailable(plan.status());
  if (!elsewhere || source.file.empty()) return plan;
  if (absl::IsUnavailable(plan.status())) spdlog::warn("{}", base::MessageOf(plan.status()));
  plan = plan::ReadPlanFile(source.file);
  whole = plan.ok();
  if (whole) spdlog::info("the plan is from {}", source.file);
  return plan;
}

// What a rank tells the others of its plan. Sent as bytes.
struct Held {
  plan::SliceHash hash;
  uint64_t stage = 0;  // pipeline coordinate
  int64_t code = 0;    // absl::StatusCode of what came of asking
};

// The first rank whose plan is not that of the ranks before it; empty: all have slices of one.
std::string Odd(const std::vector<Held>& all) {
  std::vector<size_t> first_of_stage(all.size(), all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Held& held = all[rank];
    size_t& first = first_of_stage[static_cast<size_t>(held.stage)];
    if (first == all.size()) first = rank;
    const size_t other = held.hash.common != all[0].hash.common     ? 0
                         : held.hash.stage != all[first].hash.stage ? first
                                                                    : rank;
    if (other != rank) {
      return absl::StrCat("rank ", rank, " was given another plan than rank ", other,
                          "; do all nodes see the same run folder, and have they programs of one "
                          "version?");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<v1::Plan> GivenPlan(const PlanSource& source, const v1::JobSpec& job,
                                   const comm::Fabric& fabric) {
  bool whole = false;
  ASSIGN_OR_RETURN(const v1::Plan plan, FindPlan(source, whole));
  RETURN_IF_ERROR(CheckPlan(plan, job, fabric));
  // Of what a keeper hands out, it has verified the whole.
  if (whole) RETURN_IF_ERROR(base::Annotate(plan::VerifyGiven(plan), source.file));
  return plan::SliceOf(plan, fabric.rank());
}

absl::StatusOr<bool> AgreeOnPlan(const absl::StatusOr<v1::Plan>& given,
                                 comm::Agreement& agreement) {
  Held own;
  own.code = static_cast<int64_t>(given.status().code());
  if (given.ok()) {
    own.hash = plan::HashOf(*given, agreement.rank());
    own.stage = plan::CoordinatesOf(given->mesh(), agreement.rank()).pipeline;
  }
  ASSIGN_OR_RETURN(const std::vector<Held> all, agreement.Gather(own, comm::kDiskDeadline));
  constexpr auto kNone = static_cast<int64_t>(absl::StatusCode::kNotFound);
  size_t without = 0;
  for (const Held& held : all) without += held.code == kNone ? 1 : 0;
  if (without == all.size()) return false;
  if (!given.ok()) return given.status();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " has no plan; its own words say why"));
  }
  const std::string odd = Odd(all);
  if (!odd.empty()) return absl::FailedPreconditionError(odd);
  return true;
}

}  // namespace trireme::worker
