// The start of a session: which of its waits are for ranks that may be at their disks, and what it
// refuses.
#include "worker/session.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/data/random_dataset.h"
#include "tests/runtime/engine/timed_communicator.h"
#include "tests/runtime/plan/sample_jobs.h"
#include "tests/temporary_folder.h"

namespace trireme::worker {
namespace {

using std::chrono::milliseconds;

TEST_CASE("session: a rank that read its text long after the deadline is waited for") {
  constexpr milliseconds kStep{60'000}, kDisk = comm::kDiskDeadline;
  v1::JobSpec job = plan::SmallJob();
  job.mutable_runtime()->set_deadline_seconds(60);
  const data::RandomDataset text({.vocab_size = 29, .sequence_length = 8});
  std::vector<std::vector<engine::NotedWait>> waits(4);
  const auto statuses = comm::RunRanks(4, [&](comm::Fabric& own) -> absl::Status {
    engine::ForwardingFabric fabric(
        own,
        [&own_waits = waits[static_cast<size_t>(own.rank())]](
            std::unique_ptr<comm::Communicator> group,
            std::string_view name) -> std::unique_ptr<comm::Communicator> {
          if (name != "world") return group;
          return std::make_unique<engine::TimedCommunicator>(std::move(group), name, own_waits);
        });
    ASSIGN_OR_RETURN(auto agreement, MakeAgreement(fabric));
    return Session::Open(job, fabric, *agreement, text, nullptr, {}).status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  // The places come after each rank's text, whose plan counts after a file or the keeper was
  // asked, and what came of planning after rank 0 has. From then on all are level.
  for (const auto& own : waits) {
    std::vector<milliseconds> deadlines;
    for (const engine::NotedWait& wait : own) deadlines.push_back(wait.deadline);
    REQUIRE(deadlines.size() > 3);
    std::vector<milliseconds> expected(deadlines.size(), kStep);
    std::fill_n(expected.begin(), 3, kDisk);
    CHECK(deadlines == expected);
  }
}

TEST_CASE("session: a text that its disk does not give is laid to no peer and is no bad input") {
  v1::JobSpec job = plan::SmallJob();
  spec::ApplyDefaults(job);
  const auto open = [&](const std::string& file) {
    job.mutable_data()->clear_text_files();
    job.mutable_data()->add_text_files(file);
    return OpenJobData(job, base::Links::kFollow).status();
  };
  // A regular file that cannot be read: EIO.
  const absl::Status broken = open("/proc/self/mem");
  CHECK(absl::IsDataLoss(broken));
  CHECK(base::ExitCodeOf(broken) == base::kJobFailed);
  CHECK(base::ExitCodeOf(open("/nonexistent/text")) == base::kBadInput);
}

TEST_CASE("session: a plan that no machine holds is refused on every rank, whoever made it") {
  v1::JobSpec job = plan::SmallJob();
  job.mutable_model()->mutable_config()->set_hidden_size(1024);
  job.mutable_model()->mutable_config()->set_head_dim(512);
  // 15 TiB.
  job.mutable_training()->set_micro_batch_size(int64_t{1} << 23);
  job.mutable_training()->set_global_batch_size(int64_t{1} << 24);
  const auto made = plan::MakePlan(job, 4);
  REQUIRE(made.status().ToString() == "OK");
  const tests::TemporaryFolder folder;
  const std::string file = folder.path() + "/plan.pb";
  std::ofstream(file) << plan::SerializePlan(*made);
  const data::RandomDataset text({.vocab_size = 29, .sequence_length = 8});
  for (const PlanSource& source : {PlanSource{}, PlanSource{.file = file}}) {
    std::vector<absl::Status> statuses(4);
    const auto run = comm::RunRanks(4, [&](comm::Fabric& fabric) -> absl::Status {
      ASSIGN_OR_RETURN(auto agreement, MakeAgreement(fabric));
      // Not returned: the others would hear of a lost rank.
      statuses[static_cast<size_t>(fabric.rank())] =
          Session::Open(job, fabric, *agreement, text, nullptr, {}, source).status();
      return absl::OkStatus();
    });
    for (const absl::Status& status : run) CHECK(status.ToString() == "OK");
    for (const absl::Status& status : statuses) {
      CHECK(absl::IsResourceExhausted(status));
      CHECK_THAT(std::string(status.message()),
                 Catch::Contains("MiB on this machine for 4 ranks, but "));
    }
  }
}

}  // namespace
}  // namespace trireme::worker
