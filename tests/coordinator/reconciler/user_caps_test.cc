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

TEST_CASE("caps: what a user submits and cancels again and again is kept up to the cap of bytes") {
  ReconcilerOptions options;
  options.user_caps.spec_bytes = 2000;
  Desk desk(options);
  int64_t now = kDeskBegin;
  const auto submit_and_cancel = [&](const std::string& owner, bool uncapped) {
    const uint64_t id = desk.requests + 1;
    REQUIRE(TrySubmit(desk, owner, 98, uncapped).ok());  // 100 bytes of spec
    REQUIRE(desk.reconciler->Ask(id, CancelAsked{owner}, 0, ++now).ok());
    desk.reconciler->Tick(++now);
    return id;
  };
  const auto kept = [](Desk& at, const std::string& owner) {
    size_t bytes = 0;
    const auto jobs = at.store->Jobs();
    for (const v1::Job& job : *jobs) {
      if (job.owner() == owner) bytes += job.spec().ByteSizeLong();
    }
    return bytes;
  };
  const uint64_t of_ben = submit_and_cancel("ben", false);
  const uint64_t of_ola = submit_and_cancel("ola", true);
  const uint64_t first = submit_and_cancel("ann", false);
  REQUIRE(TrySubmit(desk, "ann", 98).ok());
  const uint64_t waits = desk.requests;
  uint64_t last = 0;
  for (int i = 0; i < 60; ++i) last = submit_and_cancel("ann", false);
  for (int i = 0; i < 60; ++i) submit_and_cancel("ola", true);
  CHECK(kept(desk, "ann") <= 2000 + 100);
  CHECK(kept(desk, "ann") >= 1800);
  CHECK_FALSE(desk.table.Get(first).ok());
  CHECK(absl::IsNotFound(desk.reconciler->Ask(first, PauseAsked{"ann"}, 0, now).status()));
  for (const uint64_t id : {of_ben, of_ola, waits, last}) CHECK(desk.table.Get(id).ok());
  CHECK(kept(desk, "ola") == 6100);
  // Also after a restart with a smaller cap.
  options.user_caps.spec_bytes = 500;
  Desk again(options, desk.store);
  // The jobs that have ended are read first, page by page.
  for (int i = 0; i < 5; ++i) again.reconciler->Tick(now += 1'000'000'000);
  CHECK(kept(again, "ann") <= 500 + 100);
  CHECK(again.table.Get(waits).ok());
  CHECK(again.table.Get(last).ok());
}

}  // namespace trireme::coordinator
