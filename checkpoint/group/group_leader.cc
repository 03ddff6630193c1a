// One decides, and its own record is the decision: a round that the leader has sealed may still
// count, one that it has dropped never will, and one that it has committed does. So what it has
// decided outlives its agent; and what outlives its memory, the others have.
#include "checkpoint/group/group_leader.h"

#include <algorithm>

namespace trireme::checkpoint {

namespace {

// Whether enough members of each group hold it.
bool CanBeRebuilt(uint64_t round, const std::vector<Report>& reports, const JobGroups& groups) {
  size_t member = 0;
  for (const GroupShape& group : groups) {
    uint32_t holders = 0;
    for (uint32_t i = 0; i < group.members; ++i) {
      if (reports[member++].page.Holds(round)) ++holders;
    }
    if (holders < group.members - group.parity) return false;
  }
  return true;
}

}  // namespace

uint32_t MembersOf(const JobGroups& groups) {
  uint32_t members = 0;
  for (const GroupShape& group : groups) members += group.members;
  return members;
}

RoundVersion SettledBy(const std::vector<Report>& reports, const JobGroups& groups) {
  std::vector<RoundVersion> held;
  for (const Report& report : reports) {
    for (const AreaRecord& area : report.page.areas) {
      if (area.phase == AreaPhase::kSealed) held.push_back(area.of);
    }
  }
  std::sort(held.begin(), held.end(),
            [](const RoundVersion& a, const RoundVersion& b) { return a.round > b.round; });
  RoundVersion could;  // the newest that can be rebuilt at all
  for (const RoundVersion& of : held) {
    if (!CanBeRebuilt(of.round, reports, groups)) continue;
    bool counted = false, refuted = false, given_up = false;
    for (const Report& report : reports) {
      const GroupPage& page = report.page;
      counted = counted || page.counts.round == of.round;
      given_up = given_up || (page.counts.IsNothing() && page.counts.round > of.round);
      // It would have sealed it, had all done so. A new memory does not know.
      refuted = refuted || (page.since != 0 && page.since <= of.round && !page.Holds(of.round));
    }
    if (given_up) break;  // with all that is older
    if (counted || !refuted) return of;
    if (could.round == 0) could = of;
  }
  return could;
}

GroupLeader::GroupLeader(JobGroups groups, GroupPace pace)
    : groups_(std::move(groups)), pace_(pace), reports_(MembersOf(groups_)), ahead_(pace.ahead) {}

void GroupLeader::Start(const GroupMember& self, GroupTime now) {
  const Report own = self.MakeReport();
  settled_ = own.page.settled == own.attempt;
  if (!settled_) return;
  const uint32_t area = own.page.Making();
  if (area == 2 || own.page.areas[area].phase != AreaPhase::kSealed) return;
  making_ = own.page.areas[area].of;
  go_ = true;
  deadline_ = now + pace_.limit;
}

void GroupLeader::Begin() {
  reports_.assign(reports_.size(), std::nullopt);
  settled_ = go_ = gone_ = false;
  making_ = {};
  progress_ = 0;
}

void GroupLeader::Hear(uint32_t from, const Report& report) { reports_[from] = report; }

void GroupLeader::Miss(uint32_t member) {
  // What it has sealed it has done.
  if (reports_[member] && making_.round != 0 && !reports_[member]->page.Holds(making_.round)) {
    gone_ = true;
  }
  if (settled_) reports_[member].reset();
}

bool GroupLeader::AllHeard() const {
  return std::all_of(reports_.begin(), reports_.end(),
                     [](const auto& report) { return report.has_value(); });
}

uint64_t GroupLeader::Progress() const {
  uint64_t progress = 0;
  for (const auto& report : reports_) {
    if (!report) continue;
    progress += std::min(report->staged, making_.version);
    if (report->pinned_round == making_.round) ++progress;
    if (report->page.Holds(making_.round)) ++progress;
  }
  return progress;
}

std::optional<Word> GroupLeader::word(const GroupMember& self) const {
  if (!settled_) return std::nullopt;
  const Report own = self.MakeReport();
  return Word{.attempt = own.attempt,
              .last_round = own.page.last_round,
              .counts = self.page().counts,
              .making = making_,
              .go = go_};
}

bool GroupLeader::Act(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders) {
  reports_[0] = self.MakeReport();
  bool news = false;
  if (!settled_) news = Settle(self, now, orders);
  if (!settled_) return false;
  if (making_.round != 0) news = GoOn(self, now, orders) || news;
  if (making_.round == 0) news = StartRound(self, now, orders) || news;
  reports_[0] = self.MakeReport();
  return news;
}

bool GroupLeader::Settle(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders) {
  if (!AllHeard()) return false;
  std::vector<Report> reports;
  uint64_t last_round = 0;
  for (const auto& report : reports_) {
    reports.push_back(*report);
    last_round = std::max(last_round, report->page.last_round);
  }
  settled_ = true;
  End({.attempt = reports[0].attempt,
       .last_round = last_round,
       .counts = SettledBy(reports, groups_)},
      self, now, orders);
  // They are of before: nobody may be taken for one who does not rebuild.
  reports_.assign(reports_.size(), std::nullopt);
  return true;
}

void GroupLeader::End(const Word& word, GroupMember& self, GroupTime now,
                      std::vector<GroupOrder>& orders) {
  self.Accept(word, orders);
  making_ = {};
  go_ = gone_ = false;
  next_ = now + pace_.pause;
}

bool GroupLeader::StartRound(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders) {
  if (now < next_ || !AllHeard()) return false;
  const Report own = self.MakeReport();
  const RoundVersion& counts = own.page.counts;
  uint64_t newest = 0;
  bool of_another = false;  // the ranks went on from before what counts: it is none of theirs
  for (const auto& report : reports_) {
    if (report->rebuilding || report->page.settled != report->attempt) return false;
    newest = std::max(newest, report->staged);
    of_another = of_another || (report->began && counts.attempt < report->attempt &&
                                report->went_on < counts.version);
  }
  if (newest == 0) return false;  // no ranks yet
  if (of_another) {
    const uint64_t round = own.page.last_round + 1;
    End({.attempt = own.attempt,
         .last_round = round,
         .counts = {.round = round, .attempt = own.attempt}},
        self, now, orders);
    return true;
  }
  making_ = {.round = own.page.last_round + 1, .attempt = own.attempt, .version = newest + ahead_};
  go_ = gone_ = false;
  progress_ = Progress();
  deadline_ = now + pace_.limit;
  self.Accept({.attempt = own.attempt,
               .last_round = making_.round,
               .counts = self.page().counts,
               .making = making_},
              orders);
  return true;
}

bool GroupLeader::GoOn(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders) {
  bool all_pinned = true, all_sealed = true, failed = gone_, late = false;
  for (const auto& report : reports_) {
    all_pinned = all_pinned && report && report->pinned_round == making_.round;
    all_sealed = all_sealed && report && report->page.Holds(making_.round);
    if (!report || report->failed_round != making_.round) continue;
    failed = true;
    late = late || report->late;
  }
  const Report own = self.MakeReport();
  const Word over{
      .attempt = own.attempt, .last_round = making_.round, .counts = self.page().counts};
  if (all_sealed) {
    Word commits = over;
    commits.counts = making_;
    End(commits, self, now, orders);
    return true;
  }
  if (const uint64_t progress = Progress(); progress > progress_) {
    progress_ = progress;
    deadline_ = now + pace_.limit;
  }
  if (failed || now >= deadline_) {
    if (late) ahead_ = std::min(2 * ahead_, pace_.most_ahead);
    End(over, self, now, orders);
    return true;
  }
  if (!all_pinned || go_) return false;
  go_ = true;
  self.Accept(*word(self), orders);
  return true;
}

}  // namespace trireme::checkpoint
