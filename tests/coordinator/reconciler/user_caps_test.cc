// What one user may take: jobs that wait, and bytes of specs.
#include "runtime/base/status_macros.h"
#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

absl::Status TrySubmit(Desk& desk, const std::string& owner, size_t name_bytes = 10,
                       bool uncapped = false) {
  Submission submission;
  submission.owner = owner;
  submission.request_id = std::to_string(++desk.requests);
  submission.job.set_name(std::string(name_bytes, 'x'));
  submission.resources.set_ranks(4);
  submission.resources.set_cpus_per_rank(1);
  submission.uncapped = uncapped;
  return desk.reconciler->Submit(submission, kDeskBegin).status();
}

}  // namespace

TEST_CASE("caps: jobs that wait or are paused are bounded for each user") {
  ReconcilerOptions options;
  options.user_caps.queued_jobs = 2;
  Desk desk(options);
  CHECK(TrySubmit(desk, "ann").ok());
  CHECK(TrySubmit(desk, "ann").ok());
  CHECK(absl::IsResourceExhausted(TrySubmit(desk, "ann")));
  CHECK(TrySubmit(desk, "ben").ok());
  CHECK(TrySubmit(desk, "ann", 10, true).ok());
  // A paused one counts as it did.
  REQUIRE(desk.reconciler->Ask(1, PauseAsked{"ann"}, 0, kDeskBegin).ok());
  CHECK(absl::IsResourceExhausted(TrySubmit(desk, "ann")));
  // Nor does a restart forget any.
  Desk again(options, desk.store);
  again.requests = desk.requests;
  CHECK(absl::IsResourceExhausted(TrySubmit(again, "ann")));
  REQUIRE(again.reconciler->Ask(1, CancelAsked{"ann"}, 0, kDeskBegin).ok());
  CHECK(TrySubmit(again, "ann").ok());
  CHECK(absl::IsResourceExhausted(TrySubmit(again, "ann")));
  // One that gets its allocation waits no longer.
  again.Dial("n1");
  again.reconciler->Tick(kDeskBegin + 1);
  REQUIRE(again.table.StatusOf(2)->state() == v1::JOB_PLANNING);
  CHECK(TrySubmit(again, "ann").ok());
  CHECK(absl::IsResourceExhausted(TrySubmit(again, "ann")));
}

TEST_CASE("caps: bytes of specs count until their jobs have ended") {
  ReconcilerOptions options;
  options.user_caps.spec_bytes = 1000;
  Desk desk(options);
  CHECK(TrySubmit(desk, "ann", 600).ok());
  const absl::Status refused = TrySubmit(desk, "ann", 600);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(base::MessageOf(refused) ==
        "this job's spec has 603 bytes, and those of ann's jobs that have not ended have 603 of "
        "1000 that the daemon keeps for one user (--user-spec-bytes); submit again when some have "
        "ended, cancel some, or name fewer files");
  CHECK(TrySubmit(desk, "ben", 600).ok());
  CHECK(TrySubmit(desk, "ann", 600, true).ok());
  CHECK(TrySubmit(desk, "ann", 300).ok());
  // It runs, and counts all the same.
  desk.Dial("n1");
  desk.reconciler->Tick(kDeskBegin + 1);
  REQUIRE(desk.table.StatusOf(1)->state() == v1::JOB_PLANNING);
  CHECK_FALSE(TrySubmit(desk, "ann", 600).ok());
  REQUIRE(desk.reconciler->Ask(1, CancelAsked{"ann"}, 0, kDeskBegin).ok());
  CHECK(TrySubmit(desk, "ann", 600).ok());
  // What is larger than the whole cap is refused to who has nothing.
  CHECK_FALSE(TrySubmit(desk, "eve", 1000).ok());
}

}  // namespace trireme::coordinator
