// Keeps the attempts of one node: starts their ranks so that its own end does not touch them,
// adopts what runs when it is opened again, and lets nothing be left of what has ended. No network;
// whoever holds one brings what the coordinator desires and takes away what is.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/keeper/attempt_turns.h"
#include "coordinator/keeper/claim_watch.h"
#include "coordinator/keeper/keeper_options.h"
#include "coordinator/keeper/seat.h"
#include "coordinator/slurm/queue.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

class KeptAttempt;

// One thread, which touches no run folder: turns of attempts there run on others, which a disk may
// hold (attempt_turns.h). The state folder is of this machine, and is waited for.
class Keeper {
 public:
  // Reads the state folder and goes on with what is recorded there: stops and kills under way are
  // carried through, nothing is started before SetDesired. AlreadyExists: another process keeps
  // this folder, as base::IsLocked of STATE/lock says. DataLoss names a record that cannot be read.
  static absl::StatusOr<std::unique_ptr<Keeper>> Open(const KeeperOptions& options);
  // Leaves everything running. A turn that hangs is left behind after a second.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // The whole of what this node is to have; idempotent. What is not in it is killed, and forgotten
  // once it has ended. An attempt older than another of its job that was heard of (here or in the
  // job's run folder) is refused: reported ENDED without a start.
  void SetDesired(const v1::DesiredAttempts& desired);
  // The coordinator has taken a report that was made then (base::BoottimeNs): what runs here counts
  // for that long at least.
  void ReportTaken(int64_t sent_ns);
  // Ranks here have said so, by their own line to this node, which needs no disk.
  void StepsSaid(const std::vector<StepNews>& steps);
  // Starts, stops, kills, looks, and ends what nobody answers for (lifeline.h): under a millisecond
  // for a few ranks, some tens for a start (the disk), options.turn_wait at most if that hangs.
  // What is not back by then is reported as it was, and `stalled` if that lasts. Call it every 100
  // ms to 1 s: it keeps the deadlines.
  v1::NodeReport Poll();
  // Attempts are held of which something may be left.
  bool HoldsLive() const;
  // To each attempt of `report`, which Poll has given, where its ranks are.
  void AddAllocations(v1::NodeReport& report) const;
  // Of the attempts that may have ranks here.
  std::vector<Seat> seats() const;

 private:
  struct Key {
    std::string store;  // whose job it is; empty: of before stores had names
    uint64_t job = 0;
    uint32_t attempt = 0;
    auto operator<=>(const Key&) const = default;
    bool IsOfJobOf(const Key& other) const { return store == other.store && job == other.job; }
  };
  static Key KeyOf(const v1::DesiredAttempt& attempt);
  Keeper(const KeeperOptions& options, int lock_fd);
  absl::Status Adopt();
  void Learn(const v1::DesiredAttempt& attempt);
  void NameStore(const v1::DesiredAttempt& attempt);
  uint32_t NewestKnown(const Key& wanted) const;
  // A newer attempt of its job is known.
  bool IsOutdated(const Key& key) const;
  bool OlderLives(const Key& key) const;
  void LookAtClaims();
  void TakeTurns();

  const std::shared_ptr<const KeeperOptions> options_;
  const std::shared_ptr<slurm::Queue> queue_;  // where options_->slurm is given
  int lock_fd_;
  std::map<Key, std::unique_ptr<KeptAttempt>> attempts_;
  std::set<Key> wanted_;  // of the newest SetDesired
  ClaimWatch claims_;
  std::unique_ptr<AttemptTurns> turns_;
  uint64_t revision_ = 0;
  bool told_ = false;
};

}  // namespace trireme::keeper
