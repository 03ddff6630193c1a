// What the keeper's loop has of an attempt: what is desired of it, whether it still counts, and
// what its newest turn has brought. No disk is touched here. The attempt itself (attempt.h) belongs
// to one turn at a time (attempt_turns.h), which the disk of its run folder may hold for ever; then
// its ranks are ended from here, by /proc alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/keeper/attempt.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/attempt_turns.h"
#include "coordinator/keeper/keeper_options.h"
#include "coordinator/keeper/lifeline.h"
#include "coordinator/keeper/seat.h"
#include "coordinator/slurm/queue.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

// One thread. The destructor leaves everything running, and a turn that is under way to itself.
class KeptAttempt {
 public:
  // As Attempt's.
  KeptAttempt(std::shared_ptr<const KeeperOptions> options, AttemptRecord record, Heard heard,
              std::shared_ptr<slurm::Queue> queue);
  ~KeptAttempt();
  KeptAttempt(const KeptAttempt&) = delete;
  KeptAttempt& operator=(const KeptAttempt&) = delete;

  void SetDesiredState(v1::AttemptDesiredState desired_state, double grace_seconds);
  // Of one whose record has none.
  void NameStore(const std::string& store);
  // What others say of whether it counts (lifeline.h).
  Lifeline& lifeline() { return lifeline_; }
  void Stepped(const StepNews& news);
  // Cuts it off if that is due; kills what its turns cannot, on a thread of /proc.
  void Judge(AttemptTurns& turns);
  // Unless one is under way, or it has ended.
  void BeginTurn(AttemptTurns& turns, bool may_start);
  // Takes what the turns since the last call have brought.
  void Collect();

  // As of the newest turn that is back; of an adopted one without a phase before the first.
  v1::AttemptReport Report(AttemptTurns& turns) const;
  // Empty once it has ended.
  std::optional<Seat> seat() const;
  bool ended() const { return seen_.ended; }
  // It has ended, and nothing is to be written of it any more.
  bool at_rest() const;
  const v1::DesiredAttempt& desired() const { return desired_; }
  // With what tells the file of its record.
  AttemptRecord record() const;

 private:
  struct Shared;
  struct Sweeps;
  // The time for which no turn has come back though one was wanted.
  int64_t UnansweredNs() const;
  // Of that, for which its folder was asked: a turn runs, or none can.
  int64_t StalledNs() const;
  int64_t EndAfterNs() const;
  bool HasRanksHere() const { return !options_->slurm.has_value(); }
  void CutOff(int64_t boottime_ns);
  bool IsToBeSwept() const;
  void Sweep(AttemptTurns& turns);
  std::string StallWords(AttemptTurns& turns) const;
  void NoteDesired();

  const std::shared_ptr<const KeeperOptions> options_;
  v1::DesiredAttempt desired_;
  std::string cut_off_;
  Lifeline lifeline_;
  int64_t judged_ns_;  // base::BoottimeNs of the last time
  // CLOCK_MONOTONIC; 0: not so.
  int64_t kill_wanted_ns_ = 0;
  int64_t stop_wanted_ns_ = 0;
  int64_t unanswered_ns_ = 0;
  int64_t swept_ns_ = 0;
  bool looked_;  // a turn has come back; of one that is not adopted all is known before, too
  Sighting seen_;
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Sweeps> sweeps_;
};

}  // namespace trireme::keeper
