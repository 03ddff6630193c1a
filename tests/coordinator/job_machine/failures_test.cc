// When a job that fails is tried again, and when no more.
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/job_machine/unable_nodes.h"
#include "runtime/base/exit_code.h"
#include "tests/coordinator/job_machine/story.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kSecond = 1000000000;

TEST_CASE("a crash loop ends with a reason and the last failure") {
  Story job;
  for (const int64_t delay : {1, 2, 4, 8}) {
    job.Runs();
    job.Dies();
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().retry_at_unix_ns() == job.now() + delay * kSecond);
    CHECK(job.status().reason().find("rank 3 died") != std::string::npos);
  }
  job.Runs();
  CHECK(job.status().attempt() == 5);
  job.Dies();
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() == "failed 5 times in a row without a newer checkpoint: rank 3 died");
  CHECK(job.status().exit_code() == 137);
  CHECK(job.status().failure().rank() == 3);
  REQUIRE(job.told().size() == 1);
  CHECK(job.told()[0].state_changed().failure().headline() == "rank 3 died");
  CHECK(job.told()[0].state_changed().failure().exit_code() == 137);
}

TEST_CASE("a job that gets on is tried again for ever") {
  Story job({2});
  uint64_t step = 0;
  for (int i = 0; i < 20; ++i) {
    job.Runs();
    // Told while it runs or with its end, that is the same.
    if (i % 2 == 0) job.Happens(CheckpointSeen{job.status().attempt(), ++step});
    job.Dies(i % 2 == 0 ? step : ++step);
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().failures() == 1);
    CHECK(job.status().checkpoint_step() == step);
  }
  job.Runs();
  job.Dies();  // it has saved none
  CHECK(job.status().state() == v1::JOB_FAILED);
}

TEST_CASE("a job that went back behind a damaged checkpoint gets on by smaller steps") {
  Story job({2});
  job.Runs();
  job.Dies(30);
  CHECK(job.status().failures() == 1);
  // The next attempts each find damage, go back, and save what they come to: less, more, the same.
  uint32_t attempt = 1;
  for (const uint64_t step : {10, 20, 20, 15, 15}) {
    job.Runs();
    ++attempt;
    job.Happens(CheckpointSeen{attempt, step});
    CHECK(job.status().failures() == 0);
    REQUIRE(job.told().size() == 1);
    CHECK(job.told()[0].checkpointed().step() == step);
    // Told again, as all reports are, it is no news; nor is what the attempt had before.
    for (const uint64_t again : {step, step - 1}) {
      job.Happens(CheckpointSeen{attempt, again});
      CHECK(job.told().empty());
    }
    job.Dies(step);
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().failures() == 1);
    CHECK(job.status().checkpoint_step() == step);
    CHECK(job.status().checkpoint_attempt() == attempt);
  }
  // One that saves nothing is a failure without progress, whatever lies there from before.
  job.Runs();
  job.Dies(0);
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().checkpoint_step() == 15);
}

TEST_CASE("a job that comes no further ends, whatever it saves on the way") {
  constexpr uint32_t kMost = 20;
  Story job;
  const auto save = [&](uint64_t step) {
    job.Runs();
    job.Dies(step);
  };
  save(100);
  CHECK(job.status().setbacks() == 0);
  for (uint32_t time = 1; time < kMost; ++time) save(40);
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().setbacks() == kMost - 1);
  CHECK(job.status().failures() == 1);
  // Who gets on from attempt to attempt is let go on, however far it is behind.
  for (uint64_t step = 41; step <= 100; ++step) save(step);
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().setbacks() == kMost - 1);
  // Beyond all: told after its node was lost.
  job.Runs();
  job.Happens(AttemptLost{job.status().attempt(), "a node is lost"});
  job.Dies(101);
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().setbacks() == 0);
  CHECK(job.status().furthest_step() == 101);
  for (uint32_t time = 1; time < kMost; ++time) save(101);
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  save(101);
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() ==
        "20 attempts have failed and saved nothing beyond the one before, nor beyond step 101; the "
        "disk may spoil what they save: rank 3 died");
}

TEST_CASE("delays double up to the longest and never overflow") {
  Story job({std::numeric_limits<uint32_t>::max(), std::chrono::milliseconds(700),
             std::chrono::milliseconds(60000)});
  int64_t expected = 700000000;
  for (int i = 0; i < 200; ++i) {
    job.Runs();
    job.Dies();
    CHECK(job.status().retry_at_unix_ns() - job.now() == std::min(expected, 60 * kSecond));
    expected = std::min(2 * expected, 60 * kSecond);
  }
}

TEST_CASE("no retry before its time and none while ranks may live") {
  Story job;
  job.Runs();
  job.Happens(AttemptLost{1, "node n2 is lost"});
  CHECK(job.status().attempt_live());
  job.Wait(3600 * kSecond);
  job.Happens(RetryDue{});
  CHECK(job.status().attempt() == 1);
  CHECK(ConsequencesOf(job.status()).timer_unix_ns == 0);
  job.Happens(AttemptEnded{1, 0, {}, 7});
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().failures() == 1);
  CHECK(job.status().checkpoint_step() == 7);
  CHECK(ConsequencesOf(job.status()).timer_unix_ns > 0);
  job.Happens(RetryDue{false});
  CHECK(job.status().state() == v1::JOB_PENDING);
  job.Runs();
  CHECK(job.status().attempt() == 2);
  job.Dies();
  job.Wait(2 * kSecond - 1);  // the second failure in a row
  job.Happens(RetryDue{});
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  job.Wait(1);
  job.Happens(RetryDue{});
  CHECK(job.status().state() == v1::JOB_PLANNING);
  CHECK(job.status().failure().headline().empty());
}

TEST_CASE("a lost attempt is judged by its newest checkpoint") {
  Story job({1});
  job.Runs();
  job.Happens(AttemptLost{1, "node n2 is lost"});
  CHECK(job.status().state() == v1::JOB_RECOVERING);
  CHECK(job.status().failure().exit_code() == 4);
  job.Happens(AttemptEnded{1, 137, {}, 0});
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() ==
        "failed 1 time in a row without a newer checkpoint: node n2 is lost");

  Story other({2});
  other.Runs();
  other.Dies();
  other.Runs();
  other.Happens(AttemptLost{2, "node n2 is lost"});
  CHECK(other.status().failures() == 2);
  other.Happens(AttemptEnded{2, 137, {}, 50});
  CHECK(other.status().state() == v1::JOB_RECOVERING);
  CHECK(other.status().failures() == 1);
}

TEST_CASE("a late plan of an attempt that was paused starts nothing") {
  Story job;
  job.Happens(NodesAllocated{});
  job.Happens(PauseAsked{"ann"});
  job.Happens(PlanMade{1});
  CHECK(job.status().state() == v1::JOB_PAUSED);
  job.Happens(ResumeAsked{"ann"});
  job.Happens(NodesAllocated{});
  job.Happens(PlanMade{1});
  CHECK(job.status().state() == v1::JOB_PLANNING);
  CHECK(!job.status().attempt_live());
  job.Happens(PlanMade{2});
  CHECK(job.status().state() == v1::JOB_LAUNCHING);
}

TEST_CASE("the reason names who asked for what") {
  Story job;
  job.Runs();
  job.Happens(PauseAsked{"ann"});
  REQUIRE(job.told().size() == 2);
  CHECK(job.told()[0].desired_state_changed().by() == "ann");
  CHECK(job.status().reason() == "ann asked to pause; stops at the next step");
  job.Happens(AttemptEnded{1, 75, {}, 12});
  CHECK(job.status().reason() == "paused by ann");
  CHECK(job.status().checkpoint_step() == 12);
  job.Happens(CancelAsked{"bob\n"});
  CHECK(job.status().reason() == "cancelled by bob");
  CHECK(job.status().exit_code() == 5);

  Story other;
  other.Runs();
  other.Happens(CancelAsked{""});
  other.Happens(AttemptLost{1, "node n2 is lost"});
  other.Dies();
  CHECK(other.status().reason() ==
        "cancelled by somebody; its last attempt was lost: node n2 is lost");
  Story done;
  done.Runs();
  done.Happens(CancelAsked{"ann"});
  done.Happens(AttemptEnded{1, 0, {}, 100});
  CHECK(done.status().state() == v1::JOB_COMPLETED);
  CHECK(done.status().reason() == "all steps are done; it ended before it could be cancelled");
}

TEST_CASE("saves that fail are told once, and when one is written again") {
  Story job;
  job.Runs();
  const int64_t since = job.status().changed_unix_ns();
  const auto seen = [&](uint64_t step, std::optional<std::string> fails) {
    job.Wait(kStorySecond);
    job.Happens(CheckpointSeen{1, step, std::move(fails)});
    return job.told().size();
  };
  CHECK(seen(0, "") == 0);
  CHECK(seen(0, "step 5 was not written: full") == 1);
  CHECK(job.told()[0].state_changed().from() == v1::JOB_RUNNING);
  CHECK(job.told()[0].state_changed().to() == v1::JOB_RUNNING);
  CHECK(job.status().reason() == "attempt 1 is at work; step 5 was not written: full");
  CHECK(job.told()[0].state_changed().reason() == job.status().reason());
  CHECK(seen(0, "step 5 was not written: full") == 0);
  // Of a daemon that was started anew, and has not heard of the launcher yet.
  CHECK(seen(0, std::nullopt) == 0);
  CHECK(seen(0, "step 10 was not written: read-only") == 1);
  // The word on saves comes last: it is of what followed the checkpoint.
  CHECK(seen(15, "step 20 was not written: full") == 2);
  CHECK(job.told()[0].checkpointed().step() == 15);
  CHECK(job.told()[1].state_changed().reason() ==
        "attempt 1 is at work; step 20 was not written: full");
  CHECK(seen(25, "") == 2);
  CHECK(job.told()[1].state_changed().reason() == "attempt 1 is at work and saves again");
  CHECK(seen(25, "") == 0);
  CHECK(job.status().changed_unix_ns() == since);
  // Whoever pauses it is told of that.
  job.Happens(PauseAsked{"ann"});
  CHECK(seen(25, "step 30 was not written: full") == 0);
}

TEST_CASE("what does not fit ends a job that never did, and is tried again where it fitted") {
  Story never;
  never.Runs();
  never.Happens(AttemptEnded{1, base::kDoesNotFit, {}, 0});
  CHECK(never.status().state() == v1::JOB_FAILED);
  Story once;
  once.Runs();
  once.Happens(AttemptEnded{1, base::kDoesNotFit, {}, 100});
  CHECK(once.status().state() == v1::JOB_RECOVERING);
}

TEST_CASE("a node that has no room at present is none that a job fails of") {
  Story job({2});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    job.HasNoRoom("n" + std::to_string(attempt));
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().failures() == 0);
  }
  CHECK(UnableText(job.status()) == "n1, n2, n3");
  CHECK(job.status().reason() ==
        "rank 2 failed: no room, which is no failure of the job; the next attempt follows in 1 s, "
        "not on n1, n2, n3 where other nodes have room");
  for (int more = 0; more < 7; ++more) {
    REQUIRE_FALSE(HasEnded(job.status().state()));
    job.HasNoRoom("n3");
  }
  CHECK(HasEnded(job.status().state()));
  CHECK(TriesInVain(job.status()) == 8);
  // Also of one that has trained, and that has failed before.
  Story trained({2});
  trained.Runs();
  trained.Dies(10);
  trained.HasNoRoom("n1");
  CHECK(trained.status().state() == v1::JOB_RECOVERING);
  CHECK(trained.status().failures() == 1);
  // Where a person waits for it it ends, as what does not fit.
  Story alone({.room_comes = false});
  alone.HasNoRoom("here");
  CHECK(alone.status().state() == v1::JOB_FAILED);
  CHECK(alone.status().exit_code() == base::kDoesNotFit);
}

TEST_CASE("bad input ends a job at once, unless it has trained before: a node may lack a mount") {
  Story never;
  never.Runs();
  never.Happens(AttemptEnded{1, base::kBadInput, {}, 0});
  CHECK(never.status().state() == v1::JOB_FAILED);
  CHECK(never.status().exit_code() == base::kBadInput);
  Story job;
  job.Runs();
  job.Happens(CheckpointSeen{1, 600});
  job.Dies();
  // Where its text is not to be seen it is tried again, as often as any failure.
  for (uint32_t attempt = 2; attempt <= 5; ++attempt) {
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    job.Runs();
    REQUIRE(job.status().attempt() == attempt);
    job.Happens(AttemptEnded{attempt, base::kBadInput, {}, 0});
  }
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().failures() == 5);
  CHECK(job.status().checkpoint_step() == 600);
}

TEST_CASE("what a node could not start is no failure, and is tried again, but not for ever") {
  Story job({2});
  job.Runs();
  job.Dies();
  REQUIRE(job.status().failures() == 1);
  for (const int64_t delay : {1, 2, 4, 8, 16, 32, 60}) {
    job.IsNotStarted();
    CHECK(job.status().state() == v1::JOB_RECOVERING);
    CHECK(job.status().retry_at_unix_ns() == job.now() + delay * kSecond);
    CHECK(job.status().failures() == 1);
    CHECK(job.status().reason().find("no mpirun, which is no failure of the job") !=
          std::string::npos);
  }
  SECTION("one that starts ends the row, and fails as before") {
    job.Runs();
    CHECK(job.status().unstarted() == 0);
    job.Dies();
    CHECK(job.status().state() == v1::JOB_FAILED);
    CHECK(job.status().failures() == 2);
  }
  SECTION("an attempt that begins and ends at once ends it, too") {
    job.Wait(60 * kSecond);
    job.Happens(RetryDue{});
    job.Happens(PlanMade{job.status().attempt()});
    job.Happens(AttemptEnded{job.status().attempt(), 75, {}, 0});
    CHECK(job.status().state() == v1::JOB_PENDING);
    CHECK(job.status().unstarted() == 0);
  }
  SECTION("so does somebody who has looked at it") {
    job.Happens(PauseAsked{"ann"});
    job.Happens(ResumeAsked{"ann"});
    CHECK(job.status().unstarted() == 0);
  }
  SECTION("four times as many as failures are too many") {
    job.IsNotStarted();
    CHECK(job.status().state() == v1::JOB_FAILED);
    CHECK(job.status().exit_code() == 4);
    CHECK(job.status().reason().find("8 attempts in a row could not be started") == 0);
    CHECK(job.status().failure().headline().find("no mpirun") != std::string::npos);
  }
}

TEST_CASE(
    "the nodes that could not start a job are known, and the first try on each is none in vain") {
  Story job({2});
  const auto nodes = [&] { return UnableText(job.status()); };
  for (const char* node : {"n1", "n2", "n3"}) {
    job.IsNotStarted(node);
    CHECK(job.status().retry_at_unix_ns() == job.now() + kSecond);
  }
  CHECK(nodes() == "n1, n2, n3");
  // Again, and again.
  job.IsNotStarted("n2");
  CHECK(job.status().retry_at_unix_ns() == job.now() + 2 * kSecond);
  CHECK(nodes() == "n1, n3, n2");
  CHECK(job.status().reason().find("in 2 s, not on n1, n3, n2 where other nodes have room") !=
        std::string::npos);
  SECTION("it leaves for another one") {
    job.Wait(2 * kSecond);
    job.Happens(RetryDue{.elsewhere = true});
    CHECK(job.status().state() == v1::JOB_PENDING);
    CHECK(job.status().reason() == "waits for another node: n1, n3, n2 could not start it");
    CHECK_FALSE(ConsequencesOf(job.status()).holds_allocation);
    CHECK(nodes() == "n1, n3, n2");
    job.Runs();
    CHECK(nodes().empty());
  }
  SECTION("but from one that is drained or lost for that alone") {
    job.Wait(2 * kSecond);
    job.Happens(RetryDue{.places_usable = false, .elsewhere = true});
    CHECK(job.status().reason().find("drained or lost") != std::string::npos);
  }
  SECTION("somebody who has looked at it may have mended them") {
    job.Happens(PauseAsked{"ann"});
    job.Happens(ResumeAsked{"ann"});
    CHECK(nodes().empty());
  }
  SECTION("those that are mended bring it no nearer to the last try") {
    v1::JobStatus status = job.status();
    CHECK_FALSE(LetBack("n9", status));
    for (const char* node : {"n3", "n1"}) {
      CHECK(LetBack(node, status));
      CHECK(TriesInVain(status) == TriesInVain(job.status()));
      CHECK_FALSE(IsUnable(node, status));
    }
    CHECK(LetBack("n2", status));
    CHECK(status.unstarted() == 0);
  }
  SECTION("those that have started another job are tried again, but it may be at fault itself") {
    v1::JobStatus status = job.status();
    CHECK_FALSE(LetTry("n9", status));
    for (const char* node : {"n3", "n1", "n2"}) {
      CHECK(LetTry(node, status));
      CHECK(TriesInVain(status) == TriesInVain(job.status()));
      CHECK_FALSE(IsUnable(node, status));
    }
    CHECK(status.unstarted() == TriesInVain(job.status()));
  }
  SECTION("nor do the tries on those, so that it is not the next one to fail") {
    while (TriesInVain(job.status()) < 7) job.IsNotStarted("n2");
    v1::JobStatus status = job.status();
    CHECK(LetBack("n2", status));
    CHECK(TriesInVain(status) == kUnableAfter);
    // As many as others had: whoever speaks of no node any more does not do so again.
    CHECK(status.unstarted() >= kUnableAfter);
    CHECK(LetBack("n1", status));
    CHECK(TriesInVain(status) == kUnableAfter);
    CHECK(UnableText(status) == "n3");
  }
  SECTION("all are named when it has failed") {
    while (!HasEnded(job.status().state())) job.IsNotStarted("n1");
    CHECK(job.status().unstarted() == 10);
    CHECK(job.status().reason().find("10 attempts in a row could not be started by their nodes "
                                     "(n3, n2, n1): ") == 0);
  }
  SECTION("of very many the newest are known, and the others are tried in vain") {
    for (int node = 4; node <= kMostUnableNodes; ++node) {
      job.IsNotStarted("n" + std::to_string(node));
      CHECK(TriesInVain(job.status()) == 2);
    }
    CHECK(nodes() == "n1, n3, n2, n4 and 28 more");
    job.IsNotStarted("m");
    CHECK(job.status().unable_nodes_size() == kMostUnableNodes);
    CHECK_FALSE(IsUnable("n1", job.status()));
    CHECK(IsUnable("m", job.status()));
    CHECK(TriesInVain(job.status()) == 3);
  }
}

TEST_CASE("what an attempt says ends in its advice, which is told too") {
  Story job({1});
  job.Runs();
  AttemptEnded end{1, 4, {}, 0};
  end.failure.set_headline(
      "rank 0 failed before its first instruction: rank 0: offload.directory: cannot take the room "
      "in /srv/scratch/of/somebody/with/a/long/name: No space left on device; 2146304 bytes (2.05 "
      "MiB) are wanted, 598016 bytes (584 KiB) are free beside what is kept for others; other "
      "ranks "
      "of the node take room there too; give a folder on a larger local disk");
  job.Happens(end);
  CHECK(job.status().reason().find("give a folder on a larger local disk") != std::string::npos);
}

TEST_CASE("a reason is cut between characters") {
  Story job({1});
  job.Runs();
  AttemptEnded end{1, 137, {}, 0};
  for (int i = 0; i < 500; ++i) end.failure.set_headline(end.failure.headline() + "\xc3\xa9");
  end.failure.set_headline("x" + end.failure.headline());
  job.Happens(end);
  const std::string& reason = job.status().reason();
  CHECK(reason.substr(reason.size() - 5) == "\xc3\xa9...");
  CHECK(reason.size() < 700);
}

}  // namespace
}  // namespace trireme::coordinator
