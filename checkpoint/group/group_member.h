// What a member of a parity group does by the leader's word. Part of GroupMachine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "checkpoint/group/messages.h"

namespace trireme::checkpoint {

class GroupMember {
 public:
  GroupMember(const GroupPage& page, uint64_t attempt) : attempt_(attempt), page_(page) {}

  // Orders are appended to `orders` by all of these.
  void Start(std::vector<GroupOrder>& orders);
  void Begin(AttemptBegins event, std::vector<GroupOrder>& orders);
  void Accept(const Word& word, std::vector<GroupOrder>& orders);
  // Events that are none of a member's order nothing.
  void On(const GroupEvent& event, std::vector<GroupOrder>& orders);

  Report MakeReport() const;
  bool IsReady() const;
  const GroupPage& page() const { return page_; }

  friend bool operator==(const GroupMember&, const GroupMember&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const GroupMember& of) {
    return H::combine(std::move(hash), of.attempt_, of.page_, of.pinned_round_, of.failed_round_,
                      of.late_, of.began_, of.went_on_, of.staged_, of.go_, of.sending_,
                      of.rebuilding_, of.rebuild_failed_);
  }

 private:
  void Take(WentOn event);
  void Take(Staged event, std::vector<GroupOrder>& orders);
  void Take(PinTaken event, std::vector<GroupOrder>& orders);
  void Take(AreaWhole event, std::vector<GroupOrder>& orders);
  void Take(RoundBroken event, std::vector<GroupOrder>& orders);
  void Take(Rebuilt event, std::vector<GroupOrder>& orders);

  // The area that fills with `round`; none: two.
  uint32_t Filling(uint64_t round) const;
  void Count(const Word& word, std::vector<GroupOrder>& orders);
  void StartRound(const RoundVersion& round, std::vector<GroupOrder>& orders);
  void StartRebuild(const RoundVersion& of, std::vector<GroupOrder>& orders);
  void SendIfDue(std::vector<GroupOrder>& orders);
  // Nothing of the round that is being made, or rebuilt, goes on. The page is written by the
  // caller.
  void Forget(std::vector<GroupOrder>& orders);
  void Drop(uint32_t area, std::vector<GroupOrder>& orders);
  void Fail(uint64_t round, bool late);

  uint64_t attempt_;
  GroupPage page_;  // as on record
  // Lost with the agent.
  uint64_t pinned_round_ = 0, failed_round_ = 0;
  bool late_ = false;
  bool began_ = false;
  uint64_t went_on_ = 0, staged_ = 0;
  bool go_ = false;          // for the round that is being made
  bool sending_ = false;     // likewise
  RoundVersion rebuilding_;  // round 0: nothing is
  uint64_t rebuild_failed_ = 0;
};

}  // namespace trireme::checkpoint
