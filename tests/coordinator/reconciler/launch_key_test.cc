// The key of a launch: one for each attempt, the same for all its nodes and across a restart of the
// daemon, and told to nobody but their agents.
#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

std::string KeyOn(const Desk& desk, const std::string& node) {
  const v1::DesiredAttempts desired = desk.reconciler->DesiredOf(node);
  REQUIRE(desired.attempts_size() == 1);
  return desired.attempts(0).launch().key();
}

}  // namespace

TEST_CASE("launch key: all nodes of an attempt have one, also after a restart, and readers none") {
  std::shared_ptr<DeskStore> store;
  std::string first;
  uint64_t job = 0;
  {
    Desk desk;
    desk.Dial("n1");
    desk.Dial("n2");
    job = desk.Submit(8, kDeskBegin);
    desk.Launch(job, kDeskBegin);
    first = KeyOn(desk, "n1");
    CHECK(first.size() == 16);
    CHECK(KeyOn(desk, "n2") == first);
    CHECK(desk.table.Get(job)->launch_key().empty());
    CHECK(desk.table.List({})->jobs(0).launch_key().empty());
    CHECK((*desk.store->FindJob(job))->launch_key() == first);
    store = desk.store;
  }
  Desk desk({}, store);
  desk.Dial("n1");
  desk.Dial("n2");
  CHECK(KeyOn(desk, "n2") == first);
  CHECK(desk.table.Get(job)->launch_key().empty());
}

TEST_CASE("launch key: another attempt has another, and what has ended none") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  const std::string first = KeyOn(desk, "n1");
  v1::NodeReport end = Desk::Word(job, 1, v1::ATTEMPT_ENDED, 4);
  end.mutable_attempts(0)->set_launcher(true);
  desk.Report("n1", end, kDeskBegin);
  REQUIRE(desk.StateOf(job) == v1::JOB_RECOVERING);
  CHECK((*desk.store->FindJob(job))->launch_key().empty());
  desk.reconciler->Tick(kDeskBegin + kDeskHour);
  desk.Dial("n1", kDeskBegin + kDeskHour);
  desk.reconciler->Tick(kDeskBegin + kDeskHour + 1);
  REQUIRE(desk.reconciler->PlanReady(job, 2, absl::OkStatus(), kDeskBegin + kDeskHour + 1).ok());
  CHECK(KeyOn(desk, "n1").size() == 16);
  CHECK(KeyOn(desk, "n1") != first);
}

}  // namespace trireme::coordinator
