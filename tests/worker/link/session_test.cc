// The start of a session, of whose ranks one may have read its text long after the others.
#include "worker/session.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/data/random_dataset.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::worker {
namespace {

// The lateness is a sleep, so it is longer than the deadline on any machine; the deadline is what a
// set-up of four small ranks needs on none.
TEST_CASE("session: a rank that read its text long after the deadline is waited for") {
  v1::JobSpec job = plan::SmallJob();
  job.mutable_runtime()->set_deadline_seconds(10);
  const data::RandomDataset text({.vocab_size = 29, .sequence_length = 8});
  const auto statuses = comm::RunRanks(4, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto everyone, GroupOfAll(fabric));
    if (fabric.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(12));
    return Session::Open(job, fabric, std::move(everyone), text, nullptr).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(status.ok());
  }
}

}  // namespace
}  // namespace trireme::worker
