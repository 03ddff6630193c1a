// The control group of an attempt on this node (docs/adr/0022), of what is launched here, or of
// mpirun's daemon of another node's launch; none where the keeper has none, where ranks are
// Slurm's, and where they end with the keeper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/control_group/attempt_groups.h"
#include "coordinator/keeper/attempt_record.h"
#include "coordinator/keeper/keeper_options.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

// Of the ranks on `node`. Only where mpirun is launched a kill for memory is of all: elsewhere its
// daemon stays, and says which rank was killed.
control_group::Bounds BoundsOf(const v1::LaunchSpec& launch, const std::string& node);
// CPUs that they are granted, or as many as they have threads where these are more; 0: nobody has
// said how many.
size_t CpusOf(const v1::LaunchSpec& launch, const std::string& node);
// What becomes of pages that are written to files, and charged to the group of who writes them.
enum class Pages {
  kWrittenBack,  // for the group, as it fills up
  kHeldUp,       // for the machine alone, so that they may fill the group (NFS, Lustre)
  kStay,         // the files are memory (tmpfs)
};
// By statfs(2).
Pages PagesOn(int64_t file_system);
// The same on this machine: room for a checkpoint more where its pages may be held up; memory is
// not bounded where files stay in it, which nobody has counted, nor where that cannot be known.
// Asks the disks.
control_group::Bounds BoundsHere(const v1::LaunchSpec& launch, const std::string& node);

class AttemptGroup {
 public:
  // `options` outlives it.
  AttemptGroup(const KeeperOptions& options, const v1::DesiredAttempt& attempt);

  // Whether it is there or not; empty: none.
  std::string folder() const;
  // Its folder, which is there now, for what is to begin in it; empty: none. What the kernel
  // refuses is warned of, and done without. `attempt_folder` says which CPUs it was given; empty:
  // nobody does.
  std::string Make(const v1::LaunchSpec& launch, const std::string& attempt_folder);
  // Of one that an agent of before has made; once. It gets the CPUs that it had, if they are free.
  void BoundAdopted(const v1::LaunchSpec& launch, const std::string& attempt_folder);
  // Leaves memory.events in the attempt's folder, as its guard does where it has not been killed
  // itself.
  void KeepMemoryEvents(const std::string& attempt_folder) const;
  // Says so, once, where the kernel has killed in it for want of memory, and keeps that.
  void TellMemoryKills();
  // What was kept: node, limit, and what to do. Of one that another node launches.
  const std::optional<v1::Failure>& memory_kill() const { return memory_kill_; }
  bool IsPopulated() const;
  // KILL to all of it; true when there is nothing in it.
  bool Swept() const;
  void Remove() const;

 private:
  void Warn(const absl::Status& status) const;
  void GiveCpus(const v1::LaunchSpec& launch, const std::string& attempt_folder) const;

  const KeeperOptions& options_;
  const control_group::AttemptGroups* groups_;  // null: none
  const std::string name_;
  bool bounded_ = false;
  std::optional<v1::Failure> memory_kill_;
};

// Kills what is in groups of attempts that no record speaks of.
void RemoveUnknownGroups(const KeeperOptions& options, const std::vector<AttemptRecord>& records);

// Makes the failure that of the kernel's kill, where memory.events in the attempt's folder tell of
// one. `own`: a rank has told another cause of its own, which it stays unless the ranks were
// killed.
void NameMemoryKill(const std::string& attempt_folder, const v1::LaunchSpec& launch, bool own,
                    v1::Failure& failure);

}  // namespace trireme::keeper
