#include "runtime/report/stalled_ranks.h"

namespace trireme::report {

void StalledRanks::Take(const v1::Event& event) {
  if (!event.has_stalled() || event.attempt() < attempt_) return;
  if (event.attempt() > attempt_) stalled_.clear();
  attempt_ = event.attempt();
  stalled_.erase(event.stalled().rank());
  if (!event.stalled().over()) stalled_[event.stalled().rank()] = event.stalled().text();
}

std::vector<std::string> StalledRanks::Of(uint32_t attempt) const {
  std::vector<std::string> texts;
  if (attempt != attempt_) return texts;
  for (const auto& [rank, text] : stalled_) texts.push_back(text);
  return texts;
}

std::vector<std::string> StalledRanksOf(const v1::Job& job, const std::vector<v1::Event>& events) {
  StalledRanks stalled;
  for (const v1::Event& event : events) stalled.Take(event);
  return stalled.Of(job.status().attempt());
}

}  // namespace trireme::report
