// CodingSwitch: whether the calls of one bucket on one link are worth coding, by their own times.
// Pure: it counts calls, which all ranks do alike, and decides by times that the ranks have agreed
// on, so that all ranks decide the same at the same call.
//
//   trial (plain, coded, plain, coded, ...) -> due -> Agree -> steady for a period -> trial ...
//
// Results then depend on timing: it is a mode of its own (CodingMode::kAuto), not what "on" means.
#pragma once

#include <array>
#include <chrono>
#include <span>

#include "absl/status/status.h"
#include "runtime/comm/coding.h"
#include "runtime/comm/communicator.h"

namespace trireme::comm {

struct CodingSwitchOptions {
  int samples = 2;  // calls of each way in a trial; the fastest counts
  // Calls between trials: from the shortest, twice as many after each trial that changes nothing.
  int shortest_period = 64;
  int longest_period = 1024;
  // The other way must be faster by this part to be taken.
  double margin = 0.03;
};

// The slowest rank's time of a call, by way.
struct CodingTimes {
  double plain_s = 0;
  double coded_s = 0;
};

// Of one thread.
class CodingSwitch {
 public:
  explicit CodingSwitch(const CodingSwitchOptions& options = {}) : options_(options) {
    period_ = options_.shortest_period;
  }

  // Whether the next call is coded. Plain until the first agreement but in trials.
  bool coded() const;
  // Counts a call of the way coded() said, with this rank's time of it. On all ranks alike.
  void Record(double seconds);
  // A trial is over: `own_times` are to be reduced by maximum over the ranks and given to Agree.
  // Calls may go on before that; they go the way they went before the trial.
  bool due() const { return trial_calls_ == 2 * options_.samples; }
  CodingTimes own_times() const { return own_; }
  void Agree(const CodingTimes& slowest);

 private:
  CodingSwitchOptions options_;
  bool choice_ = false;
  int trial_calls_ = 0;
  int steady_left_ = 0;
  int period_ = 0;
  CodingTimes own_;
};

// Lets all ranks agree on those of the switches that are due, by one small AllReduce over each of
// the groups in turn; nothing where none is due. Groups that cross (one a row, the next a column of
// the mesh) agree as a whole. Blocks. All ranks call it at the same place with the same switches.
// (Who has a reduction of its own at that place can carry the times in it instead.)
absl::Status AgreeOnCoding(std::span<Communicator* const> groups,
                           std::span<CodingSwitch* const> switches, tensor::Stream& stream,
                           std::chrono::milliseconds deadline);

}  // namespace trireme::comm
