// One member of a job's parity groups (docs/adr/0027): a pure machine. Events and time come in,
// orders go out; whoever has the sockets and the memory carries them out, one after the other.
// Member 0 leads as well, always: a round needs all members, so that a stand-in could finish none.
//
// What an area of parity goes through:
//   empty --word: making r--> filling --all is there--> sealed --word: r counts--> it counts
//     ^                          |  agent died, late,     |  word: r is over           |
//     +--------------------------+--broken, attempt ended-+---- a newer one counts ----+
//
// A value without threads, to be copied, hashed and thrown away: another one made of the page on
// record goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/group/group_leader.h"
#include "checkpoint/group/group_member.h"
#include "checkpoint/group/messages.h"

namespace trireme::checkpoint {

class GroupMachine {
 public:
  struct Place {
    uint32_t member = 0;   // of MembersOf(groups)
    uint64_t attempt = 1;  // that the agent was told of last
  };
  // `page`: as on record; a new one where there is none, or where files of ranks that it speaks of
  // are not there any more, whole or in part.
  GroupMachine(const JobGroups& groups, GroupPace pace, Place place, const GroupPage& page);

  // Once, before anything else.
  std::vector<GroupOrder> Start(GroupTime now);
  // Whatever comes, at any time, in any order: what does not belong here orders nothing.
  std::vector<GroupOrder> On(const GroupEvent& event, GroupTime now);

  const GroupPage& page() const { return member_.page(); }
  uint64_t attempt() const { return place_.attempt; }
  // Whether ranks may begin here: it is settled what counts, and it is here, or cannot be.
  bool IsReady() const { return member_.IsReady(); }

  template <typename H>
  friend H AbslHashValue(H hash, const GroupMachine& of) {
    if (of.leader_) hash = H::combine(std::move(hash), *of.leader_);
    return H::combine(std::move(hash), of.place_.member, of.place_.attempt, of.member_,
                      of.told_.value_or(Report{}));
  }

 private:
  void Take(const Received& received, std::vector<GroupOrder>& orders);
  void Tell(bool again, std::vector<GroupOrder>& orders);

  uint32_t members_;
  Place place_;
  GroupMember member_;
  std::optional<GroupLeader> leader_;  // of member 0
  std::optional<Report> told_;         // to the leader
};

}  // namespace trireme::checkpoint
