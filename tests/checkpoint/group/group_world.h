// A small world for the machines of a parity group: ranks that step, memory as sets of what was put
// there, messages that come late, twice, in any order or never, agents and nodes that die. Versions
// are numbers, data is (attempt, version), parity is who has contributed what.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/group/group_machine.h"

namespace trireme::checkpoint {

inline constexpr uint32_t kMostMembers = 4;

// What is in a slot, or counts in an area: attempt * 64 + version; 0: nothing.
using DataId = uint16_t;
inline DataId IdOf(uint64_t attempt, uint64_t version) {
  return static_cast<DataId>(attempt * 64 + version);
}
inline DataId IdOf(const RoundVersion& of) { return IdOf(of.attempt, of.version); }

// How much may go wrong, and how far it goes.
struct WorldBounds {
  JobGroups groups{{.members = 3, .parity = 1}};
  // From the beginning, or from where a round counts everywhere: so many versions and rounds more.
  bool from_the_beginning = true;
  uint64_t versions = 2, rounds = 2;
  uint32_t window = 1;        // messages of a pair that may still come: the newest ones
  uint32_t kept = 0;          // and of any that may come for ever
  uint32_t agent_deaths = 0;  // with an order half done, or between events
  uint32_t node_losses = 0;
  uint32_t rank_deaths = 0;  // of all ranks, memory and agents left
  uint32_t breaks = 0;       // rounds that are said to be broken at a member
  uint32_t timeouts = 0;
  bool one_by_one = false;  // data comes to each keeper of parity at a time of its own
};

struct Action {
  enum Kind : uint8_t {
    kDeliver,      // message `c` of a to b
    kDeliverKept,  // kept message c
    kKeep,         // message c of a to b is kept
    kTick,
    kTimeOut,
    kStep,      // rank a stages its next version
    kTransfer,  // a's data for the parity of b, or (b == kMostMembers) of all who take it
    kBreak,
    kAgentDeath,
    kNodeLoss,
    kRankDeath,
    kAttempt,  // a hears of the newest attempt
    kRebuild,
    kRanksGoOn,
  };
  Kind kind = kTick;
  uint8_t a = 0, b = 0, c = 0;
  uint8_t cut = 0;  // that agent dies after so many orders, less one; 0: it does not

  std::string Text() const;
};

// A member: what its node has, what its agent knows, and what outside the machine goes on.
struct WorldNode {
  explicit WorldNode(GroupMachine of) : machine(std::move(of)) {}

  GroupMachine machine;
  GroupPage page;
  std::array<DataId, 4> slots{};
  std::array<uint64_t, 2> pins{};
  std::array<std::array<DataId, kMostMembers>, 2> areas{};  // by contributing member
  uint64_t newest = 0;  // the newest staged version; 0: no ranks
  // The agent's.
  RoundVersion open, sending, rebuilding;
  uint32_t open_area = 0;

  template <typename H>
  friend H AbslHashValue(H hash, const WorldNode& of) {
    return H::combine(std::move(hash), of.machine, of.page, of.slots, of.pins, of.areas, of.newest,
                      of.open, of.sending, of.rebuilding, of.open_area);
  }
};

struct Letter {
  uint32_t from = 0, to = 0;
  GroupMessage message;

  friend bool operator==(const Letter&, const Letter&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Letter& of) {
    return std::visit(
        [&](const auto& message) { return H::combine(std::move(hash), of.from, of.to, message); },
        of.message);
  }
};

class GroupWorld {
 public:
  // The machines have started, and the ranks have staged a version.
  explicit GroupWorld(const WorldBounds& bounds);

  std::vector<Action> Possible() const;
  // What follows.
  void Do(const Action& action);
  // Between which of its orders the agent of the last Do might have died with another outcome than
  // by a death before or after them all: values of Action::cut.
  const std::vector<uint8_t>& cuts() const { return cuts_; }
  // Empty: all that is promised holds.
  const std::string& Fault() const { return fault_; }
  void Check();
  // Without a further fault, until a round that is newer than all so far counts everywhere. False:
  // none comes to that.
  bool RunToCommit();
  bool CanDie() const { return deaths_ < bounds_.agent_deaths; }
  // Highest round that was told to count.
  uint64_t counted_round() const { return counted_.round; }
  bool IsFarEnough() const { return nodes_[0].page.last_round > bounds_.rounds; }
  const std::vector<WorldNode>& nodes() const { return nodes_; }
  std::string Text() const;

  template <typename H>
  friend H AbslHashValue(H hash, const GroupWorld& of) {
    return H::combine(std::move(hash), of.nodes_, of.letters_, of.kept_, of.attempt_, of.running_,
                      of.from_memory_, of.given_up_, of.counted_, of.lost_, of.deaths_, of.losses_,
                      of.rank_deaths_, of.breaks_, of.timeouts_);
  }

 private:
  void DeliverAll();
  void Happen(uint32_t at, const GroupEvent& event, GroupTime now = {});
  // The orders of a machine, up to the death of its agent.
  void Carry(uint32_t at, const std::vector<GroupOrder>& orders);
  void CarryOne(uint32_t at, const GroupOrder& order);
  void Post(Letter letter);
  void Tell(uint32_t at, const RoundVersion& counts);
  void DieAgent(uint32_t at);
  void LoseNode(uint32_t at);
  void Step(uint32_t at);
  bool CanTransfer(uint32_t from, uint32_t to) const;
  void Transfer(uint32_t from, uint32_t to);
  void SealIfWhole(uint32_t at);
  void RebuildAt(uint32_t at);
  bool CanGoOn() const;
  void GoOn();
  bool CanStep(uint32_t at) const;
  bool IsWhole(uint32_t at) const;
  // Whether member `at` can do its part in rebuilding it, by what is in its memory.
  bool TrulyHolds(uint32_t at, const RoundVersion& of) const;
  void CheckNode(uint32_t at);
  void CheckLosses();
  void FaultIf(bool wrong, const std::string& what);
  uint32_t members() const { return static_cast<uint32_t>(nodes_.size()); }
  bool AreOfOneGroup(uint32_t a, uint32_t b) const;
  // Whether no group lacks more of these members than it has parity.
  bool IsTolerable(uint32_t without) const;

  WorldBounds bounds_;
  GroupPace pace_;
  std::vector<WorldNode> nodes_;
  std::vector<Letter> letters_, kept_;
  uint64_t attempt_ = 1;
  bool running_ = true;      // ranks of attempt_
  bool from_memory_ = true;  // nothing was lost: they go on from their newest version
  uint64_t given_up_ = 0;    // the ranks went on from before what counted up to this round
  RoundVersion counted_;     // the newest that was told to count
  uint32_t lost_ = 0;        // members, as bits, that have lost counted_
  uint32_t deaths_ = 0, losses_ = 0, rank_deaths_ = 0, breaks_ = 0, timeouts_ = 0;
  // Of the last Do alone.
  uint32_t orders_ = 0, cut_ = 0;
  bool stored_ = false;  // the order before it changed memory
  std::vector<uint8_t> cuts_;
  bool acting_ = false;
  std::string fault_;
};

}  // namespace trireme::checkpoint
