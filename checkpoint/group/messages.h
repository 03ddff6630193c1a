// What members of a parity group say to each other, what is told to a member's machine, and what it
// orders (docs/adr/0027). Messages are states, not news: each is said again until it is outdated,
// so a lost one costs time, a doubled one nothing, and an old one is known by its attempt and
// round.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <variant>

#include "checkpoint/group/group_page.h"

namespace trireme::checkpoint {

// By any clock that never goes back.
using GroupTime = std::chrono::nanoseconds;

// From the leader to each member: what counts, and what is being made.
struct Word {
  uint64_t attempt = 0;
  uint64_t last_round = 0;  // begun so far: rounds up to it that are neither below are given up
  RoundVersion counts;      // or IsNothing()
  RoundVersion making;      // round 0: none is
  bool go = false;          // all have pinned it: data may be sent

  friend bool operator==(const Word&, const Word&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Word& word) {
    return H::combine(std::move(hash), word.attempt, word.last_round, word.counts, word.making,
                      word.go);
  }
};

// From a member to the leader: what it has.
struct Report {
  uint64_t attempt = 0;
  GroupPage page;             // as it is on record
  uint64_t pinned_round = 0;  // the round whose version it has pinned
  uint64_t failed_round = 0;  // the last one that came to nothing here
  bool late = false;          // because its version had passed
  bool rebuilding = false;
  bool began = false;    // the ranks of the attempt have, from this version
  uint64_t went_on = 0;  // in memory or on the disk; 0: from nothing
  uint64_t staged = 0;   // the newest version that all its ranks have staged

  friend bool operator==(const Report&, const Report&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Report& report) {
    return H::combine(std::move(hash), report.attempt, report.page, report.pinned_round,
                      report.failed_round, report.late, report.rebuilding, report.began,
                      report.went_on, report.staged);
  }
};

using GroupMessage = std::variant<Word, Report>;

// What may happen.

// The ranks of the attempts before are gone from this node. No effect unless it is a newer one.
struct AttemptBegins {
  uint64_t attempt = 0;
};
// Time has passed; at least as often as messages are to be repeated.
struct Tick {};
struct Received {
  uint32_t from = 0;
  GroupMessage message;
};
// The ranks of the attempt have begun, from this version: of memory or the disk; 0: from nothing.
// They clear the slots of later versions, pinned or not, which are of another history.
struct WentOn {
  uint64_t version = 0;
};
// All ranks of this member have staged this version.
struct Staged {
  uint64_t version = 0;
};
// The answer to SetPin of a round's version. Not `in_time`: a rank has begun the version after it
// already, so that nothing is known of its slot.
struct PinTaken {
  uint64_t round = 0;
  bool in_time = false;
};
// All that the round adds to this member's area is there, with the small things of all members; and
// its ranks have staged the version.
struct AreaWhole {
  uint64_t round = 0;
};
// Something of the round is wrong here: a piece, a slot, the memory.
struct RoundBroken {
  uint64_t round = 0;
};
// The answer to Rebuild.
struct Rebuilt {
  uint64_t round = 0;
  bool whole = false;  // data and parity are there as they were
};
// A hint: nothing is heard of it. What it still has to do for a round is not waited for.
struct PeerGone {
  uint32_t member = 0;
};
using GroupEvent = std::variant<AttemptBegins, Tick, Received, WentOn, Staged, PinTaken, AreaWhole,
                                RoundBroken, Rebuilt, PeerGone>;

// What is to be done, each when the one before it is done. Who dies between two of them begins with
// GroupMachine::Start again.

// StoreGroupPage.
struct WritePage {
  GroupPage page;
};
// Pin word `area` of the files of all ranks of this member: the version whose parity is in that
// area, 0 for none. That of a round that begins (`round` is not 0) is answered by PinTaken.
struct SetPin {
  uint32_t area = 0;
  uint64_t version = 0;
  uint64_t round = 0;
};
// Zeros.
struct ClearArea {
  uint32_t area = 0;
};
// What other members send of this round is added to the area, each piece once; until Stop.
struct OpenRound {
  RoundVersion of;
  uint32_t area = 0;
};
// This member's data go to those who keep their parity, and its small things to all; pieces that
// they have are not sent again. Until Stop.
struct SendData {
  RoundVersion of;
};
// Nothing more is added, sent or rebuilt. In force when the next order is carried out.
struct Stop {};
// This member's files and its area are made again from any n - m others that hold the round.
// Answered by Rebuilt, unless Stop comes before.
struct Rebuild {
  RoundVersion of;
  uint32_t area = 0;
};
struct Send {
  uint32_t to = 0;
  GroupMessage message;
};
// To be told: from here on this version outlives any m members of each group; or nothing does.
struct Counts {
  RoundVersion of;
};
using GroupOrder =
    std::variant<WritePage, SetPin, ClearArea, OpenRound, SendData, Stop, Rebuild, Send, Counts>;

}  // namespace trireme::checkpoint
