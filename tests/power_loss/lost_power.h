// The disk after the power went between two calls of a log: of what was not flushed anything may
// be there or not.
//
// As strict as POSIX allows: fsync of a file keeps its bytes but not its name, fsync of a folder
// its names but not what they lead to. Of bytes not flushed any part may be there; of the names in
// one folder a beginning of their changes, folder by folder, as file systems with a journal do it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/power_loss/disk_log.h"

namespace trireme::power_loss {

// One disk after a loss of power.
struct Loss {
  size_t calls = 0;             // after so many of the log
  std::set<std::string> marks;  // that were reached
  std::string how;              // which of the disks that may be there then
  std::string folder;           // a copy of what is left of the root
};

struct LossOptions {
  // Calls that the program is taken not to have made: to see that a test misses a flush.
  std::function<bool(const Call&)> left_out = nullptr;
  int random_disks = 6;  // per call, beside the five regular ones
  size_t from = 0;       // calls after which the first power is lost
};

// Calls `look` for each disk after each call of the log, and after none, until it returns false;
// for equal disks with equal marks once. `look` may change the folder. False: `look` did. No call
// is left unseen.
bool AfterEachLoss(const std::vector<Call>& log, const LossOptions& options,
                   const std::function<bool(const Loss&)>& look);

}  // namespace trireme::power_loss
