// Waits make chains (rank 0 waits for 1, which waits for 3); who stands at the end of one and does
// not wait holds up all before him.
#include "coordinator/reconciler/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/monotonic.h"

namespace trireme::coordinator {
namespace {

using base::kNsPerMs;

constexpr size_t kRanksShown = 8;
constexpr int64_t kNobody = -1;
// Years; whatever an agent says, times can be reckoned with.
constexpr uint64_t kMostMs = 100'000'000'000;

int64_t Ms(uint64_t ms) { return static_cast<int64_t>(std::min(ms, kMostMs)); }

// "; ranks 0, 1 wait for it", or nothing.
std::string WaitingText(const std::vector<uint32_t>& waiting) {
  if (waiting.empty()) return "";
  std::string who = waiting.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < waiting.size() && i < kRanksShown; ++i) {
    who += fmt::format("{}{}", i == 0 ? " " : ", ", waiting[i]);
  }
  if (waiting.size() > kRanksShown)
    who += fmt::format(" and {} more", waiting.size() - kRanksShown);
  return fmt::format("; {} {} for it", who, waiting.size() == 1 ? "waits" : "wait");
}

std::string HowText(const v1::RankReport& rank, int64_t blocking_ms) {
  if (rank.life() == v1::RANK_DEAD) return "is dead";
  if (rank.life() == v1::RANK_STOPPED) return "is stopped (SIGSTOP, or a debugger)";
  return fmt::format("has not moved for {} s", blocking_ms / 1000);
}

}  // namespace

void StallWatch::HearRank(Rank& rank, const v1::RankReport& report, int64_t now_unix_ns) {
  const v1::RankReport& before = rank.report;
  const bool waits = report.waiting_ms() > 0;
  const bool moved = report.step() != before.step() || report.position() != before.position() ||
                     report.still_ms() < before.still_ms() || (waits && !rank.waits());
  if (moved) {
    longest_ms_ = std::max(longest_ms_, rank.peak_ms);
    rank.peak_ms = 0;
  }
  const bool was_alive = rank.alive();
  rank.report = report;
  rank.heard_unix_ns = now_unix_ns;
  if (!rank.alive()) {
    rank.alive_unix_ns = 0;
    rank.peak_ms = 0;
  } else if (!was_alive) {
    rank.alive_unix_ns = now_unix_ns;
  }
  if (rank.told_unix_ns != 0 && rank.told_life == v1::RANK_LIFE_UNSPECIFIED) {
    rank.told_life = report.life();
    death_told_ = death_told_ || report.life() == v1::RANK_DEAD;
  }
}

void StallWatch::Hear(const std::string& node, const v1::AttemptReport& report,
                      int64_t now_unix_ns) {
  for (const v1::RankReport& of_rank : report.ranks()) {
    if (report.phase() == v1::ATTEMPT_ENDED) {
      ranks_.erase(of_rank.rank());
      continue;
    }
    Rank& rank = ranks_[of_rank.rank()];
    rank.node = node;
    HearRank(rank, of_rank, now_unix_ns);
  }
  FindWhoWaits();
}

// The one that does not wait; nullopt: several, or none.
std::optional<uint32_t> StallWatch::OnlyOneAtWork() const {
  std::optional<uint32_t> only;
  for (const auto& [number, rank] : ranks_) {
    if (rank.waits()) continue;
    if (only) return std::nullopt;
    only = number;
  }
  return only;
}

// The rank at the end of the chain of waits that begins with `rank`, which waits.
std::optional<uint32_t> StallWatch::HeldUpBy(uint32_t rank) const {
  uint32_t at = rank;
  for (size_t hops = 0; hops <= ranks_.size(); ++hops) {
    const auto found = ranks_.find(at);
    if (found == ranks_.end()) return std::nullopt;
    if (!found->second.waits()) return at;
    const int32_t peer = found->second.report.peer();
    if (peer < 0) return OnlyOneAtWork();
    at = static_cast<uint32_t>(peer);
  }
  return std::nullopt;  // a circle
}

void StallWatch::FindWhoWaits() {
  std::map<uint32_t, int64_t> held_ms;
  for (auto& [number, rank] : ranks_) rank.waiting.clear();
  for (const auto& [number, rank] : ranks_) {
    const auto by = rank.alive() && rank.waits() ? HeldUpBy(number) : std::nullopt;
    if (!by) continue;
    ranks_.at(*by).waiting.push_back(number);
    // Who waits for somebody between has waited for him before.
    const bool direct = rank.report.peer() < 0 || rank.report.peer() == static_cast<int32_t>(*by);
    if (!direct) continue;
    int64_t& held = held_ms[*by];
    held = std::max(held, Ms(rank.report.waiting_ms()));
  }
  for (auto& [number, rank] : ranks_) {
    const auto held = held_ms.find(number);
    rank.blocking_ms = 0;
    if (held == held_ms.end() || !rank.alive()) continue;
    // Before its first instruction nothing is known of it, and a stop is no stillness of its own.
    const int64_t alive_ms = (rank.heard_unix_ns - rank.alive_unix_ns) / kNsPerMs;
    rank.blocking_ms = std::min({held->second, Ms(rank.report.still_ms()), alive_ms});
    rank.peak_ms = std::max(rank.peak_ms, rank.blocking_ms);
  }
}

// Some rank is dead, or has failed and said so: the others' waits will end.
bool StallWatch::Ending() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    const v1::RankReport& rank = entry.second.report;
    return rank.life() == v1::RANK_DEAD || !rank.failure().empty();
  });
}

// Nobody also where several are dead at once: the failure of the attempt will name the first.
int64_t StallWatch::FirstDeath() const {
  int64_t first = kNobody;
  if (death_told_) return first;
  for (const auto& [number, rank] : ranks_) {
    if (rank.report.life() != v1::RANK_DEAD || !rank.report.failure().empty()) continue;
    if (first != kNobody) return kNobody;
    first = number;
  }
  return first;
}

bool StallWatch::Stalls(const Rank& rank) const {
  int64_t limit_ms = std::max<int64_t>(policy_.least.count(), policy_.times_longest * longest_ms_);
  if (rank.report.timing().step() == 0) {
    limit_ms = std::max<int64_t>(limit_ms, policy_.before_first_step.count());
  }
  return rank.blocking_ms >= limit_ms;
}

// It lives, and has moved since it was told of, or it is others that it waits for.
bool StallWatch::GoesOn(const Rank& rank) const {
  if (!rank.alive()) return false;
  const int64_t still_ns = Ms(rank.report.still_ms()) * kNsPerMs;
  return rank.waits() || rank.heard_unix_ns - still_ns > rank.told_unix_ns;
}

std::vector<v1::RankStalled> StallWatch::News(bool deaths_are_meant) const {
  std::vector<v1::RankStalled> news;
  const bool ending = Ending();
  const int64_t death = deaths_are_meant ? kNobody : FirstDeath();
  for (const auto& [number, rank] : ranks_) {
    const bool told = rank.told_unix_ns != 0;
    const bool over = told && GoesOn(rank);
    const bool still =
        death == number ||
        (!told && (rank.report.life() == v1::RANK_STOPPED || (!ending && Stalls(rank))));
    if (!over && !still) continue;
    v1::RankStalled& one = news.emplace_back();
    one.set_rank(number);
    one.set_node(rank.node);
    one.set_over(over);
    if (over) {
      one.set_text(fmt::format("rank {} on node {} goes on", number, rank.node));
      continue;
    }
    const std::string& position = rank.report.position();
    one.set_text(fmt::format("rank {} on node {} {} at step {}{}{}{}", number, rank.node,
                             HowText(rank.report, rank.blocking_ms), rank.report.step(),
                             position.empty() ? "" : ", ", position, WaitingText(rank.waiting)));
  }
  return news;
}

void StallWatch::Told(const v1::RankStalled& news, int64_t at_unix_ns) {
  Rank& rank = ranks_[news.rank()];
  rank.node = news.node();
  rank.told_unix_ns = news.over() ? 0 : at_unix_ns;
  // Unspecified for a rank of which nothing has been heard yet.
  rank.told_life = rank.report.life();
  death_told_ = death_told_ || (!news.over() && rank.told_life == v1::RANK_DEAD);
}

}  // namespace trireme::coordinator
