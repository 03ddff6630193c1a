// Ranks of another node than mpirun's that the kernel has killed for want of memory: what the user
// is told of the end.
#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

constexpr char kMemoryKill[] = "the kernel killed ranks of the attempt on node n2: out of memory";
constexpr char kMemoryAction[] = "raise resources.memory_mib_per_rank";

// Eight ranks on n1, which launches them, and n2.
struct KillDesk : Desk {
  KillDesk() {
    Dial("n1");
    Dial("n2");
    Submit(8, kDeskBegin);
    Launch(1, kDeskBegin);
    for (const char* node : {"n1", "n2"}) Say(node, Word(1, 1, v1::ATTEMPT_RUNNING));
    REQUIRE(StateOf(1) == v1::JOB_RUNNING);
    REQUIRE(table.Get(1)->allocation(0).node() == "n1");
  }
  void Say(const std::string& node, const v1::NodeReport& report) {
    Report(node, report, kDeskBegin + kDeskSecond);
  }
  static v1::NodeReport LauncherEnd(int exit_code, int rank, const std::string& headline) {
    v1::NodeReport report = Word(1, 1, v1::ATTEMPT_ENDED, exit_code);
    v1::Failure& failure = *report.mutable_attempts(0)->mutable_failure();
    failure.set_rank(rank);
    failure.set_exit_code(exit_code);
    failure.set_headline(headline);
    failure.set_evidence("log: rank-5.log");
    failure.set_next_action("look at the log");
    return report;
  }
  static v1::NodeReport Killed(v1::AttemptPhase phase) {
    v1::NodeReport report = Word(1, 1, phase);
    v1::Failure& failure = *report.mutable_attempts(0)->mutable_failure();
    failure.set_rank(-1);
    failure.set_exit_code(137);
    failure.set_headline(kMemoryKill);
    failure.set_next_action(kMemoryAction);
    return report;
  }
  v1::Failure Told() const { return table.Get(1)->status().failure(); }
};

TEST_CASE("memory kills: that of another node is the cause, whoever reports first") {
  KillDesk desk;
  const auto [code, rank] = GENERATE(std::pair(137, 5), std::pair(1, -1));
  const bool launcher_first = GENERATE(true, false);
  CAPTURE(code, rank, launcher_first);
  const v1::NodeReport end = KillDesk::LauncherEnd(code, rank, "rank 5 was killed by signal 9");
  if (launcher_first) desk.Say("n1", end);
  desk.Say("n2", KillDesk::Killed(v1::ATTEMPT_ENDED));
  // An agent that was started anew does not know it any more.
  if (!launcher_first) desk.Say("n2", Desk::Word(1, 1, v1::ATTEMPT_ENDED));
  if (!launcher_first) desk.Say("n1", end);
  REQUIRE(desk.StateOf(1) == v1::JOB_RECOVERING);
  CHECK(desk.Told().headline() == kMemoryKill);
  CHECK(desk.Told().next_action() == kMemoryAction);
  CHECK(desk.Told().rank() == rank);
  CHECK(desk.Told().evidence() == "rank 5 was killed by signal 9\nlog: rank-5.log");
  CHECK(desk.table.Get(1)->status().reason().find(kMemoryKill) != std::string::npos);
}

TEST_CASE("memory kills: what a rank has said of itself, and a stop, stay the end's cause") {
  KillDesk desk;
  const bool to_end = GENERATE(false, true);
  CAPTURE(to_end);
  desk.Say("n2", KillDesk::Killed(v1::ATTEMPT_RUNNING));
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  if (to_end) REQUIRE(desk.reconciler->Ask(1, CancelAsked{"ann"}, 1, kDeskBegin).ok());
  desk.Say("n1", to_end ? KillDesk::LauncherEnd(137, -1, "killed as asked")
                        : KillDesk::LauncherEnd(3, 5, "rank 5: the loss is not a number"));
  desk.Say("n2", KillDesk::Killed(v1::ATTEMPT_ENDED));
  CHECK(desk.Told().headline() ==
        (to_end ? "killed as asked" : "rank 5: the loss is not a number"));
  CHECK(desk.Told().evidence() == std::string("log: rank-5.log\n") + kMemoryKill);
}

}  // namespace
}  // namespace trireme::coordinator
