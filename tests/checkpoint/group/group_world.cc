#include "tests/checkpoint/group/group_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace trireme::checkpoint {
namespace {

constexpr GroupTime kLimit{1000};
constexpr const char* kKinds[] = {
    "deliver", "deliver kept", "keep",      "tick",      "time out",   "step",       "transfer",
    "break",   "agent dies",   "node lost", "ranks die", "attempt at", "rebuild at", "ranks go on"};

std::string TextOf(const RoundVersion& of) {
  return fmt::format("r{}=a{}v{}", of.round, of.attempt, of.version);
}

std::string TextOf(const GroupPage& page) {
  std::string text = fmt::format("settled {} since {} last {} counts {}", page.settled, page.since,
                                 page.last_round, TextOf(page.counts));
  for (const AreaRecord& area : page.areas) {
    text += fmt::format(" [{} {}]", "EFS"[static_cast<size_t>(area.phase)], TextOf(area.of));
  }
  return text;
}

std::string TextOf(const GroupMessage& message) {
  if (const auto* word = std::get_if<Word>(&message)) {
    return fmt::format("word a{} last {} counts {} making {}{}", word->attempt, word->last_round,
                       TextOf(word->counts), TextOf(word->making), word->go ? " go" : "");
  }
  const auto& report = std::get<Report>(message);
  return fmt::format("report a{} {} pinned {} failed {} staged {}", report.attempt,
                     TextOf(report.page), report.pinned_round, report.failed_round, report.staged);
}

}  // namespace

std::string Action::Text() const {
  return fmt::format("{} {} {} {}{}", kKinds[kind], a, b, c,
                     cut == 0 ? "" : fmt::format(", agent dies after {} orders", cut - 1));
}

GroupWorld::GroupWorld(const WorldBounds& bounds) : bounds_(bounds) {
  pace_ = {.ahead = 1, .most_ahead = 4, .limit = kLimit};
  for (uint32_t at = 0; at < MembersOf(bounds.groups); ++at) {
    nodes_.emplace_back(GroupMachine(bounds_.groups, pace_, {.member = at}, {}));
  }
  for (uint32_t at = 0; at < members(); ++at) {
    nodes_[at].slots[0] = IdOf(1, 1);
    nodes_[at].newest = 1;
    Carry(at, nodes_[at].machine.Start({}));
    Happen(at, Staged{1});
  }
  if (!bounds.from_the_beginning) FaultIf(!RunToCommit(), "no round comes to count at all");
  bounds_.rounds += nodes_[0].page.last_round;
  bounds_.versions += nodes_[0].newest;
}

bool GroupWorld::AreOfOneGroup(uint32_t a, uint32_t b) const {
  uint32_t end = 0;
  for (const GroupShape& group : bounds_.groups) {
    end += group.members;
    if (a < end || b < end) return a < end && b < end;
  }
  return false;
}

bool GroupWorld::IsTolerable(uint32_t without) const {
  uint32_t begin = 0;
  for (const GroupShape& group : bounds_.groups) {
    const uint32_t mask = ((1U << group.members) - 1) << begin;
    if (static_cast<uint32_t>(std::popcount(without & mask)) > group.parity) return false;
    begin += group.members;
  }
  return true;
}

void GroupWorld::FaultIf(bool wrong, const std::string& what) {
  if (wrong && fault_.empty()) fault_ = what;
}

std::vector<Action> GroupWorld::Possible() const {
  std::vector<Action> all;
  const auto add = [&](Action::Kind kind, size_t a = 0, size_t b = 0, size_t c = 0) {
    all.push_back({.kind = kind,
                   .a = static_cast<uint8_t>(a),
                   .b = static_cast<uint8_t>(b),
                   .c = static_cast<uint8_t>(c)});
  };
  for (size_t i = 0; i < letters_.size(); ++i) {
    add(Action::kDeliver, letters_[i].from, letters_[i].to, i);
    if (kept_.size() < bounds_.kept) add(Action::kKeep, letters_[i].from, letters_[i].to, i);
  }
  for (size_t i = 0; i < kept_.size(); ++i)
    add(Action::kDeliverKept, kept_[i].from, kept_[i].to, i);
  if (timeouts_ < bounds_.timeouts) add(Action::kTimeOut);
  if (!running_ && rank_deaths_ + losses_ > 0 && CanGoOn()) add(Action::kRanksGoOn);
  if (running_ && rank_deaths_ < bounds_.rank_deaths) add(Action::kRankDeath);
  for (uint32_t at = 0; at < members(); ++at) {
    const WorldNode& node = nodes_[at];
    add(Action::kTick, at);
    if (CanStep(at) && node.newest < bounds_.versions) add(Action::kStep, at);
    if (node.machine.attempt() < attempt_) add(Action::kAttempt, at);
    if (node.rebuilding.round != 0) add(Action::kRebuild, at);
    if (node.open.round != 0 && breaks_ < bounds_.breaks) add(Action::kBreak, at);
    if (deaths_ < bounds_.agent_deaths) add(Action::kAgentDeath, at);
    if (losses_ < bounds_.node_losses) add(Action::kNodeLoss, at);
    bool any = false;
    for (uint32_t to = 0; to < members(); ++to) {
      if (!CanTransfer(at, to)) continue;
      any = true;
      if (bounds_.one_by_one) add(Action::kTransfer, at, to);
    }
    if (any && !bounds_.one_by_one) add(Action::kTransfer, at, kMostMembers);
  }
  return all;
}

void GroupWorld::Do(const Action& action) {
  orders_ = 0;
  stored_ = false;
  cuts_.clear();
  cut_ = action.cut;
  acting_ = true;
  switch (action.kind) {
    case Action::kDeliver: {
      const Letter letter = letters_[action.c];
      Happen(letter.to, Received{letter.from, letter.message});
      break;
    }
    case Action::kDeliverKept: {
      const Letter letter = kept_[action.c];
      Happen(letter.to, Received{letter.from, letter.message});
      break;
    }
    case Action::kKeep:
      kept_.push_back(letters_[action.c]);
      break;
    case Action::kTick:
      Happen(action.a, Tick{});
      break;
    case Action::kTimeOut:
      ++timeouts_;
      Happen(0, Tick{}, kLimit);
      break;
    case Action::kStep:
      Step(action.a);
      break;
    case Action::kTransfer:
      for (uint32_t to = 0; to < members(); ++to) {
        if ((action.b == to || action.b == kMostMembers) && CanTransfer(action.a, to)) {
          Transfer(action.a, to);
        }
      }
      break;
    case Action::kBreak:
      ++breaks_;
      Happen(action.a, RoundBroken{nodes_[action.a].open.round});
      break;
    case Action::kAgentDeath:
      ++deaths_;
      DieAgent(action.a);
      break;
    case Action::kNodeLoss:
      LoseNode(action.a);
      break;
    case Action::kRankDeath:
      ++rank_deaths_;
      ++attempt_;
      running_ = false;
      break;
    case Action::kAttempt:
      Happen(action.a, AttemptBegins{attempt_});
      break;
    case Action::kRebuild:
      RebuildAt(action.a);
      break;
    case Action::kRanksGoOn:
      GoOn();
      break;
  }
  acting_ = false;
  cut_ = 0;
  Check();
}

void GroupWorld::Happen(uint32_t at, const GroupEvent& event, GroupTime now) {
  Carry(at, nodes_[at].machine.On(event, now));
}

void GroupWorld::Carry(uint32_t at, const std::vector<GroupOrder>& orders) {
  uint64_t asked = 0;  // the round whose pin is to be answered
  bool in_time = false;
  for (const GroupOrder& order : orders) {
    if (acting_) {
      ++orders_;
      // What is sent is lost without a death, too.
      if (stored_ && !std::holds_alternative<Send>(order)) {
        cuts_.push_back(static_cast<uint8_t>(orders_));
      }
      stored_ = std::holds_alternative<WritePage>(order) || std::holds_alternative<SetPin>(order) ||
                std::holds_alternative<ClearArea>(order);
      if (cut_ != 0 && orders_ == cut_) {
        cut_ = 0;
        acting_ = false;
        ++deaths_;
        DieAgent(at);
        return;
      }
    }
    CarryOne(at, order);
    if (const auto* pin = std::get_if<SetPin>(&order); pin != nullptr && pin->round != 0) {
      asked = pin->round;
      in_time = nodes_[at].newest <= pin->version;
    }
  }
  if (asked != 0) Happen(at, PinTaken{asked, in_time});
}

void GroupWorld::CarryOne(uint32_t at, const GroupOrder& order) {
  WorldNode& node = nodes_[at];
  std::visit(
      [&](const auto& of) {
        using Order = std::decay_t<decltype(of)>;
        if constexpr (std::is_same_v<Order, WritePage>) {
          node.page = of.page;
        } else if constexpr (std::is_same_v<Order, SetPin>) {
          node.pins[of.area] = of.version;
        } else if constexpr (std::is_same_v<Order, ClearArea>) {
          node.areas[of.area] = {};
        } else if constexpr (std::is_same_v<Order, OpenRound>) {
          node.open = of.of;
          node.open_area = of.area;
        } else if constexpr (std::is_same_v<Order, SendData>) {
          node.sending = of.of;
        } else if constexpr (std::is_same_v<Order, Stop>) {
          node.open = node.sending = node.rebuilding = {};
        } else if constexpr (std::is_same_v<Order, Rebuild>) {
          node.rebuilding = of.of;
        } else if constexpr (std::is_same_v<Order, Send>) {
          Post({at, of.to, of.message});
        } else {
          Tell(at, of.of);
        }
      },
      order);
}

void GroupWorld::Post(Letter letter) {
  // The window holds what is newest, each once: what falls out of it is lost.
  uint32_t count = 0;
  size_t oldest = letters_.size(), same = letters_.size();
  for (size_t i = letters_.size(); i-- > 0;) {
    if (letters_[i].from != letter.from || letters_[i].to != letter.to) continue;
    ++count;
    oldest = i;
    if (letters_[i] == letter) same = i;
  }
  if (same < letters_.size()) {
    letters_.erase(letters_.begin() + static_cast<ptrdiff_t>(same));
  } else if (count == bounds_.window) {
    letters_.erase(letters_.begin() + static_cast<ptrdiff_t>(oldest));
  }
  // In the order of the pairs, so that worlds that differ in nothing else are one.
  const auto place = std::upper_bound(letters_.begin(), letters_.end(), letter,
                                      [](const Letter& a, const Letter& b) {
                                        return std::pair(a.from, a.to) < std::pair(b.from, b.to);
                                      });
  letters_.insert(place, std::move(letter));
}

void GroupWorld::Tell(uint32_t at, const RoundVersion& counts) {
  if (counts.round == counted_.round) {
    FaultIf(counts != counted_, fmt::format("member {} is told of another {}", at, TextOf(counts)));
    return;
  }
  FaultIf(counts.round < counted_.round && IsTolerable(lost_),
          fmt::format("member {} is told that {} counts, after {}", at, TextOf(counts),
                      TextOf(counted_)));
  counted_ = counts;
  for (uint32_t member = 0; member < members(); ++member) {
    if (TrulyHolds(member, counts)) lost_ &= ~(1U << member);
  }
  if (counts.round == 0) lost_ = 0;
}

void GroupWorld::DieAgent(uint32_t at) {
  WorldNode& node = nodes_[at];
  node.open = node.sending = node.rebuilding = {};
  node.machine = GroupMachine(bounds_.groups, pace_,
                              {.member = at, .attempt = node.machine.attempt()}, node.page);
  Carry(at, node.machine.Start({}));
  if (running_ && node.machine.attempt() == attempt_) Happen(at, Staged{node.newest});
}

void GroupWorld::LoseNode(uint32_t at) {
  ++losses_;
  ++attempt_;
  running_ = false;
  from_memory_ = false;
  lost_ |= 1U << at;
  nodes_[at] =
      WorldNode(GroupMachine(bounds_.groups, pace_, {.member = at, .attempt = attempt_}, {}));
  Carry(at, nodes_[at].machine.Start({}));
}

bool GroupWorld::CanStep(uint32_t at) const {
  if (!running_) return false;
  // Who goes on to the step behind the next one knows that all have staged the next one.
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const WorldNode& other) { return other.newest >= nodes_[at].newest; });
}

void GroupWorld::Step(uint32_t at) {
  WorldNode& node = nodes_[at];
  const auto is_taken = [&](DataId id) {
    const uint64_t version = id % 64;
    return id != 0 &&
           (version == node.newest || version == node.pins[0] || version == node.pins[1]);
  };
  const auto slot = std::find_if_not(node.slots.begin(), node.slots.end(), is_taken);
  FaultIf(slot == node.slots.end(), fmt::format("rank {} has no slot for its step", at));
  if (slot == node.slots.end()) return;
  // The oldest of the free ones would do as well: whichever it takes, no other one is safe.
  ++node.newest;
  *slot = IdOf(attempt_, node.newest);
  for (DataId& other : node.slots) {
    if (&other != &*slot && !is_taken(other) && other % 64 + 1U != node.newest) other = 0;
  }
  if (node.machine.attempt() == attempt_) Happen(at, Staged{node.newest});
  SealIfWhole(at);
}

bool GroupWorld::CanTransfer(uint32_t from, uint32_t to) const {
  const RoundVersion& sent = nodes_[from].sending;
  const WorldNode& keeper = nodes_[to];
  return from != to && AreOfOneGroup(from, to) && sent.round != 0 && sent == keeper.open &&
         keeper.areas[keeper.open_area][from] == 0;
}

void GroupWorld::Transfer(uint32_t from, uint32_t to) {
  const RoundVersion& of = nodes_[from].sending;
  const auto& slots = nodes_[from].slots;
  FaultIf(std::find(slots.begin(), slots.end(), IdOf(of)) == slots.end(),
          fmt::format("member {} sends {} and has it no more", from, TextOf(of)));
  DataId& place = nodes_[to].areas[nodes_[to].open_area][from];
  FaultIf(place != 0, fmt::format("member {} adds to what it has", to));
  place = IdOf(of);
  SealIfWhole(to);
}

void GroupWorld::SealIfWhole(uint32_t at) {
  if (IsWhole(at)) Happen(at, AreaWhole{nodes_[at].open.round});
}

bool GroupWorld::IsWhole(uint32_t at) const {
  const WorldNode& node = nodes_[at];
  if (node.open.round == 0) return false;
  for (uint32_t from = 0; from < members(); ++from) {
    if (from != at && AreOfOneGroup(at, from) && node.areas[node.open_area][from] == 0) {
      return false;
    }
  }
  return std::find(node.slots.begin(), node.slots.end(), IdOf(node.open)) != node.slots.end() &&
         node.page.areas[node.open_area].phase == AreaPhase::kFilling;
}

void GroupWorld::RebuildAt(uint32_t at) {
  WorldNode& node = nodes_[at];
  const RoundVersion of = node.rebuilding;
  uint32_t lacking = 0;
  for (uint32_t member = 0; member < members(); ++member) {
    if (AreOfOneGroup(member, at) && !TrulyHolds(member, of)) lacking |= 1U << member;
  }
  if (!IsTolerable(lacking)) {
    FaultIf(counted_ == of && given_up_ < of.round && IsTolerable(lost_),
            fmt::format("member {} cannot rebuild {}", at, TextOf(of)));
    node.rebuilding = {};
    Happen(at, Rebuilt{of.round, false});
    return;
  }
  if (std::find(node.slots.begin(), node.slots.end(), IdOf(of)) == node.slots.end()) {
    *std::find(node.slots.begin(), node.slots.end(), 0) = IdOf(of);
  }
  for (uint32_t from = 0; from < members(); ++from) {
    node.areas[0][from] = from != at && AreOfOneGroup(at, from) ? IdOf(of) : DataId{0};
  }
  node.rebuilding = {};
  Happen(at, Rebuilt{of.round, true});
  if (counted_ == of && TrulyHolds(at, of)) lost_ &= ~(1U << at);
}

// An attempt is settled before its ranks begin; who lacks its data gets them first.
bool GroupWorld::CanGoOn() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const WorldNode& node) {
    return node.machine.attempt() == attempt_ && node.machine.IsReady();
  });
}

void GroupWorld::GoOn() {
  // Together: from the newest version that all have; after a loss, from what counts, or the disk.
  const RoundVersion counts = nodes_[0].page.counts;
  uint64_t version = from_memory_ ? nodes_[0].newest : counts.version;
  for (const WorldNode& node : nodes_) {
    const auto& slots = node.slots;
    if (from_memory_) {
      version = std::min(version, node.newest);
    } else if (std::find(slots.begin(), slots.end(), IdOf(counts)) == slots.end()) {
      version = 0;
    }
  }
  if (version < counted_.version) given_up_ = counted_.round;
  running_ = from_memory_ = true;
  for (WorldNode& node : nodes_) {
    node.newest = version;
    for (DataId& slot : node.slots) {
      const uint64_t held = slot % 64;
      // What is newer is of another history, pinned or not.
      const bool is_kept = held == version || held == node.pins[0] || held == node.pins[1];
      if (held > version || !is_kept) slot = 0;
    }
  }
  for (uint32_t at = 0; at < members(); ++at) {
    Happen(at, WentOn{version});
    if (version != 0) Happen(at, Staged{version});
  }
}

bool GroupWorld::TrulyHolds(uint32_t at, const RoundVersion& of) const {
  const WorldNode& node = nodes_[at];
  const uint32_t area = node.page.AreaOf(of.round);
  if (!node.page.Holds(of.round) || node.page.areas[area].of != of) return false;
  for (uint32_t from = 0; from < members(); ++from) {
    const bool counts = from != at && AreOfOneGroup(at, from);
    if (node.areas[area][from] != (counts ? IdOf(of) : DataId{0})) return false;
  }
  return node.pins[area] == of.version &&
         std::find(node.slots.begin(), node.slots.end(), IdOf(of)) != node.slots.end();
}

void GroupWorld::CheckNode(uint32_t at) {
  const WorldNode& node = nodes_[at];
  for (uint32_t area = 0; area < 2; ++area) {
    const AreaRecord& record = node.page.areas[area];
    if (record.phase == AreaPhase::kSealed && record.of.round > given_up_) {
      FaultIf(!TrulyHolds(at, record.of),
              fmt::format("area {} of member {} is sealed and not whole", area, at));
    } else if (record.phase == AreaPhase::kFilling && node.open == record.of) {
      for (const DataId id : node.areas[area]) {
        FaultIf(id != 0 && id != IdOf(record.of),
                fmt::format("area {} of member {} mixes versions", area, at));
      }
    }
  }
}

// Whoever is taken away, the newest version that was told to count is proven and can be rebuilt.
void GroupWorld::CheckLosses() {
  if (counted_.round <= given_up_ || !IsTolerable(lost_)) return;
  for (uint32_t gone = 0; gone < 1U << members(); ++gone) {
    if (!IsTolerable(gone | lost_)) continue;
    std::vector<Report> reports(members());
    for (uint32_t member = 0; member < members(); ++member) {
      if ((gone >> member & 1U) == 0) reports[member].page = nodes_[member].page;
    }
    const RoundVersion settled = SettledBy(reports, bounds_.groups);
    FaultIf(settled.round < counted_.round,
            fmt::format("without {:#b}, {} is settled on where {} counts", gone | lost_,
                        TextOf(settled), TextOf(counted_)));
    uint32_t lacking = 0;
    for (uint32_t member = 0; member < members(); ++member) {
      if ((gone >> member & 1U) != 0 || !TrulyHolds(member, settled)) lacking |= 1U << member;
    }
    FaultIf(!IsTolerable(lacking),
            fmt::format("without {:#b}, {} cannot be rebuilt", gone | lost_, TextOf(settled)));
  }
}

void GroupWorld::Check() {
  for (uint32_t at = 0; at < members(); ++at) CheckNode(at);
  CheckLosses();
}

void GroupWorld::DeliverAll() {
  for (uint32_t turn = 0; turn < 3; ++turn) {
    for (uint32_t at = 0; at < members(); ++at) Happen(at, Tick{});
    for (const Letter& letter : std::vector<Letter>(letters_)) {
      Happen(letter.to, Received{letter.from, letter.message});
    }
  }
}

bool GroupWorld::RunToCommit() {
  uint64_t newest = 0;
  for (const WorldNode& node : nodes_) newest = std::max(newest, node.page.last_round);
  for (uint32_t turn = 0; turn < 60; ++turn) {
    for (uint32_t at = 0; at < members(); ++at) Happen(at, AttemptBegins{attempt_});
    DeliverAll();
    for (uint32_t at = 0; at < members(); ++at) {
      if (nodes_[at].rebuilding.round != 0) RebuildAt(at);
    }
    if (!running_ && CanGoOn()) GoOn();
    for (uint32_t at = 0; at < members(); ++at) {
      if (CanStep(at)) Step(at);
    }
    for (const Action& action : Possible()) {
      if (action.kind == Action::kTransfer) Do(action);
    }
    DeliverAll();
    if (std::all_of(nodes_.begin(), nodes_.end(), [&](const WorldNode& node) {
          return node.page.counts.round > newest && !node.page.counts.IsNothing();
        })) {
      return fault_.empty();
    }
    if (turn % 8 == 7) Happen(0, Tick{}, kLimit);
  }
  return false;
}

std::string GroupWorld::Text() const {
  std::string text = fmt::format("attempt {}{} counted {} lost {:#b}\n", attempt_,
                                 running_ ? " running" : "", TextOf(counted_), lost_);
  for (uint32_t at = 0; at < members(); ++at) {
    const WorldNode& node = nodes_[at];
    text += fmt::format("  {}: a{} newest {} {} pins {} {} slots", at, node.machine.attempt(),
                        node.newest, TextOf(node.page), node.pins[0], node.pins[1]);
    for (const DataId slot : node.slots) text += fmt::format(" a{}v{}", slot / 64, slot % 64);
    text += fmt::format(" open {} sending {} rebuilding {}\n", TextOf(node.open),
                        TextOf(node.sending), TextOf(node.rebuilding));
  }
  for (const Letter& letter : letters_) {
    text += fmt::format("  {} to {}: {}\n", letter.from, letter.to, TextOf(letter.message));
  }
  return text;
}

}  // namespace trireme::checkpoint
