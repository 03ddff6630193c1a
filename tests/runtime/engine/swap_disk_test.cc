// What an engine does where the disk beneath its offloaded state fails, or one of the ranks waits
// for it: nothing of what was lost is saved, sent or summed, and nobody is given up for it.
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/tensor/sick_disk.h"

namespace trireme::engine {

namespace {

using Catch::Contains;

// What SyncState says on each rank after a step; `sicken` comes between the two, on rank 0.
std::vector<absl::Status> SyncAfterStep(const Layout& layout, const std::function<void()>& sicken) {
  const v1::JobSpec job = JobFor(layout, {});
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  return comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    if (fabric.rank() == 0) sicken();
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    return engine->SyncState();
  });
}

}  // namespace

// Between two steps nothing reads what was swapped out but whoever saves.
TEST_CASE("swap disk: state that the disk has lost is told on all ranks before it is saved") {
  const Layout layout{.data = 2, .zero = 1, .offload_state = "file"};
  tensor::SickDisk disk;
  const auto lost = SyncAfterStep(layout, [&] { disk.FailWriteBack(EIO, 1); });
  CHECK(lost[0] == lost[1]);
  for (const absl::Status& status : lost) {
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()),
               Contains("rank ") && Contains("offload.directory: cannot write"));
  }
  for (const absl::Status& status : SyncAfterStep(layout, [] {})) CHECK(status.ToString() == "OK");
}

}  // namespace trireme::engine
