// What holds of every job, whatever happens to it in whatever order: a hundred thousand events.
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>

#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_machine/unable_nodes.h"

namespace trireme::coordinator {
namespace {

constexpr RetryPolicy kPolicy = {3, std::chrono::milliseconds(500), std::chrono::milliseconds(4000),
                                 4, std::chrono::seconds(40)};
constexpr int64_t kLongestNs = 4000000000;

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  // Mostly of the current attempt, else of one before or after it.
  uint32_t AttemptNear(const v1::JobStatus& status) {
    const uint64_t draw = Below(8);
    if (draw > 1) return status.attempt();
    return draw == 0 ? status.attempt() + 1 : static_cast<uint32_t>(Below(status.attempt() + 1));
  }

  JobEvent Event(const v1::JobStatus& status) {
    const uint32_t attempt = AttemptNear(status);
    switch (Below(31)) {
      case 29:
        return StepsSeen{attempt, Below(4), Below(5)};
      case 30:
        return FailedFromMemory(attempt);
      case 28:
        return PlanHeldUp{attempt, "a disk\nhangs"};
      case 24:
        return UnknownAttemptSeen{attempt, attempt + static_cast<uint32_t>(Below(3)), Below(2) == 0,
                                  Below(8) == 0, "it\nmay run"};
      case 25:
        return AttemptFound{attempt, "n\n1"};
      case 26:
        return TimeIsUp{};
      case 27:
        return LaunchQueued{attempt};
      case 0:
        return PauseAsked{"ann"};
      case 1:
        return ResumeAsked{""};
      case 2:
        return Below(4) == 0 ? JobEvent(CancelAsked{"bob\nthe builder"}) : ResumeAsked{"ann"};
      case 3:
        return AttemptLost{attempt, Below(2) == 0 ? "" : "node n2\nis lost"};
      case 4:
        return CheckpointSeen{attempt, Below(200)};
      case 5:
      case 6:
      case 7:
        return Ended(attempt);
      case 8:
        return Below(8) == 0 ? JobEvent(PlanRefused{attempt, 3 + static_cast<int>(Below(2)), "\t"})
                             : PlanMade{attempt};
      case 9:
        return RetryDue{Below(4) != 0, Below(4) == 0};
      default:
        break;
    }
    const JobEvent forward[] = {NodesAllocated{}, PlanMade{attempt}, AllRanksRun{attempt},
                                RetryDue{}};
    return forward[Below(4)];
  }

 private:
  AttemptEnded Ended(uint32_t attempt) {
    constexpr int kCodes[] = {0, 1, 2, 3, 4, 73, 75, 134, 137, 137, 137, 143};
    AttemptEnded ended{attempt, kCodes[Below(12)], {}, Below(3) == 0 ? Below(200) : 0};
    ended.never_started = ended.exit_code == 4 && Below(2) == 0;
    ended.node = Below(8) == 0 ? "" : "n\n" + std::to_string(Below(50));
    ended.failure.set_own(Below(2) == 0);
    ended.memory_step = Below(4);
    ended.steps_done = Below(5);
    if (Below(2) == 0) ended.failure.set_headline(std::string(Below(1000), 'x') + "\nrank 3 died");
    return ended;
  }
  // By itself, mostly at one and the same step.
  AttemptEnded FailedFromMemory(uint32_t attempt) {
    AttemptEnded ended{attempt, Below(2) == 0 ? 1 : 4, {}, 0};
    ended.failure.set_own(true);
    ended.memory_step = 3 - Below(4) / 3;
    return ended;
  }
  std::mt19937_64 random_;
};

bool IsOneLine(const std::string& text) {
  if (text.empty() || text.size() > 1000) return false;
  for (const unsigned char c : text) {
    if (c < 0x20) return false;
  }
  return true;
}

void Expect(bool holds, const char* what, const v1::JobStatus& before, const v1::JobStatus& after,
            size_t event) {
  if (holds) return;
  FAIL(what << "\nevent " << event << "\n"
            << before.DebugString() << "then\n"
            << after.DebugString());
}
#define EXPECT(holds) Expect(holds, #holds, before, after, event.index())

// What a newest checkpoint goes by.
std::pair<uint32_t, uint64_t> Saved(const v1::JobStatus& status) {
  return {status.checkpoint_attempt(), status.checkpoint_step()};
}

void CheckStatus(const v1::JobStatus& before, const v1::JobStatus& after, const JobEvent& event) {
  const Consequences follows = ConsequencesOf(after);
  EXPECT(IsOneLine(after.reason()));
  EXPECT(!HasEnded(after.state()) || !after.attempt_live());
  EXPECT(!HasEnded(after.state()) || !follows.holds_allocation);
  EXPECT(after.state() != v1::JOB_PENDING || !follows.holds_allocation);
  EXPECT(after.state() != v1::JOB_PAUSED || !follows.holds_allocation);
  EXPECT(!after.attempt_live() || follows.holds_allocation);
  EXPECT(after.attempt_live() == (follows.attempt != v1::ATTEMPT_DESIRED_UNSPECIFIED));
  EXPECT(!follows.wants_plan || !after.attempt_live());
  EXPECT(after.counts_since_unix_ns() == 0 || after.attempt_live());
  EXPECT(follows.timer_unix_ns == 0 || !after.attempt_live());
  EXPECT(after.state() == v1::JOB_RECOVERING || after.retry_at_unix_ns() == 0);
  EXPECT(after.memory_step() <= after.furthest_memory_step());
  EXPECT(after.memory_before() <= after.furthest_memory_step());
  EXPECT(after.suspect_memory_step() <= after.furthest_memory_step());
  EXPECT(after.failures() <= kPolicy.max_failures);
  EXPECT(TriesInVain(after) <= kPolicy.max_failures * kPolicy.setbacks);
  EXPECT(after.unable_nodes_size() <= kMostUnableNodes);
  EXPECT(static_cast<uint32_t>(after.unable_nodes_size()) <= after.unstarted());
  // What nothing else may move: each job that waits is waited for by something.
  EXPECT(after.state() != v1::JOB_PENDING || follows.wants_allocation);
  EXPECT(after.state() != v1::JOB_RECOVERING || after.attempt_live() || follows.timer_unix_ns > 0);
}

void CheckChange(const v1::JobStatus& before, const Transition& transition, const JobEvent& event,
                 int64_t now) {
  const v1::JobStatus& after = transition.status;
  EXPECT(transition.changed == !transition.events.empty());
  EXPECT(transition.changed || before.SerializeAsString() == after.SerializeAsString());
  EXPECT(!HasEnded(before.state()) || !transition.changed);
  const bool found = std::holds_alternative<AttemptFound>(event);
  const bool skips = found || std::holds_alternative<UnknownAttemptSeen>(event);
  EXPECT(after.attempt() >= before.attempt());
  EXPECT(after.attempt() <= before.attempt() + 1 || skips);
  EXPECT(found || after.attempt() == before.attempt() ||
         !(before.attempt_live() || after.attempt_live()));
  EXPECT(!after.attempt_live() || before.attempt_live() || found ||
         std::holds_alternative<PlanMade>(event));
  EXPECT(before.desired_state() != v1::JOB_DESIRED_CANCEL ||
         after.desired_state() == v1::JOB_DESIRED_CANCEL);
  EXPECT(before.desired_state() != v1::JOB_DESIRED_CANCEL || found ||
         after.attempt() == before.attempt());
  EXPECT(before.desired_state() != v1::JOB_DESIRED_CANCEL || found ||
         after.state() == before.state() ||
         (after.state() != v1::JOB_PLANNING && after.state() != v1::JOB_LAUNCHING));
  EXPECT(Saved(after) >= Saved(before));
  EXPECT(after.used_ns() >= before.used_ns());
  // No further attempt without time for it.
  EXPECT(after.attempt() == before.attempt() || skips ||
         after.used_ns() < std::chrono::nanoseconds(kPolicy.time_limit).count());
  EXPECT(after.checkpoint_attempt() <= after.attempt());
  EXPECT(after.retry_at_unix_ns() == before.retry_at_unix_ns() ||
         after.retry_at_unix_ns() <= now + kLongestNs);
  bool state_told = after.state() == before.state();
  bool desired_told = after.desired_state() == before.desired_state();
  bool step_told = Saved(after) == Saved(before);
  EXPECT(after.furthest_memory_step() >= before.furthest_memory_step());
  bool unused_told = after.memory_before() == before.memory_before();
  for (const v1::Event& told : transition.events) {
    EXPECT(told.attempt() == after.attempt());
    if (told.has_state_changed()) {
      EXPECT(told.state_changed().from() == before.state());
      EXPECT(told.state_changed().to() == after.state());
      EXPECT(told.state_changed().reason() == after.reason());
      EXPECT(after.changed_unix_ns() == now);
      state_told = true;
    }
    if (told.has_desired_state_changed())
      desired_told = told.desired_state_changed().desired_state() == after.desired_state();
    if (told.has_memory_step_left()) unused_told = true;
    if (told.has_checkpointed()) step_told = told.checkpointed().step() == after.checkpoint_step();
  }
  EXPECT(state_told);
  EXPECT(desired_told);
  EXPECT(step_told);
  EXPECT(unused_told);
}

// Pointers to the attempt that an event speaks of; null: of none.
struct AttemptOf {
  const uint32_t* operator()(const PlanMade& event) const { return &event.attempt; }
  const uint32_t* operator()(const PlanRefused& event) const { return &event.attempt; }
  const uint32_t* operator()(const AllRanksRun& event) const { return &event.attempt; }
  const uint32_t* operator()(const LaunchQueued& event) const { return &event.attempt; }
  const uint32_t* operator()(const CheckpointSeen& event) const { return &event.attempt; }
  const uint32_t* operator()(const StepsSeen& event) const { return &event.attempt; }
  const uint32_t* operator()(const AttemptEnded& event) const { return &event.attempt; }
  const uint32_t* operator()(const AttemptLost& event) const { return &event.attempt; }
  const uint32_t* operator()(const UnknownAttemptSeen& event) const { return &event.attempt; }
  const uint32_t* operator()(const PlanHeldUp& event) const { return &event.attempt; }
  template <typename Other>
  const uint32_t* operator()(const Other&) const {
    return nullptr;
  }
};

// A cancel is certain: the end of the attempt, or nothing, is all that it waits for.
void CheckCancel(const v1::JobStatus& after, const JobEvent& event, int64_t now) {
  const v1::JobStatus& before = after;
  EXPECT(HasEnded(after.state()) || after.attempt_live());
  if (HasEnded(after.state())) return;
  for (const int code : {0, 2, 75, 137}) {
    const auto end = Apply(after, AttemptEnded{after.attempt(), code, {}, 0}, kPolicy, now);
    EXPECT(end.ok() && HasEnded(end->status.state()));
  }
}

TEST_CASE("a random walk of jobs keeps every promise") {
  Chance chance(20);
  int64_t now = 1000;
  v1::JobStatus status = InitialStatus(now);
  std::multiset<v1::JobState> seen;
  int out_of_time = 0;
  int unused = 0;
  for (int i = 0; i < 100000; ++i) {
    now += 1 + static_cast<int64_t>(chance.Below(1500000000));
    const v1::JobStatus before = status;
    const JobEvent event = chance.Event(before);
    const auto next = Apply(before, event, kPolicy, now);
    if (!next.ok()) {
      CHECK(next.status().code() == absl::StatusCode::kFailedPrecondition);
      continue;
    }
    status = next->status;
    CheckStatus(before, status, event);
    CheckChange(before, *next, event, now);
    if (const uint32_t* attempt = std::visit(AttemptOf(), event);
        attempt != nullptr && *attempt != before.attempt()) {
      Expect(!next->changed, "an event of another attempt", before, status, event.index());
    }
    if (status.desired_state() == v1::JOB_DESIRED_CANCEL) CheckCancel(status, event, now);
    if (next->changed) seen.insert(status.state());
    if (next->changed && status.reason().starts_with("reached its time limit")) ++out_of_time;
    if (status.memory_before() > before.memory_before()) ++unused;
    // Ended jobs live on for a while, to see that nothing moves them.
    if (HasEnded(status.state()) && chance.Below(10) == 0) status = InitialStatus(now);
  }
  CHECK(out_of_time > 100);
  CHECK(unused > 10);
  for (int state = v1::JOB_PENDING; state <= v1::JOB_CANCELLED; ++state) {
    INFO(StateWord(static_cast<v1::JobState>(state)));
    CHECK(seen.count(static_cast<v1::JobState>(state)) > 100);
  }
}
#undef EXPECT

}  // namespace
}  // namespace trireme::coordinator
