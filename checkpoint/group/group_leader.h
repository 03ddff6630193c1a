// What member 0 does beside its part as a member: it settles what counts when an attempt begins,
// and leads rounds. Part of GroupMachine.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/group/group_member.h"
#include "checkpoint/group/messages.h"

namespace trireme::checkpoint {

struct GroupShape {
  uint32_t members = 2;
  uint32_t parity = 1;  // below `members`: so many may be lost
};
// All groups of a job, whose members are numbered one group after the other. They make their parity
// of one version: ranks go on from the same one, so that of what the groups have only that is of
// use which all have.
using JobGroups = std::vector<GroupShape>;
uint32_t MembersOf(const JobGroups& groups);

struct GroupPace {
  uint64_t ahead = 4;               // versions between the newest staged one and a round's
  uint64_t most_ahead = 1024;       // it doubles to with each round that was late
  GroupTime pause{};                // between the end of a round and the next
  GroupTime limit{30'000'000'000};  // a round that has not moved for so long is given up
};

// What counts by the reports of all members in an attempt in which none has heard a word yet; round
// 0: nothing does. So the newest round that might have been told to count, for all groups can
// rebuild it and no memory of that time lacks it; else the newest that they can rebuild.
RoundVersion SettledBy(const std::vector<Report>& reports, const JobGroups& groups);

class GroupLeader {
 public:
  GroupLeader(JobGroups groups, GroupPace pace);

  // `self`: member 0. The round that it had sealed goes on.
  void Start(const GroupMember& self, GroupTime now);
  void Begin();  // an attempt
  void Hear(uint32_t from, const Report& report);
  void Miss(uint32_t member);
  // Whatever is due. True: there is news for the others.
  bool Act(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders);
  // None until it is settled what counts.
  std::optional<Word> word(const GroupMember& self) const;

  template <typename H>
  friend H AbslHashValue(H hash, const GroupLeader& of) {
    for (const std::optional<Report>& report : of.reports_) {
      hash = H::combine(std::move(hash), report.has_value(), report.value_or(Report{}));
    }
    return H::combine(std::move(hash), of.settled_, of.making_, of.go_, of.gone_, of.progress_,
                      of.ahead_, of.deadline_.count(), of.next_.count());
  }

 private:
  bool Settle(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders);
  bool StartRound(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders);
  bool GoOn(GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders);
  void End(const Word& word, GroupMember& self, GroupTime now, std::vector<GroupOrder>& orders);
  bool AllHeard() const;
  // Of the steps that all members make in this round: how many they have made.
  uint64_t Progress() const;

  JobGroups groups_;
  GroupPace pace_;
  bool settled_ = false;
  std::vector<std::optional<Report>> reports_;  // of this attempt, by member
  RoundVersion making_;                         // round 0: none
  bool go_ = false, gone_ = false;
  uint64_t progress_ = 0;
  uint64_t ahead_;
  GroupTime deadline_{}, next_{};
};

}  // namespace trireme::checkpoint
