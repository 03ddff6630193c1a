// What an engine does where the disk beneath its offloaded state fails, or one of the ranks waits
// for it: nothing of what was lost is saved, sent or summed, and nobody is given up for it.
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/swapping.h"
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

// Of a process that is stopped during the first wait for it, for so long.
class StoppedStream final : public tensor::Stream {
 public:
  explicit StoppedStream(std::chrono::milliseconds stop) : Stream(nullptr), stop_(stop) {}
  tensor::Event Record() override { return {this, 1}; }
  uint64_t Finished() const override { return waits_ > 1 ? 1 : 0; }
  void Await(uint64_t) override {}
  bool AwaitFor(uint64_t, std::chrono::milliseconds) override {
    if (++waits_ == 1) std::this_thread::sleep_for(stop_);
    return waits_ > 1;
  }
  bool inline_execution() const override { return false; }

 private:
  void Enqueue(tensor::Task task, tensor::MemoryGate*) override { task(); }

  const std::chrono::milliseconds stop_;
  int waits_ = 0;
};

}  // namespace

TEST_CASE("swap disk: time in which the rank was stopped is no silence of its disk") {
  constexpr std::chrono::milliseconds kDeadline{400};
  const auto device = tensor::MakeHostDevice({});
  v1::StagePlan stage;
  stage.set_file_bytes(4096);
  const auto swapping = Swapping::Make(stage, *device,
                                       {.directory = std::filesystem::temp_directory_path(),
                                        .deadline = kDeadline,
                                        .while_waiting = nullptr});
  REQUIRE(swapping.ok());
  StoppedStream stopped(2 * kDeadline);
  const auto work = tensor::MakeInlineStream();
  (*swapping)->WaitOn(stopped.Record(), *work);
  CHECK((*swapping)->status().ToString() == "OK");
  CHECK_FALSE((*swapping)->stuck());
}

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
