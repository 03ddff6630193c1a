// Ranks that were given plans from outside: what fits is taken, and of what does not each rank
// hears who is why.
#include "worker/plan_source.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/slice.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::worker {
namespace {

constexpr int kRanks = 4;

v1::Plan PlanOf(const v1::JobSpec& job) {
  auto plan = plan::MakePlan(job, kRanks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

// What each rank is told, having been given `given(rank)`.
std::vector<absl::StatusOr<bool>> Agree(
    const std::function<absl::StatusOr<v1::Plan>(int rank)>& given) {
  std::vector<absl::StatusOr<bool>> told(kRanks, absl::UnknownError("not told"));
  const auto statuses = comm::RunRanks(kRanks, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(const auto agreement, comm::Agreement::Make(fabric, std::chrono::seconds(60)));
    told[static_cast<size_t>(fabric.rank())] = AgreeOnPlan(given(fabric.rank()), *agreement);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) CHECK(status.ok());
  return told;
}

void CheckTold(const absl::StatusOr<bool>& told, absl::StatusCode code, const std::string& part) {
  INFO(told.status().ToString());
  CHECK(told.status().code() == code);
  CHECK_THAT(std::string(told.status().message()), Catch::Contains(part));
}

TEST_CASE("plan source: slices of one plan are agreed on, and so is that nobody has one") {
  const v1::Plan plan = PlanOf(plan::SmallJob());
  for (const auto& told : Agree([&](int rank) { return plan::SliceOf(plan, rank); })) {
    CHECK((told.ok() && *told));
  }
  for (const auto& told : Agree([&](int /*rank*/) { return absl::NotFoundError("none"); })) {
    CHECK((told.ok() && !*told));
  }
}

TEST_CASE("plan source: a rank with another plan is named on all ranks") {
  const v1::Plan plan = PlanOf(plan::SmallJob());
  v1::Plan of_another_job = plan;
  of_another_job.mutable_job()->set_seed(99);
  v1::Plan of_another_planner = plan;
  of_another_planner.mutable_stages(1)->mutable_step()->mutable_instructions(2)->set_channel(7);
  for (const v1::Plan* other : {&of_another_job, &of_another_planner}) {
    const auto all =
        Agree([&](int rank) { return plan::SliceOf(rank == 3 ? *other : plan, rank); });
    for (const auto& told : all) {
      CheckTold(told, absl::StatusCode::kFailedPrecondition, "rank 3 was given another plan");
    }
  }
}

TEST_CASE("plan source: a rank without a plan is named to the others") {
  const v1::Plan plan = PlanOf(plan::SmallJob());
  for (const auto& why : {absl::NotFoundError("none here"), absl::DataLossError("half of one")}) {
    const auto all = Agree([&](int rank) -> absl::StatusOr<v1::Plan> {
      if (rank == 1) return why;
      return plan::SliceOf(plan, rank);
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& told = all[static_cast<size_t>(rank)];
      if (rank == 1) CheckTold(told, why.code(), std::string(why.message()));
      if (rank != 1) CheckTold(told, absl::StatusCode::kUnavailable, "rank 1 has no plan");
    }
  }
}

TEST_CASE("plan source: a file is held against the job and the number of ranks") {
  const v1::JobSpec job = plan::SmallJob();
  const v1::Plan plan = PlanOf(job);
  std::string folder = "/tmp/trireme_plan_XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/plan.pb";
  const auto given = [&](const v1::JobSpec& wanted) {
    absl::StatusOr<v1::Plan> answer = absl::UnknownError("not asked");
    const auto statuses = comm::RunRanks(kRanks, [&](comm::Fabric& fabric) {
      auto own = GivenPlan({.link = nullptr, .file = path}, wanted, fabric);
      if (fabric.rank() == 2) answer = std::move(own);
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) CHECK(status.ok());
    return answer;
  };
  const auto check = [](const absl::StatusOr<v1::Plan>& answer, const std::string& part) {
    CheckTold(answer.ok() ? absl::StatusOr<bool>(true) : answer.status(),
              absl::StatusCode::kFailedPrecondition, part);
  };
  CHECK(absl::IsNotFound(given(job).status()));
  REQUIRE(base::WriteWholeFile(path, plan::SerializePlan(plan)).ok());
  const auto slice = given(job);
  INFO(slice.status().ToString());
  REQUIRE(slice.ok());
  CHECK(plan::SerializePlan(*slice) == plan::SerializePlan(plan::SliceOf(plan, 2)));
  v1::JobSpec placed = job;
  placed.mutable_runtime()->set_threads(job.runtime().threads() + 3);
  CHECK(given(placed).ok());
  v1::JobSpec other = job;
  other.set_seed(job.seed() + 1);
  check(given(other), "the plan is another job's");
  const auto of_two = plan::MakePlan(job, 2);
  REQUIRE(of_two.ok());
  REQUIRE(base::WriteWholeFile(path, plan::SerializePlan(*of_two)).ok());
  check(given(job), "the plan is for 2 ranks, but there are 4");
  // A plan in which somebody is not waited for.
  v1::Plan early = plan;
  auto& program = *early.mutable_stages(1)->mutable_step()->mutable_instructions();
  const auto wait = std::find_if(program.begin(), program.end(), [](const v1::Instruction& each) {
    return each.kind() == v1::WAIT;
  });
  program.erase(wait);
  REQUIRE(base::WriteWholeFile(path, plan::SerializePlan(early)).ok());
  check(given(job), path + ": the plan that was given does not pass the verifier: stage 1, step, ");
  // A plan that claims stages which it does not have.
  v1::Plan hollow = plan;
  hollow.clear_stages();
  REQUIRE(base::WriteWholeFile(path, plan::SerializePlan(hollow)).ok());
  check(given(job), "the plan is for");
  REQUIRE(base::WriteWholeFile(path, "rubbish").ok());
  CHECK(given(job).status().code() == absl::StatusCode::kDataLoss);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::worker
