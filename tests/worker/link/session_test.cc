// The start of a session: which of its waits are for ranks that may be at their disks.
#include "worker/session.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/data/random_dataset.h"
#include "tests/runtime/engine/timed_communicator.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::worker {
namespace {

using std::chrono::milliseconds;

TEST_CASE("session: a rank that read its text long after the deadline is waited for") {
  constexpr milliseconds kStep{60'000}, kDisk = kDiskDeadline;
  v1::JobSpec job = plan::SmallJob();
  job.mutable_runtime()->set_deadline_seconds(60);
  const data::RandomDataset text({.vocab_size = 29, .sequence_length = 8});
  std::vector<std::vector<milliseconds>> waits(4);
  const auto statuses = comm::RunRanks(4, [&](comm::Fabric& own) -> absl::Status {
    engine::ForwardingFabric fabric(
        own,
        [&own_waits = waits[static_cast<size_t>(own.rank())]](
            std::unique_ptr<comm::Communicator> group,
            std::string_view name) -> std::unique_ptr<comm::Communicator> {
          if (name != "everyone") return group;
          return std::make_unique<engine::TimedCommunicator>(std::move(group), own_waits);
        });
    ASSIGN_OR_RETURN(auto everyone, GroupOfAll(fabric));
    return Session::Open(job, fabric, std::move(everyone), text, nullptr).status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  // The places come after each rank's text, whose plan counts after a file or the keeper was
  // asked, and the plan's size after rank 0 has planned. For the plan itself all are level.
  for (const auto& own : waits) {
    CHECK(own == std::vector<milliseconds>{kDisk, kDisk, kDisk, kStep});
  }
}

}  // namespace
}  // namespace trireme::worker
