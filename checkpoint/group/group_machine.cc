#include "checkpoint/group/group_machine.h"

namespace trireme::checkpoint {

GroupMachine::GroupMachine(const JobGroups& groups, GroupPace pace, Place place,
                           const GroupPage& page)
    : members_(MembersOf(groups)), place_(place), member_(page, place.attempt) {
  if (place.member == 0) leader_.emplace(groups, pace);
}

std::vector<GroupOrder> GroupMachine::Start(GroupTime now) {
  std::vector<GroupOrder> orders;
  member_.Start(orders);
  bool news = false;
  if (leader_) {
    leader_->Start(member_, now);
    if (const std::optional<Word> word = leader_->word(member_)) member_.Accept(*word, orders);
    news = leader_->Act(member_, now, orders);
  }
  Tell(news, orders);
  return orders;
}

std::vector<GroupOrder> GroupMachine::On(const GroupEvent& event, GroupTime now) {
  std::vector<GroupOrder> orders;
  if (const auto* begins = std::get_if<AttemptBegins>(&event)) {
    if (begins->attempt <= place_.attempt) return {};
    place_.attempt = begins->attempt;
    member_.Begin(*begins, orders);
    if (leader_) leader_->Begin();
  } else if (const auto* received = std::get_if<Received>(&event)) {
    Take(*received, orders);
  } else if (const auto* gone = std::get_if<PeerGone>(&event)) {
    if (leader_ && gone->member != 0 && gone->member < members_) leader_->Miss(gone->member);
  } else {
    member_.On(event, orders);
  }
  const bool news = leader_ && leader_->Act(member_, now, orders);
  Tell(news || std::holds_alternative<Tick>(event), orders);
  return orders;
}

void GroupMachine::Take(const Received& received, std::vector<GroupOrder>& orders) {
  if (received.from >= members_ || received.from == place_.member) return;
  if (const auto* word = std::get_if<Word>(&received.message)) {
    if (received.from == 0) member_.Accept(*word, orders);
    return;
  }
  const auto& report = std::get<Report>(received.message);
  if (leader_ && report.attempt == place_.attempt) leader_->Hear(received.from, report);
}

void GroupMachine::Tell(bool again, std::vector<GroupOrder>& orders) {
  if (leader_) {
    const std::optional<Word> word = leader_->word(member_);
    if (!again || !word) return;
    for (uint32_t to = 1; to < members_; ++to) orders.emplace_back(Send{to, *word});
    return;
  }
  const Report report = member_.MakeReport();
  Report known = told_.value_or(Report{});
  known.staged = report.staged;  // each step: no news
  if (!again && known == report) return;
  told_ = report;
  orders.emplace_back(Send{0, report});
}

}  // namespace trireme::checkpoint
