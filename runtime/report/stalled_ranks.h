// Which ranks of a job stand still, from the events that tell of it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::report {

// Takes the events of one job, ascending, as they come: of any kind, those of stalls count.
class StalledRanks {
 public:
  void Take(const v1::Event& event);
  // What was told of the ranks of this attempt that stand still yet, in the order of ranks.
  std::vector<std::string> Of(uint32_t attempt) const;
  bool empty() const { return stalled_.empty(); }

 private:
  uint32_t attempt_ = 0;                     // the newest that was told of
  std::map<uint32_t, std::string> stalled_;  // by rank
};

// Of the job's current attempt, from all of its events so far.
std::vector<std::string> StalledRanksOf(const v1::Job& job, const std::vector<v1::Event>& events);

}  // namespace trireme::report
