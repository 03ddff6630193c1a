// Nodes, a daemon and a shared folder between which any line may be cut, in simulated time: the
// reconciler and the lifelines of agents are the real ones, ranks and files exist only here. Checks
// at every tenth of a second what docs/adr/0019 promises: no attempt starts while ranks of an older
// one live, but where the record says that they may.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/keeper/lifeline.h"
#include "coordinator/reconciler/node_leases.h"
#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {

class PartitionedCluster {
 public:
  // Machines n1, n2, ... of four CPUs each, whose clocks run up to one percent wrong. Their agents
  // have them as the names of their nodes. `twins`: to each there is another machine, n1.twin, ...,
  // whose agent has the same name.
  PartitionedCluster(uint32_t seed, int nodes, bool twins = false);

  uint64_t Submit(uint32_t ranks);
  // What a machine reaches.
  struct Lines {
    bool daemon = true;
    bool folder = true;
    bool nodes = true;  // the others
  };
  Lines& LinesOf(const std::string& machine) { return machines_.at(machine).lines; }
  bool daemon_reaches_folder = true;
  void KillDaemon();
  void StartDaemon();
  // It runs, and does nothing: as in a commit that its disk holds, or stopped as a whole, when it
  // does not see either who speaks to it.
  void StandStill(int64_t seconds);
  // An agent's end and its restart; ranks run on.
  void StopAgent(const std::string& machine) { machines_.at(machine).agent = false; }
  void StartAgent(const std::string& machine);

  // Some commits stand still for up to two minutes between the last look and the rename, whatever
  // happens to their ranks meanwhile.
  bool commits_stand_still = false;
  // Each end takes as long as one may.
  void KillSlowly() { slowly_ = true; }

  void Run(int64_t seconds);
  void Heal();

  std::vector<std::string> NodesOf(uint64_t job) const;
  std::vector<std::string> machines() const;
  // Whose agent has the name.
  const std::string& HolderOf(const std::string& node) const { return holders_.at(node); }
  uint32_t AttemptOf(uint64_t job) const;
  // Of attempts that ranks of still live, anywhere.
  std::set<uint32_t> Living(uint64_t job) const;
  // Published, and done by rank 0 in all attempts whether published or not.
  uint64_t Steps(uint64_t job) const { return files_.at(job).steps; }
  uint64_t Done(uint64_t job) const { return files_.at(job).done; }
  std::string StatusText(uint64_t job) const;
  uint32_t Random(uint32_t below) { return random_() % below; }
  // Of starts while ranks of an older attempt lived, where the record says that they may: nodes
  // that had each other and nobody else, or one without an agent.
  int overlaps() const { return overlaps_; }
  // Of names that another machine's agent took over.
  int names_taken() const { return names_taken_; }
  // Of commits that stood still and came too late, and that came in time after all.
  int taken_away() const { return taken_away_; }
  int revoked() const { return revoked_; }
  int published_late() const { return published_late_; }

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // job, attempt
  struct Ranks {
    v1::DesiredAttempt desired;
    keeper::Lifeline lifeline{0};
    bool begun = false;  // here; else another machine of this name has had them
    bool ended = false;
    bool cut = false;          // the agent has decided to end it
    int64_t killed_at_ns = 0;  // when that is done; 0: nobody kills it
    uint64_t steps = 0;
    int64_t cut_off_since_ns = -1;  // neither daemon nor folder nor other nodes; -1: one of them
    int64_t watched_since_ns = 0;   // by the agent that there is now
    int64_t stepped_ns = 0;
  };
  struct Machine {
    std::string node;  // its agent's name
    Lines lines;
    double drift = 1;
    bool agent = true;
    int64_t turns_at = 0;  // of five ticks: as others do, before them or after
    bool greeted = false;  // it has the name, and a line
    std::deque<int64_t>
        reached_ns;  // turns in which it heard the daemon or the folder, of a minute
    std::map<Key, Ranks> ranks;
    std::optional<v1::DesiredAttempts> heard;
  };
  // A checkpoint that nobody looks any more whether it still may get its name.
  struct Commit {
    uint32_t attempt = 0;
    int64_t at_ns = 0;
  };
  struct Files {
    uint32_t claim = 0;
    uint32_t begun = 0;  // the attempt that has taken away what older ones publish from
    std::optional<Commit> commit;
    uint64_t steps = 0;    // of the newest checkpoint that counts
    uint64_t done = 0;     // whether that was seen or not
    uint32_t attempt = 0;  // whose it is
  };

  static int64_t Local(const Machine& machine, int64_t ns) {
    return static_cast<int64_t>(machine.drift * static_cast<double>(ns));
  }
  absl::Status Claim(uint64_t job, uint32_t attempt);
  void TurnAgent(const std::string& name, Machine& machine);
  bool Greet(const std::string& name, Machine& machine);
  void LookAtRanks(Machine& machine);
  void Obey(const std::string& name, Machine& machine);
  void Report(Machine& machine);
  void TurnDaemon();
  bool StandsStill() const { return now_ < still_until_ns_; }
  void TurnRanks();
  void Publish(Files& files, uint32_t attempt);
  void TurnCommits();
  void TurnRanksOf(const std::string& name, Machine& machine, const std::set<Key>& stepping,
                   const std::set<Key>& broken);
  void Lead(const Key& key);
  bool LivesOn(const std::string& node, const Key& key, bool reaching_others) const;
  bool Connected(const Key& key, const Ranks& ranks) const;
  void Kill(Ranks& ranks);
  void CheckStart(const Key& key) const;
  bool MayLive(const Machine& machine, const Ranks& ranks) const;
  void CheckCutOff() const;

  std::mt19937 random_;
  int64_t now_ = 1'000'000'000'000;
  bool slowly_ = false;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobTable> table_;
  std::unique_ptr<Reconciler> reconciler_;
  int64_t still_until_ns_ = 0;
  bool deaf_ = false;                                           // while it stands still
  std::deque<std::pair<std::string, v1::NodeReport>> waiting_;  // words that it has not come to
  std::vector<v1::Job> plans_;
  std::vector<v1::Job> revocations_;
  std::map<std::string, Machine> machines_;
  std::unique_ptr<NodeLeases> leases_;                           // as the daemon has them
  std::map<std::string, std::string> holders_;                   // of names, as the store has them
  std::map<std::pair<Key, std::string>, std::string> begun_on_;  // attempt and node: machine
  std::map<uint64_t, Files> files_;
  mutable int overlaps_ = 0;
  int names_taken_ = 0;
  int taken_away_ = 0;
  int revoked_ = 0;
  int published_late_ = 0;
};

}  // namespace trireme::coordinator
