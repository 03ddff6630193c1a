// What a status keeps of what has happened, and what it lets go.
#include <catch2/catch.hpp>
#include <string>

#include "coordinator/job_machine/reasons.h"
#include "tests/coordinator/job_machine/story.h"

namespace trireme::coordinator {

TEST_CASE("a resume lets go of what failed before") {
  RetryPolicy twice;
  twice.max_failures = 3;
  Story job(twice);
  for (int failure = 1; failure <= 2; ++failure) {
    job.Runs();
    job.Dies();
    CHECK(job.status().failures() == static_cast<uint32_t>(failure));
  }
  job.Happens(PauseAsked{"ann"});
  CHECK(job.status().failures() == 2);
  job.Happens(ResumeAsked{"ann"});
  CHECK(job.status().state() == v1::JOB_PENDING);
  CHECK(job.status().failures() == 0);
  // As many tries as at first.
  for (int failure = 1; failure <= 2; ++failure) {
    job.Runs();
    job.Dies();
    CHECK(job.status().state() == v1::JOB_RECOVERING);
  }
  // One that runs has not stood still for anybody to look at it.
  Story other(twice);
  other.Runs();
  other.Dies();
  other.Runs();
  other.Happens(PauseAsked{"ann"});
  other.Happens(ResumeAsked{"ann"});
  CHECK(other.status().failures() == 1);
}

TEST_CASE("a resume lets go of attempts that came no further") {
  constexpr uint32_t kMost = 20;
  Story job;
  const auto save = [&](uint64_t step) {
    job.Runs();
    job.Dies(step);
  };
  save(100);
  for (uint32_t time = 1; time < kMost; ++time) save(40);
  REQUIRE(job.status().setbacks() == kMost - 1);
  job.Happens(PauseAsked{"ann"});
  CHECK(job.status().setbacks() == kMost - 1);
  job.Happens(ResumeAsked{"ann"});
  REQUIRE(job.status().state() == v1::JOB_PENDING);
  CHECK(job.status().setbacks() == 0);
  // Somebody has mended the disk, perhaps not at the first try.
  save(40);
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().setbacks() == 1);
}

TEST_CASE("an attempt's end stands in the status until the next one begins") {
  Story job;
  job.Runs();
  job.Dies();
  CHECK(job.status().exit_code() == 137);
  CHECK(job.status().failure().headline() == "rank 3 died");
  REQUIRE(job.told().size() == 1);
  CHECK(job.told()[0].state_changed().failure().headline() == "rank 3 died");
  CHECK(job.told()[0].state_changed().failure().exit_code() == 137);
  job.Runs();
  CHECK(job.status().exit_code() == 0);
  CHECK_FALSE(job.status().has_failure());
  job.Happens(AttemptEnded{2, 75, {}, 5});
  CHECK(job.status().state() == v1::JOB_PENDING);
  CHECK(job.status().exit_code() == 75);
  CHECK_FALSE(job.status().has_failure());
}

TEST_CASE("a plan that cannot be made is the failure of its attempt") {
  Story refused;
  refused.Happens(NodesAllocated{});
  refused.Happens(PlanRefused{1, 2, "no such model"});
  Story failed;
  failed.Happens(NodesAllocated{});
  failed.Happens(PlanRefused{1, 4, "the disk\nis full"});
  CHECK(refused.status().state() == v1::JOB_FAILED);
  CHECK(refused.status().reason() == "no plan can be made: no such model");
  CHECK(failed.status().state() == v1::JOB_RECOVERING);
  CHECK(failed.status().failures() == 1);
  for (const auto& [job, code, headline] :
       {std::tuple(&refused, 2, "no such model"), std::tuple(&failed, 4, "the disk is full")}) {
    CHECK(job->status().exit_code() == code);
    CHECK(job->status().failure().exit_code() == code);
    CHECK(job->status().failure().rank() == -1);
    CHECK(job->status().failure().headline() == headline);
    REQUIRE(job->told().size() == 1);
    CHECK(job->told()[0].state_changed().failure().headline() == headline);
  }
}

TEST_CASE("the reason stays that of a request until it is fulfilled") {
  Story job;
  job.Happens(NodesAllocated{});
  job.Happens(PlanMade{1});
  job.Happens(CancelAsked{"ann"});
  job.Happens(AllRanksRun{1});
  CHECK(job.status().state() == v1::JOB_RUNNING);
  CHECK(job.status().reason() == "ann asked to cancel; attempt 1 ends first");
  Story done;
  done.Runs();
  done.Happens(PauseAsked{"ann"});
  done.Happens(AttemptEnded{1, 0, {}, 9});
  CHECK(done.status().reason() == "all steps are done; it ended before it could pause");
}

TEST_CASE("an end without words is told by its exit code") {
  CHECK(EndingOf(3, {}) == "ended with exit code 3");
  CHECK(EndingOf(128, {}) == "ended with exit code 128");
  CHECK(EndingOf(129, {}) == "ended with exit code 129 (signal 1)");
  v1::Failure failure;
  failure.set_headline("\t");
  CHECK(EndingOf(137, failure) == "ended with exit code 137 (signal 9)");
}

}  // namespace trireme::coordinator
