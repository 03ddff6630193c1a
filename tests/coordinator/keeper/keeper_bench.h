// A run folder, a state folder and a worker of one's own for a keeper under test. Everything waited
// for has a limit, and whatever a failed test leaves running is killed at the end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/keeper/keeper.h"
#include "coordinator/launcher/process_identity.h"

namespace trireme::keeper {

std::string Slurp(const std::string& path);

class KeeperBench {
 public:
  // One rank of a shell script, without mpirun: $run is the run folder, $attempt the number. The
  // environment's PATH is set aside meanwhile.
  explicit KeeperBench(const std::string& script);
  // Ranks of tests/coordinator/keeper/rank under mpirun.
  static std::unique_ptr<KeeperBench> Recorded(uint32_t ranks);
  KeeperBench(const KeeperBench&) = delete;
  KeeperBench& operator=(const KeeperBench&) = delete;
  ~KeeperBench();

  std::unique_ptr<Keeper> Open() const;
  v1::DesiredAttempt Attempt(uint32_t attempt,
                             v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN,
                             double grace_seconds = 60) const;
  v1::DesiredAttempts Desired(const std::vector<v1::DesiredAttempt>& attempts) const;

  // Polls until `done` of the report of the attempt, 30 s at most, and returns that report. One
  // that is not reported is an empty one.
  v1::AttemptReport Await(Keeper& keeper, uint32_t attempt,
                          const std::function<bool(const v1::AttemptReport&)>& done) const;
  v1::AttemptReport AwaitEnd(Keeper& keeper, uint32_t attempt) const;
  void AwaitFile(const std::string& name, const std::string& text) const;

  // Lines of a file of the run folder.
  int Lines(const std::string& name) const;
  void Touch(const std::string& name) const;
  // Processes of the run folder.
  std::set<int> Living() const;
  launcher::ProcessIdentity Guard(uint32_t attempt) const;
  std::string Folder(uint32_t attempt) const;
  bool HasRecord(uint32_t attempt) const;
  // No process, guard, or temporary folder.
  void CheckNothingLeft(uint32_t attempt) const;

  KeeperOptions options;
  uint64_t job_id = 7;
  uint32_t ranks = 1;
  std::string root, run;
  std::string key;  // of its launches: the folders in /tmp of benches at one time are not the same

 private:
  std::string path_before_;
};

}  // namespace trireme::keeper
