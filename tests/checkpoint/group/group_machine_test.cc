// What the explorer does not see: how a round looks from outside, how far ahead rounds aim, what is
// waited for and how long, and who is believed when an attempt begins.
#include "checkpoint/group/group_machine.h"

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

namespace trireme::checkpoint {
namespace {

const JobGroups kTwo{{.members = 2, .parity = 1}};
constexpr GroupPace kPace{.ahead = 4, .most_ahead = 10, .limit = GroupTime(100)};

template <typename Order>
std::optional<Order> Find(const std::vector<GroupOrder>& orders) {
  for (const GroupOrder& order : orders) {
    if (const auto* of = std::get_if<Order>(&order)) return *of;
  }
  return std::nullopt;
}
std::optional<Word> WordIn(const std::vector<GroupOrder>& orders) {
  const std::optional<Send> sent = Find<Send>(orders);
  return sent ? std::optional(std::get<Word>(sent->message)) : std::nullopt;
}

// Member 0 of two. The other one is played by the test: what it says is `report`.
class Leader {
 public:
  Leader() : machine_(kTwo, kPace, {}, {}) {
    machine_.Start({});
    report.attempt = 1;
    On(Staged{20});
    Say();
    report.page.settled = report.page.since = 1;
    Say();
  }

  void On(const GroupEvent& event, GroupTime now = {}) {
    const std::vector<GroupOrder> orders = machine_.On(event, now);
    if (const std::optional<Word> said = WordIn(orders)) word = *said;
    if (const std::optional<SetPin> pin = Find<SetPin>(orders); pin && pin->round != 0) {
      On(PinTaken{.round = pin->round, .in_time = true}, now);
    }
  }
  void Say(GroupTime now = {}) { On(Received{1, report}, now); }
  const GroupPage& page() const { return machine_.page(); }

  Report report;
  Word word;

 private:
  GroupMachine machine_;
};

TEST_CASE("group: a round aims ahead, and further after each that was late, within a bound") {
  Leader leader;
  REQUIRE(leader.word.making == RoundVersion{1, 1, 24});
  uint64_t round = 1;
  for (const uint64_t ahead : {8, 10, 10}) {
    leader.report.failed_round = round++;
    leader.report.late = true;
    leader.Say();
    CHECK(leader.word.making == RoundVersion{round, 1, 20 + ahead});
  }
  leader.report.failed_round = round++;
  leader.report.late = false;
  leader.Say();
  CHECK(leader.word.making == RoundVersion{round, 1, 30});
}

TEST_CASE("group: a round that moves is waited for, one that does not is given up") {
  Leader leader;
  leader.report.pinned_round = 1;
  leader.Say(GroupTime(99));
  CHECK(leader.word.go);
  leader.On(Staged{24}, GroupTime(198));
  leader.On(Tick{}, GroupTime(297));
  CHECK(leader.word.making.round == 1);
  leader.On(Tick{}, GroupTime(298));
  CHECK(leader.word.making.round == 2);
  CHECK(leader.word.counts.round == 0);
  CHECK(leader.page().areas[0].of.round == 2);
}

TEST_CASE("group: who is gone is not waited for, unless his part is done") {
  Leader leader;
  leader.On(PeerGone{1});
  CHECK(leader.word.making.round == 0);
  CHECK(leader.word.last_round == 1);
  leader.report.failed_round = 1;
  leader.Say();
  REQUIRE(leader.word.making.round == 2);
  leader.report.page.areas[0] = {AreaPhase::kSealed, leader.word.making};
  leader.Say();
  leader.On(PeerGone{1});
  CHECK(leader.word.making.round == 2);
  leader.On(AreaWhole{2});
  leader.Say();
  CHECK(leader.word.counts.round == 2);
}

TEST_CASE("group: where ranks went on from before what counts, it is taken back by a later round") {
  Leader leader;
  leader.report.page.areas[0] = {AreaPhase::kSealed, leader.word.making};
  leader.On(AreaWhole{1});
  leader.Say();
  REQUIRE(leader.word.counts == RoundVersion{1, 1, 24});
  leader.On(AttemptBegins{2});
  leader.report.attempt = 2;
  leader.report.page.counts = {1, 1, 24};
  leader.Say();
  REQUIRE(leader.word.counts == RoundVersion{1, 1, 24});
  leader.report.page.settled = 2;
  leader.report.began = true;
  leader.report.went_on = 9;
  leader.report.staged = 30;
  leader.Say();
  CHECK(leader.word.counts.IsNothing());
  CHECK(leader.word.counts.round > 1);
  CHECK(leader.page().areas[0].phase == AreaPhase::kEmpty);
  leader.report.page.counts = leader.word.counts;
  leader.report.page.areas[0] = {};
  leader.Say();
  CHECK(leader.word.making.version == 34);
}

TEST_CASE("group: no round begins while a member is rebuilt, and one does where that has failed") {
  Leader leader;
  leader.report.rebuilding = true;
  leader.report.failed_round = 1;
  leader.Say();
  CHECK(leader.word.making.round == 0);
  leader.report.rebuilding = false;
  leader.Say();
  CHECK(leader.word.making.round == 2);
}

TEST_CASE(
    "group: a new member is rebuilt at the first word, again if its agent dies, once if it fails") {
  GroupPage page;
  const Word word{.attempt = 3, .last_round = 5, .counts = {4, 2, 90}};
  for (uint32_t life = 0; life < 2; ++life) {
    GroupMachine member(kTwo, kPace, {.member = 1, .attempt = 3}, page);
    member.Start({});
    const std::optional<Rebuild> rebuild = Find<Rebuild>(member.On(Received{0, word}, {}));
    REQUIRE(rebuild);
    CHECK(rebuild->of == word.counts);
    CHECK_FALSE(Find<Rebuild>(member.On(Received{0, word}, {})));
    page = member.page();
    CHECK(page.since == 6);
    CHECK_FALSE(page.Holds(4));
  }
  GroupMachine fails(kTwo, kPace, {.member = 1, .attempt = 3}, page);
  fails.Start({});
  REQUIRE(Find<Rebuild>(fails.On(Received{0, word}, {})));
  fails.On(Rebuilt{.round = 4, .whole = false}, {});
  CHECK_FALSE(Find<Rebuild>(fails.On(Received{0, word}, {})));
  CHECK_FALSE(fails.page().Holds(4));
  GroupMachine comes_back(kTwo, kPace, {.member = 1, .attempt = 3}, page);
  comes_back.Start({});
  REQUIRE(Find<Rebuild>(comes_back.On(Received{0, word}, {})));
  comes_back.On(Rebuilt{.round = 4, .whole = true}, {});
  CHECK(comes_back.page().Holds(4));
}

TEST_CASE("group: only the leader's words and reports of members are heard") {
  GroupMachine member({{.members = 3, .parity = 1}}, kPace, {.member = 1}, {});
  member.Start({});
  const Word word{.attempt = 1};
  CHECK_FALSE(Find<WritePage>(member.On(Received{2, word}, {})));
  CHECK_FALSE(Find<WritePage>(member.On(Received{7, word}, {})));
  CHECK_FALSE(Find<WritePage>(member.On(Received{0, Word{.attempt = 2}}, {})));
  CHECK(Find<WritePage>(member.On(Received{0, word}, {})));
  Leader leader;
  leader.On(Received{2, leader.report});
  leader.On(PeerGone{2});
  CHECK(leader.word.making.round == 1);
}

// What counts where members of a group of four, any two of whom may be lost, say this.
struct Meeting {
  std::vector<Report> reports = std::vector<Report>(4);

  void Has(uint32_t member, uint64_t sealed, uint64_t counts = 0, uint64_t since = 1) {
    GroupPage& page = reports[member].page;
    page.since = since;
    if (counts != 0) page.counts = {counts, 1, 10 * counts};
    page.areas[sealed % 2] = {AreaPhase::kSealed, {sealed, 1, 10 * sealed}};
  }
  uint64_t Settled() const {
    const RoundVersion settled = SettledBy(reports, {{.members = 4, .parity = 2}});
    CHECK(settled.version == 10 * settled.round);
    return settled.round;
  }
};

TEST_CASE(
    "group: an attempt settles on what may have counted, and on nothing else that is less safe") {
  Meeting meeting;
  CHECK(meeting.Settled() == 0);
  for (uint32_t member = 0; member < 4; ++member) meeting.Has(member, 4, 4);
  CHECK(meeting.Settled() == 4);
  SECTION("three have sealed the next one, the fourth lives and has not") {
    for (uint32_t member = 1; member < 4; ++member) meeting.Has(member, 5, 4);
    CHECK(meeting.Settled() == 4);
  }
  SECTION("three have, and the fourth is lost with what it had decided") {
    for (uint32_t member = 1; member < 4; ++member) meeting.Has(member, 5, 4);
    meeting.reports[0] = {};
    CHECK(meeting.Settled() == 5);
  }
  SECTION("one knows that it counts") {
    for (uint32_t member = 1; member < 4; ++member) meeting.Has(member, 5, member == 3 ? 5 : 4);
    CHECK(meeting.Settled() == 5);
  }
  SECTION("too few are left of the newest, and of the one before") {
    meeting.reports[0] = meeting.reports[1] = {};
    CHECK(meeting.Settled() == 4);
    meeting.reports[2] = {};
    CHECK(meeting.Settled() == 0);
  }
  SECTION("of what counted too little is left, of a round that was given up enough") {
    meeting = {};
    meeting.Has(0, 4, 4);
    meeting.Has(1, 5, 0, 5);
    meeting.Has(2, 5, 0, 5);
    meeting.reports[3].page.since = 5;
    CHECK(meeting.Settled() == 5);
  }
  SECTION("it was taken back, and one has heard it") {
    meeting.reports[2].page = {.since = 1, .last_round = 6, .counts = {.round = 6, .attempt = 1}};
    CHECK(meeting.Settled() == 0);
  }
}

TEST_CASE("group: what one group has alone does not count") {
  std::vector<Report> reports(4);
  for (uint32_t member = 0; member < 4; ++member) {
    reports[member].page.areas[0] = {AreaPhase::kSealed, {1, 1, 10}};
  }
  const JobGroups pairs{{.members = 2, .parity = 1}, {.members = 2, .parity = 1}};
  for (uint32_t member = 2; member < 4; ++member) {
    CHECK(SettledBy(reports, pairs).round == 1);
    reports[member] = {};
  }
  CHECK(SettledBy(reports, pairs).round == 0);
}

}  // namespace
}  // namespace trireme::checkpoint
