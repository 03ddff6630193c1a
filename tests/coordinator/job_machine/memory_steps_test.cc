// Steps in memory: when they count as progress, and when one is used no more.
#include "coordinator/job_machine/memory_steps.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/job_machine/story.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

void GoesOnAt(Story& job, uint64_t step, uint64_t steps_done = 0) {
  job.Runs();
  job.Happens(StepsSeen{job.status().attempt(), step, std::max(step, steps_done)});
}

AttemptEnded OwnError(const Story& job, int exit_code = 4) {
  AttemptEnded end{job.status().attempt(), exit_code, {}, 0};
  end.failure.set_rank(1);
  end.failure.set_own(true);
  end.failure.set_headline("rank 1 failed: NaN or Inf in a gradient");
  return end;
}

// As it goes on at `step` in memory, and fails by itself before the next one.
void FailsAt(Story& job, uint64_t step) {
  GoesOnAt(job, step);
  AttemptEnded end = OwnError(job);
  end.memory_step = end.steps_done = step;
  job.Happens(end);
}

// That step `step` is used no more, or (`over`) again; among what was told last.
bool Told(const Story& job, uint64_t step, bool over) {
  for (const v1::Event& event : job.told()) {
    const v1::MemoryStepLeft& left = event.memory_step_left();
    if (event.has_memory_step_left() && left.step() == step && left.over() == over) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("memory steps: a job that goes on further each time is tried again for ever") {
  Story job({2});
  job.Runs();
  job.Dies();
  for (uint64_t step = 1; step <= 40; ++step) {
    // Told while it runs or with its end, that is the same.
    if (step % 2 == 0) {
      GoesOnAt(job, step);
      CHECK(job.status().failures() == 0);
      REQUIRE(job.told().size() == 1);
      CHECK(job.told()[0].went_on_in_memory().step() == step);
      // It is news once.
      job.Happens(StepsSeen{job.status().attempt(), step, step});
      CHECK(job.told().empty());
      job.Dies();
    } else {
      job.Runs();
      AttemptEnded end{job.status().attempt(), 137, {}, 0};
      end.memory_step = end.steps_done = step;
      job.Happens(end);
    }
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().failures() == 1);
    CHECK(job.status().retry_at_unix_ns() == job.now() + kStorySecond);
    CHECK(job.status().setbacks() == 1);
  }
  job.Runs();
  CHECK(job.status().memory_step() == 0);  // which it has not said
  job.Dies();
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() ==
        "failed 2 times in a row without a newer checkpoint or step in memory: rank 3 died");
}

TEST_CASE("memory steps: whoever goes on where another has gets nowhere") {
  Story job({3});
  job.Runs();
  job.Dies();
  GoesOnAt(job, 12);
  job.Dies();
  CHECK(job.status().failures() == 1);
  // The same one, though it says that it does more steps, and one before it.
  GoesOnAt(job, 12, 15);
  job.Dies();
  CHECK(job.status().failures() == 2);
  GoesOnAt(job, 11);
  job.Dies();
  CHECK(job.status().state() == v1::JOB_FAILED);
}

TEST_CASE("memory steps: none counts before a checkpoint that was saved") {
  Story job({3});
  job.Runs();
  job.Dies(100);
  GoesOnAt(job, 80);
  CHECK(job.status().failures() == 1);
  job.Dies();
  CHECK(job.status().failures() == 2);
  GoesOnAt(job, 101);
  CHECK(job.status().failures() == 0);
}

TEST_CASE("memory steps: a job that has gone on there is not ended by what a node lacks") {
  for (const bool trained : {false, true}) {
    Story job;
    if (trained) {
      GoesOnAt(job, 12);
    } else {
      job.Runs();
    }
    job.Happens(AttemptEnded{1, 2, {}, 0});
    CHECK(job.status().state() == (trained ? v1::JOB_RECOVERING : v1::JOB_FAILED));
  }
}

TEST_CASE("memory steps: a lost attempt that went on further is the first failure") {
  Story job({2});
  job.Runs();
  job.Dies();
  job.Runs();
  job.Happens(AttemptLost{2, "node n2 is lost"});
  CHECK(job.status().failures() == 2);
  job.Happens(StepsSeen{2, 30, 31});
  CHECK(job.status().failures() == 1);
  job.Happens(AttemptEnded{2, 137, {}, 0});
  CHECK(job.status().state() == v1::JOB_RECOVERING);
}

TEST_CASE("memory steps: one at which two attempts failed by themselves is not used again") {
  Story job;
  FailsAt(job, 12);
  CHECK(job.status().memory_before() == 0);
  CHECK(job.status().suspect_memory_step() == 12);
  const int exit_code = GENERATE(1, 4);
  GoesOnAt(job, 12);
  job.Happens(OwnError(job, exit_code));
  CHECK(job.status().memory_before() == 12);
  CHECK(Told(job, 12, false));
  CHECK_THAT(job.status().reason(), Contains("; step 12 in memory failed twice, it is not used"));
  CHECK(UnusedStepText(job.status()) == "step 12 in memory failed twice, it is not used again");
  // From the disk, where it has come as far: the next step ends it, no matter who dies meanwhile.
  job.Runs();
  job.Happens(StepsSeen{job.status().attempt(), 0, 12});
  CHECK(job.told().empty());
  job.Dies();
  CHECK(job.status().memory_before() == 12);
  const bool with_its_end = GENERATE(false, true);
  job.Runs();
  AttemptEnded end{job.status().attempt(), 137, {}, 0};
  end.steps_done = 13;
  job.Happens(with_its_end ? JobEvent(end) : StepsSeen{end.attempt, 0, 13});
  CHECK(job.status().memory_before() == 0);
  CHECK(Told(job, 12, true));
  CHECK(UnusedStepText(job.status()).empty());
}

TEST_CASE("memory steps: a later checkpoint ends that a step is not used") {
  Story job;
  FailsAt(job, 12);
  FailsAt(job, 12);
  job.Runs();
  job.Happens(CheckpointSeen{3, 12});
  CHECK(job.status().memory_before() == 12);
  job.Happens(CheckpointSeen{3, 20});
  CHECK(job.status().memory_before() == 0);
  CHECK(Told(job, 12, true));
}

TEST_CASE("memory steps: what somebody else ended says nothing against a step") {
  Story job({20});
  FailsAt(job, 12);
  const auto ends = [&](AttemptEnded end) {
    GoesOnAt(job, 12);
    end.attempt = job.status().attempt();
    job.Happens(end);
    CHECK(job.status().memory_before() == 0);
    CHECK(job.status().suspect_memory_step() == 12);
  };
  for (const int code : {2, 3, 134, 137, 139, 143}) ends(OwnError(job, code));
  AttemptEnded of_a_peer = OwnError(job);
  of_a_peer.failure.set_own(false);
  ends(of_a_peer);
  GoesOnAt(job, 12);
  job.Happens(AttemptLost{job.status().attempt(), "node n2 is lost"});
  job.Happens(OwnError(job));
  CHECK(job.status().memory_before() == 0);
  GoesOnAt(job, 12);
  job.Happens(PauseAsked{"ann"});
  job.Happens(ResumeAsked{"ann"});
  REQUIRE(job.status().state() == v1::JOB_PAUSING);
  job.Happens(OwnError(job));
  CHECK(job.status().memory_before() == 0);
  // The second that counts.
  FailsAt(job, 12);
  CHECK(job.status().memory_before() == 12);
}

TEST_CASE(
    "memory steps: an attempt that came further, or began elsewhere, is none against a step") {
  Story job({20});
  FailsAt(job, 12);
  SECTION("the second did a later step") {
    GoesOnAt(job, 12);
    AttemptEnded end = OwnError(job);
    end.steps_done = 13;
    job.Happens(end);
    FailsAt(job, 12);  // the first
  }
  SECTION("one between went on later") {
    GoesOnAt(job, 13);
    job.Dies();
    FailsAt(job, 12);
    CHECK(job.status().suspect_memory_step() == 12);
  }
  SECTION("one between saved a later checkpoint") {
    job.Runs();
    job.Dies(20);
    FailsAt(job, 12);
  }
  SECTION("the second began on the disk") {
    job.Runs();
    job.Happens(OwnError(job));
  }
  SECTION("the second went on elsewhere") { FailsAt(job, 11); }
  SECTION("somebody has looked at it") {
    job.Happens(PauseAsked{"ann"});
    job.Happens(ResumeAsked{"ann"});
    FailsAt(job, 12);
  }
  CHECK(job.status().memory_before() == 0);
}

TEST_CASE("memory steps: below one that is not used another may fail") {
  Story job({20});
  FailsAt(job, 12);
  FailsAt(job, 12);
  FailsAt(job, 11);
  CHECK(job.status().memory_before() == 12);
  FailsAt(job, 11);
  CHECK(job.status().memory_before() == 11);
  CHECK(Told(job, 11, false));
}

}  // namespace trireme::coordinator
