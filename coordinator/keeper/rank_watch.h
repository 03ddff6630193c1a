// The ranks of an attempt on this node, by their flight recorders and their processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/keeper/marked_processes.h"
#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

struct WatchedRanks {
  Mark mark;
  std::string recorder_folder;
  uint32_t first = 0;  // a contiguous run
  uint32_t count = 0;
  // Their processes are on other machines: the recordings alone are seen.
  bool far = false;
};

// One thread.
class RankWatch {
 public:
  explicit RankWatch(const WatchedRanks& watched);
  // Reads a page and a /proc entry of each rank; `now_ns` is CLOCK_MONOTONIC.
  void Look(int64_t now_ns);

  // In rank order. RANK_STARTING until a rank is at work, RANK_DEAD also of a rank that has ended
  // in order, whose position then says so. A rank whose recording cannot be read stays as it was.
  const std::vector<v1::RankReport>& ranks() const { return ranks_; }
  // Every rank was at work at some time.
  bool all_at_work() const { return all_at_work_; }
  // Of rank 0, if it is here.
  const std::optional<v1::Progress>& progress() const { return progress_; }
  // The rank that was seen dead while the others lived; empty: none, or several at once.
  std::optional<uint32_t> first_dead() const { return first_dead_; }

 private:
  struct Process {
    int64_t pid = 0;
    uint64_t start_ticks = 0;
    bool ours = false;
  };
  int64_t SkewNs(const recorder::Recording& recording, uint32_t index, int64_t now_ns);
  v1::RankLife LifeOf(const recorder::Recording& recording, Process& process) const;
  bool LookAt(uint32_t index, int64_t now_ns);
  void NoteDeath(const std::vector<v1::RankReport>& before);

  WatchedRanks watched_;
  std::vector<Process> processes_;
  std::vector<int64_t> skews_ns_;
  std::vector<v1::RankReport> ranks_;
  std::optional<v1::Progress> progress_;
  std::optional<uint32_t> first_dead_;
  bool all_at_work_ = false;
  bool any_death_ = false;
};

}  // namespace trireme::keeper
