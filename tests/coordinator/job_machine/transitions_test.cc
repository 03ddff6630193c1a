// The table of docs/coordinator.md and the machine say the same, in both directions: each row for
// every job that can be in its state, and where there is no row nothing changes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kNow = 1000000000000000000;

const char* DesiredStateWord(v1::JobDesiredState desired_state) {
  return desired_state == v1::JOB_DESIRED_RUN     ? "run"
         : desired_state == v1::JOB_DESIRED_PAUSE ? "pause"
                                                  : "cancel";
}

std::string SituationWord(const v1::JobStatus& status) {
  const bool both = status.state() == v1::JOB_RECOVERING;  // the only state with and without
  return StateWord(status.state()) + (both && status.attempt_live() ? " (live)" : "");
}

using Situation = std::pair<std::string, std::string>;  // state, desired state
Situation SituationOf(const v1::JobStatus& status) {
  return {SituationWord(status), DesiredStateWord(status.desired_state())};
}

// What the table calls an event, and every event meant by that.
struct NamedEvent {
  std::string name;
  std::function<std::vector<JobEvent>(uint32_t attempt)> make;
  uint32_t max_failures = 5;
  bool time_is_up = false;

  RetryPolicy Policy() const {
    RetryPolicy policy{max_failures};
    if (max_failures == 1) policy.setbacks = 1;
    if (time_is_up) policy.time_limit = std::chrono::nanoseconds(1);
    return policy;
  }
};

NamedEvent Ended(const std::string& name, std::vector<int> codes, uint32_t max_failures,
                 bool time_is_up = false) {
  const auto make = [codes](uint32_t attempt) {
    std::vector<JobEvent> events;
    for (const int code : codes) events.push_back(AttemptEnded{attempt, code, {}, 0});
    return events;
  };
  return {name, make, max_failures, time_is_up};
}

std::vector<JobEvent> NoPlan(uint32_t attempt) {
  return {PlanRefused{attempt, 1, "bug"}, PlanRefused{attempt, 4, "its claim is damaged"}};
}

std::vector<JobEvent> NotStarted(uint32_t attempt) {
  AttemptEnded ended{attempt, 4, {}, 0};
  ended.never_started = true;
  return {ended};
}

const std::vector<NamedEvent>& NamedEvents() {
  using Events = std::vector<JobEvent>;
  static const std::vector<NamedEvent> events = {
      {"nodes allocated", [](uint32_t) { return Events{NodesAllocated{}}; }},
      {"plan made", [](uint32_t attempt) { return Events{PlanMade{attempt}}; }},
      {"plan refused",
       [](uint32_t attempt) {
         return Events{PlanRefused{attempt, 2, "no"}, PlanRefused{attempt, 3, "too big"}};
       }},
      {"no plan", NoPlan, 5},
      {"no plan (last)", NoPlan, 1},
      {"all ranks run", [](uint32_t attempt) { return Events{AllRanksRun{attempt}}; }},
      {"checkpoint",
       [](uint32_t attempt) {
         return Events{CheckpointSeen{attempt, 1000}};
       }},
      {"went on in memory",
       [](uint32_t attempt) {
         return Events{StepsSeen{attempt, 1000, 1000}};
       }},
      Ended("ended 0", {0}, 5),
      Ended("ended 75", {75}, 5),
      Ended("ended 2 or 3", {2, 3}, 5),
      Ended("failed", {1, 4, 5, 134, 137, -1}, 5),
      Ended("failed (last)", {1, 4, 5, 134, 137, -1}, 1),
      Ended("no room", {base::kNoRoomHere}, 5),
      Ended("no room (last)", {base::kNoRoomHere}, 1),
      {"not started", NotStarted, 5},
      {"not started (last)", NotStarted, 1},
      Ended("failed (time up)", {1, 4, 75, 137}, 5, true),
      Ended("ended 0 (time up)", {0}, 5, true),
      Ended("ended 2 or 3 (time up)", {2, 3}, 5, true),
      {"launch queued", [](uint32_t attempt) { return Events{LaunchQueued{attempt}}; }, 5, true},
      {"time is up", [](uint32_t) { return Events{TimeIsUp{}}; }, 5, true},
      {"lost",
       [](uint32_t attempt) {
         return Events{AttemptLost{attempt, "n2 is lost"}};
       }},
      {"plan held up",
       [](uint32_t attempt) {
         return Events{PlanHeldUp{attempt, "its disk hangs"}};
       }},
      {"unknown attempt",
       [](uint32_t attempt) {
         return Events{UnknownAttemptSeen{attempt, attempt + 2, false, false, "it may run"}};
       }},
      {"unknown attempt (over)",
       [](uint32_t attempt) {
         return Events{UnknownAttemptSeen{attempt, attempt + 2, true, false, ""},
                       UnknownAttemptSeen{attempt, attempt, true, false, ""}};
       }},
      {"unknown attempt (done)",
       [](uint32_t attempt) {
         return Events{UnknownAttemptSeen{attempt, attempt + 2, true, true, ""}};
       }},
      {"attempt found",
       [](uint32_t attempt) {
         return Events{AttemptFound{attempt + 2, "n1"}};
       }},
      {"retry due", [](uint32_t) { return Events{RetryDue{}}; }},
      {"retry due elsewhere", [](uint32_t) { return Events{RetryDue{false}}; }},
      {"retry due away",
       [](uint32_t) {
         return Events{RetryDue{true, true}};
       }},
      {"pause", [](uint32_t) { return Events{PauseAsked{"ann"}}; }},
      {"resume", [](uint32_t) { return Events{ResumeAsked{"ann"}}; }},
      {"resume (time up)", [](uint32_t) { return Events{ResumeAsked{"ann"}}; }, 5, true},
      {"cancel", [](uint32_t) { return Events{CancelAsked{"ann"}}; }},
  };
  return events;
}

std::set<std::string> Expand(const std::string& event) {
  using Names = std::set<std::string>;
  const Names ends = {"ended 75",    "ended 2 or 3", "failed", "ended 2 or 3 (time up)",
                      "not started", "no room"};
  const Names times_up = {"ended 0 (time up)", "ended 2 or 3 (time up)", "failed (time up)"};
  Names meant = ends;
  if (event == "ended 0") return {"ended 0", "ended 0 (time up)"};
  if (event == "ended 2 or 3") return {"ended 2 or 3", "ended 2 or 3 (time up)"};
  if (event == "resume") return {"resume", "resume (time up)"};
  if (event == "resume in time") return {"resume"};
  if (event == "ended (time up)") return times_up;
  meant.insert({"failed (last)", "failed (time up)", "not started (last)", "no room (last)"});
  if (event == "ended but 0") return meant;
  meant.insert({"ended 0", "ended 0 (time up)"});
  if (event == "ended") return meant;
  if (event == "ended in time but last") {
    return {"ended 0", "ended 75", "ended 2 or 3", "failed", "not started", "no room"};
  }
  return {event};
}

// Every situation that events lead to, with a job that is in it.
std::map<Situation, v1::JobStatus> ReachableSituations() {
  std::map<Situation, v1::JobStatus> found;
  std::vector<v1::JobStatus> open = {InitialStatus(kNow)};
  while (!open.empty()) {
    v1::JobStatus status = open.back();
    open.pop_back();
    // One of each is enough: what else a status holds decides nothing but the named conditions.
    status.set_attempt(std::max(status.attempt(), 1u));
    status.set_failures(std::min(status.failures(), 1u));
    status.clear_setbacks();
    status.clear_unstarted();
    status.clear_unable_nodes();
    status.set_checkpoint_step(0);
    status.set_checkpoint_attempt(0);
    status.clear_memory_step();
    status.clear_furthest_memory_step();
    status.set_used_ns(10);
    status.clear_counts_since_unix_ns();
    if (status.attempt_live()) status.set_counts_since_unix_ns(kNow);
    if (!found.emplace(SituationOf(status), status).second) continue;
    for (const NamedEvent& named : NamedEvents()) {
      for (const JobEvent& event : named.make(status.attempt())) {
        const auto next = Apply(status, event, named.Policy(), kNow + 3600000000000);
        if (next.ok()) open.push_back(next->status);
      }
    }
  }
  return found;
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

std::vector<std::string> Words(const std::string& cell) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= cell.size();) {
    const size_t end = std::min(cell.find(", ", begin), cell.size());
    words.push_back(cell.substr(begin, end - begin));
    begin = end + 2;
  }
  return words;
}

using Outcome = std::pair<std::string, std::string>;  // state then, desired state then
using Table = std::map<std::tuple<std::string, std::string, std::string>, Outcome>;

// Rows of one table, each as the events and situations that it means.
Table ReadTable(const std::map<Situation, v1::JobStatus>& situations) {
  std::ifstream file(TRIREME_SOURCE_DIR "/docs/coordinator.md");
  std::string line;
  while (std::getline(file, line) && line != "<!-- transitions -->") {
  }
  std::getline(file, line);
  REQUIRE(Cells(line) == std::vector<std::string>{"state", "desired", "event", "state then",
                                                  "desired then", "note"});
  std::getline(file, line);
  Table table;
  while (std::getline(file, line) && line != "<!-- /transitions -->") {
    INFO(line);
    const std::vector<std::string> cells = Cells(line);
    REQUIRE(cells.size() == 6);
    for (const std::string& state : Words(cells[0])) {
      std::set<std::string> desired_states;
      for (const std::string& desired_state : Words(cells[1])) {
        for (const auto& [situation, status] : situations) {
          if (situation.first == state &&
              (desired_state == "any" || desired_state == situation.second)) {
            desired_states.insert(situation.second);
          }
        }
      }
      for (const std::string& desired_state : desired_states) {
        for (const std::string& word : Words(cells[2])) {
          for (const std::string& event : Expand(word)) {
            const Outcome outcome = {cells[3] == "-" ? state : cells[3],
                                     cells[4] == "-" ? desired_state : cells[4]};
            CHECK(table.emplace(std::tuple(state, desired_state, event), outcome).second);
          }
        }
      }
    }
  }
  REQUIRE(line == "<!-- /transitions -->");
  return table;
}

TEST_CASE("the machine does what its table says and nothing else") {
  const std::map<Situation, v1::JobStatus> situations = ReachableSituations();
  CHECK(situations.size() == 19);
  Table table = ReadTable(situations);
  CHECK(table.size() > 80);
  for (const auto& [situation, status] : situations) {
    for (const NamedEvent& named : NamedEvents()) {
      const auto row = table.find({situation.first, situation.second, named.name});
      for (const JobEvent& event : named.make(status.attempt())) {
        INFO(situation.first << " desired to " << situation.second << ": " << named.name);
        const auto next = Apply(status, event, named.Policy(), kNow + 7200000000000);
        if (row != table.end() && row->second.first == "refused") {
          CHECK(next.status().code() == absl::StatusCode::kFailedPrecondition);
          continue;
        }
        REQUIRE(next.ok());
        CHECK(next->changed == (row != table.end()));
        const Outcome expected = row == table.end() ? Outcome(situation) : row->second;
        CHECK(SituationOf(next->status) == expected);
      }
      if (row != table.end()) table.erase(row);
    }
  }
  // A row of an event or a state that does not exist.
  for (const auto& [row, outcome] : table) {
    FAIL_CHECK(std::get<0>(row) << " " << std::get<1>(row) << " " << std::get<2>(row));
  }
}

TEST_CASE("what nodes and timers are to do follows from the status alone") {
  for (const auto& [situation, status] : ReachableSituations()) {
    INFO(situation.first << " desired to " << situation.second);
    const auto& [state, desired_state] = situation;
    const Consequences follows = ConsequencesOf(status);
    CHECK(follows.wants_allocation == (state == "pending"));
    CHECK(follows.wants_plan == (state == "planning"));
    const bool at_rest = state == "pending" || state == "paused" || HasEnded(status.state());
    CHECK(follows.holds_allocation == !at_rest);
    if (at_rest) CHECK(!status.attempt_live());
    v1::AttemptDesiredState attempt = v1::ATTEMPT_DESIRED_UNSPECIFIED;
    if (state == "launching" || state == "running") {
      attempt = desired_state == "run" ? v1::ATTEMPT_RUN : v1::ATTEMPT_STOP;
    }
    if (state == "pausing") attempt = v1::ATTEMPT_STOP;
    if (state == "recovering (live)") attempt = v1::ATTEMPT_KILL;
    CHECK(follows.attempt == attempt);
    CHECK((follows.timer_unix_ns != 0) == (state == "recovering"));
  }
}

TEST_CASE("ranks that a stored status says may live are killed and hold their allocation") {
  for (const v1::JobState state :
       {v1::JOB_PENDING, v1::JOB_PAUSED, v1::JOB_COMPLETED, v1::JOB_FAILED, v1::JOB_CANCELLED}) {
    v1::JobStatus status;
    status.set_state(state);
    status.set_attempt_live(true);
    CHECK(ConsequencesOf(status).attempt == v1::ATTEMPT_KILL);
    CHECK(ConsequencesOf(status).holds_allocation);
  }
}

TEST_CASE("refusals say why") {
  v1::JobStatus status = InitialStatus(kNow);
  const auto message = [&](const JobEvent& event) {
    return base::MessageOf(Apply(status, event, {}, kNow).status());
  };
  status.set_state(v1::JOB_COMPLETED);
  CHECK(message(PauseAsked{"ann"}) == "job has completed; it cannot be paused");
  CHECK(message(CancelAsked{"ann"}) == "job has completed; it cannot be cancelled");
  status.set_state(v1::JOB_CANCELLED);
  CHECK(message(ResumeAsked{"ann"}) == "job has been cancelled; it cannot be resumed");
  status.set_state(v1::JOB_RUNNING);
  status.set_desired_state(v1::JOB_DESIRED_CANCEL);
  CHECK(message(PauseAsked{"ann"}) == "job is being cancelled; it cannot be paused");
}

}  // namespace
}  // namespace trireme::coordinator
