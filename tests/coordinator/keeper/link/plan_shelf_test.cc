// Who waits for a plan whose disk hangs, and who is sent away.
#include "coordinator/keeper/plan_shelf.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "tests/coordinator/keeper/link/link_bench.h"

namespace trireme::keeper {
namespace {

using Plan = absl::StatusOr<std::shared_ptr<const v1::Plan>>;

TEST_CASE("plan shelf: so many ranks wait for one read, and who comes then is to ask again") {
  const LinkBench bench;
  const size_t most = 2 * size_t{bench.seat.ranks_here} + 16;
  // The only thread is held.
  coordinator::DiskCalls disks({.name = "plan", .threads = 1});
  absl::Notification answers;
  REQUIRE(disks
              .Begin(
                  {bench.seat.plan_file},
                  [&] { return answers.WaitForNotification(), absl::OkStatus(); },
                  [](const absl::Status&) {})
              .ok());
  const auto shelf = std::make_shared<PlanShelf>();
  std::vector<absl::StatusCode> ends(most);
  absl::BlockingCounter ended(static_cast<int>(most));
  for (size_t rank = 0; rank < most; ++rank) {
    shelf->Get(bench.seat, disks, [&, rank](const Plan& plan) {
      ends[rank] = plan.status().code();
      ended.DecrementCount();
    });
  }
  for (int more = 0; more < 100; ++more) {
    absl::Status refused = absl::OkStatus();
    shelf->Get(bench.seat, disks, [&](const Plan& plan) { refused = plan.status(); });
    CHECK(absl::IsResourceExhausted(refused));
  }
  answers.Notify();
  ended.Wait();
  CHECK(ends == std::vector<absl::StatusCode>(most, absl::StatusCode::kOk));
  // There is room again.
  absl::Notification again;
  shelf->Get(bench.seat, disks, [&](const Plan& plan) {
    CHECK(plan.ok());
    again.Notify();
  });
  again.WaitForNotification();
}

TEST_CASE("plan shelf: a plan in the file that the verifier refuses is given to nobody") {
  LinkBench bench;
  // As written by other hands: a stage sums a bucket before the last of it is there.
  auto& program = *bench.plan.mutable_stages(0)->mutable_step()->mutable_instructions();
  int at = 0;
  while (program[at].kind() != v1::REDUCE) ++at;
  for (; at > 0 && program[at - 1].kind() != v1::LOAD; --at) program.SwapElements(at, at - 1);
  REQUIRE(base::WriteWholeFile(bench.seat.plan_file, plan::SerializePlan(bench.plan)).ok());
  coordinator::DiskCalls disks({.name = "plan", .threads = 1});
  const auto shelf = std::make_shared<PlanShelf>();
  absl::Notification answered;
  shelf->Get(bench.seat, disks, [&](const Plan& plan) {
    CHECK_FALSE(plan.ok());
    CHECK_THAT(std::string(plan.status().message()),
               Catch::Contains("does not pass the verifier: stage 0, step"));
    answered.Notify();
  });
  answered.WaitForNotification();
}

}  // namespace
}  // namespace trireme::keeper
