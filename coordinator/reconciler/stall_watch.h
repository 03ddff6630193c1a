// StallWatch: which ranks of an attempt hold the others up, by the reports of all its nodes. A rank
// is stalled if others wait for it while it neither waits nor moves, longer than can be ordinary
// for this attempt. Pure: callers pass the time, and commit what it tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/v1/agent.pb.h"
#include "trireme/v1/event.pb.h"

namespace trireme::coordinator {

struct StallPolicy {
  // A stall is told after the longest of these.
  std::chrono::milliseconds least{10000};
  std::chrono::milliseconds before_first_step{60000};  // of a rank that has done no whole step yet
  int64_t times_longest = 4;  // of the longest stillness that the attempt went on from
};

// One thread; one object per attempt.
class StallWatch {
 public:
  explicit StallWatch(const StallPolicy& policy = {}) : policy_(policy) {}

  void Hear(const std::string& node, const v1::AttemptReport& report, int64_t now_unix_ns);
  // What there is to tell: ranks stopped, dead or stalled, and those that go on. Of deaths, only
  // the first, of a rank that has not said itself why it ends: those that follow are the launcher's
  // doing; none where `deaths_are_meant`.
  std::vector<v1::RankStalled> News(bool deaths_are_meant) const;
  // It has been told, by this object or before a restart.
  void Told(const v1::RankStalled& news, int64_t at_unix_ns);

 private:
  struct Rank {
    std::string node;
    v1::RankReport report;
    int64_t heard_unix_ns = 0;
    int64_t alive_unix_ns = 0;  // since when it lives without a stop; 0: it does not
    int64_t blocking_ms = 0;    // for how long it has held others up
    int64_t peak_ms = 0;        // the longest of that since it last moved
    std::vector<uint32_t> waiting;
    int64_t told_unix_ns = 0;                            // that it stands still; 0: it does not
    v1::RankLife told_life = v1::RANK_LIFE_UNSPECIFIED;  // then; unspecified: not known

    bool waits() const { return report.waiting_ms() > 0; }
    bool alive() const { return report.life() == v1::RANK_ALIVE; }
  };

  void HearRank(Rank& rank, const v1::RankReport& report, int64_t now_unix_ns);
  void FindWhoWaits();
  std::optional<uint32_t> HeldUpBy(uint32_t rank) const;
  std::optional<uint32_t> OnlyOneAtWork() const;
  bool Ending() const;
  int64_t FirstDeath() const;  // -1: none
  bool Stalls(const Rank& rank) const;
  bool GoesOn(const Rank& rank) const;

  StallPolicy policy_;
  std::map<uint32_t, Rank> ranks_;
  int64_t longest_ms_ = 0;  // stillness that the attempt went on from
  bool death_told_ = false;
};

}  // namespace trireme::coordinator
