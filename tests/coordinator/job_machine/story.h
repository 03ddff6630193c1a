// A job to which things happen, one after another.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/exit_code.h"

namespace trireme::coordinator {

constexpr int64_t kStorySecond = 1000000000;

class Story {
 public:
  explicit Story(RetryPolicy policy = {}) : policy_(policy), status_(InitialStatus(now_)) {}

  const v1::JobStatus& status() const { return status_; }
  const std::vector<v1::Event>& told() const { return told_; }
  void Wait(int64_t ns) { now_ += ns; }
  int64_t now() const { return now_; }

  void Happens(const JobEvent& event) {
    const auto next = Apply(status_, event, policy_, now_);
    REQUIRE(next.ok());
    status_ = next->status;
    told_ = next->events;
  }
  void Runs() {
    if (status_.state() == v1::JOB_PENDING) Happens(NodesAllocated{});
    if (status_.state() == v1::JOB_RECOVERING) {
      now_ = status_.retry_at_unix_ns();
      Happens(RetryDue{});
    }
    Happens(PlanMade{status_.attempt()});
    Happens(AllRanksRun{status_.attempt()});
    REQUIRE(status_.state() == v1::JOB_RUNNING);
  }
  void Dies(uint64_t checkpoint_step = 0) {
    AttemptEnded end{status_.attempt(), 137, {}, checkpoint_step};
    end.failure.set_rank(3);
    end.failure.set_headline("rank 3 died");
    Happens(end);
  }
  // Its node could not start it.
  void IsNotStarted(const std::string& node = "n1") {
    Launches();
    AttemptEnded end{status_.attempt(), 4, {}, 0};
    end.failure.set_headline("attempt was not started: no mpirun");
    end.never_started = true;
    end.node = node;
    Happens(end);
  }
  void HasNoRoom(const std::string& node) {
    Launches();
    AttemptEnded end{status_.attempt(), base::kNoRoomHere, {}, 0};
    end.failure.set_headline("rank 2 failed: no room");
    end.node = node;
    Happens(end);
  }

 private:
  void Launches() {
    if (status_.state() == v1::JOB_PENDING) Happens(NodesAllocated{});
    if (status_.state() == v1::JOB_RECOVERING) {
      now_ = status_.retry_at_unix_ns();
      Happens(RetryDue{});
    }
    Happens(PlanMade{status_.attempt()});
  }

  RetryPolicy policy_;
  int64_t now_ = 1000 * kStorySecond;
  v1::JobStatus status_;
  std::vector<v1::Event> told_;
};

}  // namespace trireme::coordinator
