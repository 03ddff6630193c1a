// Under ZeRO-2 and ZeRO-3 the first micro-batch's sum goes straight to the share that is kept;
// those of later ones go to their place among the partial sums, and are added.
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

class ShareWatcher final : public ForwardingCommunicator {
 public:
  ShareWatcher(std::unique_ptr<comm::Communicator> inner, std::vector<bool>& straight)
      : ForwardingCommunicator(std::move(inner)), straight_(straight) {}
  comm::Ticket ReduceScatter(const comm::Sharded& sharded,
                             const comm::OperationOptions& options) override {
    straight_.push_back(sharded.share != nullptr);
    return ForwardingCommunicator::ReduceScatter(sharded, options);
  }

 private:
  std::vector<bool>& straight_;
};

}  // namespace

TEST_CASE(
    "shares: of each bucket the first micro-batch's sum alone goes straight to what is kept") {
  const auto dataset = MakeRandomDataset(29, 5);
  for (const int64_t zero : {2, 3}) {
    const v1::JobSpec job = JobFor({.data = 2, .zero = zero, .micro_batch = 1}, {});
    const auto plan = plan::MakePlan(job, 2);
    REQUIRE(plan.ok());
    const auto buckets = static_cast<size_t>(plan->stages(0).buckets_size());
    std::vector<bool> straight[2];
    const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
      std::vector<bool>& own = straight[fabric.rank()];
      ForwardingFabric watched(fabric,
                               [&own](std::unique_ptr<comm::Communicator> group, std::string_view) {
                                 return std::make_unique<ShareWatcher>(std::move(group), own);
                               });
      ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, watched, *dataset, OptionsOf(job)));
      engine->InitializeState();
      for (uint64_t step = 0; step < 2; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
      return engine->agreement().AllAgree(true).status();
    });
    for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
    // Four micro-batches, each of all buckets, two steps.
    std::vector<bool> expected;
    for (size_t at = 0; at < 2 * 4 * buckets; ++at) expected.push_back(at / buckets % 4 == 0);
    CHECK(straight[0] == expected);
    CHECK(straight[1] == expected);
  }
}

}  // namespace trireme::engine
