// What a turn does with what is desired since a disk has held it: the times of a grace, and of what
// a guard has to obey, are those of the moment in which it comes back.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>

#include "coordinator/keeper/attempt.h"
#include "runtime/base/monotonic.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

using base::kNsPerSecond;

// What was asked of ranks that live, and by which clock.
struct Asked {
  std::function<void()> held = [] {};  // happens while the look lasts
  int64_t stop_ns = 0;
  int64_t kill_ns = 0;
};

class LiveLaunch final : public Launch {
 public:
  explicit LiveLaunch(std::shared_ptr<Asked> asked) : asked_(std::move(asked)) {}
  Seen Look(int64_t) override {
    asked_->held();
    return {Sight::kLive, {}, 0, "", ""};
  }
  bool Ready() override { return true; }
  absl::Status Start(const std::function<bool()>&) override { return absl::OkStatus(); }
  void AskToStop(int64_t now_ns) override { asked_->stop_ns = now_ns; }
  void Kill(int64_t now_ns) override { asked_->kill_ns = now_ns; }
  absl::Status Seal() override { return absl::OkStatus(); }
  bool SweptClean() override { return true; }
  bool RunnerGone() override { return true; }
  void CleanUp() override {}

 private:
  const std::shared_ptr<Asked> asked_;
};

// An attempt whose ranks live, and a turn of it that began half a minute ago.
struct HeldTurn {
  HeldTurn() {
    auto options = std::make_shared<KeeperOptions>(bench.options);
    options->make_launch = [asked = asked](const AttemptRecord&, const AttemptFolder&) {
      return std::make_unique<LiveLaunch>(asked);
    };
    AttemptRecord record;
    record.desired = bench.Attempt(1);
    record.begun = true;
    attempt = std::make_unique<Attempt>(options, record, Heard{.adopted = true}, nullptr, desired);
  }
  void Come(v1::AttemptDesiredState state) {
    asked->held = [this, state] {
      Desired newest;
      newest.desired_state = state;
      newest.grace_seconds = 20;
      newest.stop_wanted_ns = base::MonotonicNs();
      desired.Set(newest);
    };
    attempt->Advance({base::MonotonicNs() - 30 * kNsPerSecond, false});
    asked->held = [] {};
  }

  KeeperBench bench{""};
  SharedDesired desired;
  std::shared_ptr<Asked> asked = std::make_shared<Asked>();
  std::unique_ptr<Attempt> attempt;
};

TEST_CASE("held turn: a stop that came while a disk held it has the whole of its grace") {
  HeldTurn turn;
  const int64_t began_ns = base::MonotonicNs();
  turn.Come(v1::ATTEMPT_STOP);
  CHECK(turn.asked->stop_ns >= began_ns);
  turn.attempt->Advance({base::MonotonicNs(), false});
  CHECK(turn.asked->kill_ns == 0);
  turn.attempt->Advance({base::MonotonicNs(), false});
  CHECK(turn.asked->kill_ns == 0);
}

TEST_CASE("held turn: a grace is counted from when the stop was desired, as the loop does") {
  HeldTurn turn;
  Desired stop;
  stop.desired_state = v1::ATTEMPT_STOP;
  stop.grace_seconds = 20;
  stop.stop_wanted_ns = base::MonotonicNs() - 21 * kNsPerSecond;
  turn.desired.Set(stop);
  turn.attempt->Advance({base::MonotonicNs(), false});
  CHECK(turn.asked->stop_ns > 0);
  CHECK(turn.asked->kill_ns > 0);
}

TEST_CASE("held turn: a guard that is asked to kill late has its time to obey") {
  HeldTurn turn;
  const int64_t began_ns = base::MonotonicNs();
  turn.Come(v1::ATTEMPT_KILL);
  CHECK(turn.asked->kill_ns >= began_ns);
}

}  // namespace
}  // namespace trireme::keeper
