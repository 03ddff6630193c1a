#include "coordinator/keeper/plan_shelf.h"

#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"

namespace trireme::keeper {
namespace {

using SharedPlan = std::shared_ptr<const v1::Plan>;

// Less than a rank waits before it reads the file itself.
constexpr std::chrono::seconds kPlanTime(9);

// Each rank once, and as many more of calls that have ended since: what waits for a disk that hangs
// is dropped no sooner.
size_t MostWaiting(const Seat& seat) { return 2 * size_t{seat.ranks_here} + 16; }

absl::StatusOr<SharedPlan> ReadPlanOf(const Seat& seat) {
  ASSIGN_OR_RETURN(v1::Plan plan, plan::ReadPlanFile(seat.plan_file));
  const v1::Mesh& mesh = plan.mesh();
  const uint64_t ranks = uint64_t{mesh.pipeline()} * mesh.data() * mesh.tensor();
  if (ranks == seat.ranks && plan.stages_size() == static_cast<int>(mesh.pipeline())) {
    // Ranks have slices, of which nothing can be proved.
    RETURN_IF_ERROR(base::Annotate(plan::VerifyGiven(plan), seat.plan_file));
    return std::make_shared<const v1::Plan>(std::move(plan));
  }
  return absl::FailedPreconditionError(
      base::Text(seat.plan_file, ": is for ", base::Counted(ranks, "rank"),
                 ", but the attempt has ", seat.ranks, "; was it made for another attempt?"));
}

}  // namespace

void PlanShelf::Get(const Seat& seat, coordinator::DiskCalls& disks, const Answer& answer) {
  SharedPlan here;
  size_t before = 0;
  {
    const absl::MutexLock lock(&mutex_);
    here = plan_;
    before = waiting_.size();
    if (here && ++taken_ >= seat.ranks_here) plan_.reset();
    if (!here && before < MostWaiting(seat)) waiting_.push_back(answer);
  }
  if (here) return answer(here);
  if (before >= MostWaiting(seat)) {
    return answer(absl::ResourceExhaustedError(base::Text(
        before, " calls of this attempt's ranks wait for ", seat.plan_file, " already")));
  }
  if (before > 0) return;
  const auto put = [self = shared_from_this(), ranks = seat.ranks_here](
                       absl::StatusOr<SharedPlan> plan) { self->Put(ranks, std::move(plan)); };
  const absl::Status begun = disks.Begin(
      {seat.plan_file, base::Text(seat.job_id), kPlanTime}, [seat] { return ReadPlanOf(seat); },
      put);
  if (!begun.ok()) put(begun);
}

void PlanShelf::Put(uint32_t ranks_here, absl::StatusOr<SharedPlan> plan) {
  std::vector<Answer> waiting;
  {
    const absl::MutexLock lock(&mutex_);
    waiting.swap(waiting_);
    taken_ = waiting.size();
    if (plan.ok() && taken_ < ranks_here) plan_ = *plan;
  }
  for (const Answer& answer : waiting) answer(plan);
}

}  // namespace trireme::keeper
