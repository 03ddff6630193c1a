// The record is always written before anybody is told of what it says, and a version is let go of
// only when the record that counts no more on it is written.
#include "checkpoint/group/group_member.h"

#include <algorithm>

namespace trireme::checkpoint {
namespace {

constexpr uint32_t kNone = 2;

}  // namespace

uint32_t GroupMember::Filling(uint64_t round) const {
  const uint32_t area = page_.AreaOf(round);
  return area != kNone && page_.areas[area].phase == AreaPhase::kFilling ? area : kNone;
}

Report GroupMember::MakeReport() const {
  return {.attempt = attempt_,
          .page = page_,
          .pinned_round = pinned_round_,
          .failed_round = failed_round_,
          .late = late_,
          .rebuilding = rebuilding_.round != 0,
          .began = began_,
          .went_on = went_on_,
          .staged = staged_};
}

bool GroupMember::IsReady() const {
  const RoundVersion& counts = page_.counts;
  return page_.settled == attempt_ &&
         (counts.IsNothing() || page_.Holds(counts.round) || rebuild_failed_ == counts.round);
}

void GroupMember::Start(std::vector<GroupOrder>& orders) {
  // Which pieces an area has that was filling was known to the agent that died.
  if (const uint32_t area = page_.Making(); area != kNone) {
    const AreaRecord making = page_.areas[area];
    if (making.phase == AreaPhase::kFilling) {
      Fail(making.of.round, false);
      page_.areas[area] = {};
      orders.emplace_back(WritePage{page_});
    }
  }
  // It may have died between a page and its pins.
  for (uint32_t area = 0; area < 2; ++area) {
    orders.emplace_back(SetPin{.area = area, .version = page_.areas[area].of.version});
  }
}

void GroupMember::Begin(AttemptBegins event, std::vector<GroupOrder>& orders) {
  attempt_ = event.attempt;
  const uint32_t area = page_.Making();
  if (area != kNone && page_.areas[area].phase == AreaPhase::kFilling) {
    Drop(area, orders);
  } else {
    // What is sealed may count: the leader's first word in this attempt says so.
    Forget(orders);
  }
  pinned_round_ = failed_round_ = 0;
  late_ = false;
  began_ = false;
  went_on_ = staged_ = 0;
  rebuild_failed_ = 0;
}

void GroupMember::Accept(const Word& word, std::vector<GroupOrder>& orders) {
  if (word.attempt != attempt_) return;
  const bool first = page_.settled != attempt_;
  if (!first && word.last_round < page_.last_round) return;  // of before what is known already
  if (first || word.counts.round > page_.counts.round) Count(word, orders);
  if (const uint32_t area = page_.Making(); area != kNone) {
    const uint64_t round = page_.areas[area].of.round;
    if (round <= word.last_round && round != word.making.round) Drop(area, orders);
  }
  const bool lacks = !page_.counts.IsNothing() && !page_.Holds(page_.counts.round);
  if (lacks && page_.Making() == kNone && rebuilding_.round == 0 &&
      rebuild_failed_ != page_.counts.round) {
    StartRebuild(page_.counts, orders);
  }
  if (word.making.round > page_.last_round) StartRound(word.making, orders);
  if (word.last_round > page_.last_round) {
    page_.last_round = word.last_round;
    orders.emplace_back(WritePage{page_});
  }
  const uint32_t area = page_.Making();
  if (word.go && area != kNone && page_.areas[area].of.round == word.making.round) go_ = true;
  SendIfDue(orders);
}

void GroupMember::Count(const Word& word, std::vector<GroupOrder>& orders) {
  const GroupPage was = page_;
  page_.settled = attempt_;
  if (page_.since == 0) {
    page_.since = word.making.round != 0 ? word.making.round : word.last_round + 1;
    page_.last_round = page_.since - 1;
  }
  page_.counts = word.counts;
  // The first word of an attempt has judged all that there is; a later one that says more counts
  // comes when all have sealed it. Either way nothing else is of use any more.
  for (AreaRecord& area : page_.areas) {
    if (area.phase != AreaPhase::kSealed || area.of.round != word.counts.round) area = {};
  }
  orders.emplace_back(WritePage{page_});
  Forget(orders);
  for (uint32_t area = 0; area < 2; ++area) {
    if (was.areas[area] != page_.areas[area]) orders.emplace_back(SetPin{.area = area});
  }
  orders.emplace_back(Counts{page_.counts});
}

void GroupMember::StartRound(const RoundVersion& round, std::vector<GroupOrder>& orders) {
  page_.last_round = round.round;
  if (rebuilding_.round != 0) {  // the leader begins none while it knows
    Fail(round.round, false);
    orders.emplace_back(WritePage{page_});
    return;
  }
  const uint32_t area = page_.areas[0].of.round != 0 ? 1 : 0;  // that which counts stays
  page_.areas[area] = {.phase = AreaPhase::kFilling, .of = round};
  go_ = sending_ = false;
  orders.emplace_back(WritePage{page_});
  orders.emplace_back(ClearArea{area});
  orders.emplace_back(OpenRound{.of = round, .area = area});
  orders.emplace_back(SetPin{.area = area, .version = round.version, .round = round.round});
}

void GroupMember::StartRebuild(const RoundVersion& of, std::vector<GroupOrder>& orders) {
  rebuilding_ = of;
  // Both are empty; the record says so until all is there.
  orders.emplace_back(SetPin{.area = 0, .version = of.version});
  orders.emplace_back(ClearArea{0});
  orders.emplace_back(Rebuild{.of = of, .area = 0});
}

void GroupMember::SendIfDue(std::vector<GroupOrder>& orders) {
  const uint32_t area = page_.Making();
  if (area == kNone || !go_ || sending_) return;
  const AreaRecord& made = page_.areas[area];
  // Sealed means staged. An agent that comes back does not know what it had sent: all again.
  if (made.phase == AreaPhase::kFilling && staged_ < made.of.version) return;
  sending_ = true;
  orders.emplace_back(SendData{made.of});
}

void GroupMember::Forget(std::vector<GroupOrder>& orders) {
  const bool was_rebuilding = std::exchange(rebuilding_, {}).round != 0;
  orders.emplace_back(Stop{});
  if (was_rebuilding) orders.emplace_back(SetPin{.area = 0});
  go_ = sending_ = false;
}

void GroupMember::Drop(uint32_t area, std::vector<GroupOrder>& orders) {
  Forget(orders);
  page_.areas[area] = {};
  orders.emplace_back(WritePage{page_});
  orders.emplace_back(SetPin{.area = area});
}

void GroupMember::Fail(uint64_t round, bool late) {
  failed_round_ = round;
  late_ = late;
}

void GroupMember::On(const GroupEvent& event, std::vector<GroupOrder>& orders) {
  if (const auto* went_on = std::get_if<WentOn>(&event)) return Take(*went_on);
  if (const auto* staged = std::get_if<Staged>(&event)) return Take(*staged, orders);
  if (const auto* pin = std::get_if<PinTaken>(&event)) return Take(*pin, orders);
  if (const auto* whole = std::get_if<AreaWhole>(&event)) return Take(*whole, orders);
  if (const auto* broken = std::get_if<RoundBroken>(&event)) return Take(*broken, orders);
  if (const auto* rebuilt = std::get_if<Rebuilt>(&event)) return Take(*rebuilt, orders);
}

void GroupMember::Take(WentOn event) {
  began_ = true;
  went_on_ = event.version;
}

void GroupMember::Take(Staged event, std::vector<GroupOrder>& orders) {
  staged_ = std::max(staged_, event.version);
  SendIfDue(orders);
}

void GroupMember::Take(PinTaken event, std::vector<GroupOrder>& orders) {
  const uint32_t area = Filling(event.round);
  if (area == kNone) return;
  if (event.in_time) {
    pinned_round_ = event.round;
    return;
  }
  Fail(event.round, true);
  Drop(area, orders);
}

void GroupMember::Take(AreaWhole event, std::vector<GroupOrder>& orders) {
  const uint32_t area = Filling(event.round);
  if (area == kNone) return;
  page_.areas[area].phase = AreaPhase::kSealed;
  orders.emplace_back(WritePage{page_});
}

void GroupMember::Take(RoundBroken event, std::vector<GroupOrder>& orders) {
  const uint32_t area = Filling(event.round);
  if (area == kNone) return;
  Fail(event.round, false);
  Drop(area, orders);
}

void GroupMember::Take(Rebuilt event, std::vector<GroupOrder>& orders) {
  if (rebuilding_.round == 0 || rebuilding_.round != event.round) return;
  if (!event.whole) {
    rebuild_failed_ = event.round;
    Forget(orders);
    return;
  }
  page_.areas[0] = {.phase = AreaPhase::kSealed, .of = std::exchange(rebuilding_, {})};
  orders.emplace_back(WritePage{page_});
}

}  // namespace trireme::checkpoint
