// The batch file of a job. Text alone: nothing is read, written or started. Words of users stand in
// it quoted for the shell, or for sbatch, which reads the #SBATCH lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::slurm {

// What a site or a user says to sbatch.
struct BatchOptions {
  std::string partition;
  std::string account;
  std::string time_limit;  // in Slurm's notation; empty: the partition's
  // More options as sbatch knows them, a line each: "--qos=high --exclusive".
  std::vector<std::string> more;
};
// InvalidArgument names what could not stand in a line of the script.
absl::Status CheckBatchOptions(const BatchOptions& options);

struct BatchJob {
  std::string name;     // of the Slurm job
  std::string comment;  // of the Slurm job; may be empty
  int ranks = 1;
  int nodes = 0;  // 0: as Slurm finds room
  int64_t cpus_per_rank = 1;
  int64_t gpus_per_rank = 0;
  int64_t memory_mib_per_rank = 0;  // 0: nothing is asked for
  // Of this Slurm job, where BatchOptions has none; 0: the partition's.
  std::chrono::seconds time_limit{0};
  std::vector<std::string> worker;  // program of a rank and its arguments
  std::string run_folder;
  std::string checkpoint_folder;  // empty: checkpoints/ of the run folder
};

// Of an attempt of a resolved job with a time limit of its own: what is left of that, with slack
// for the start, which does not count, and for the stop. So Slurm ends only what the coordinator
// could not. 0: the job has none.
std::chrono::seconds AttemptTimeLimit(const v1::LaunchSpec& launch);

// Name, ranks and resources of a resolved job.
BatchJob BatchJobOf(const v1::JobSpec& job, int ranks);

// Trains the job through as many time limits as it takes: exit code 75, or a lost rank after a new
// checkpoint, has Slurm queue it again. The run folder is RUN_FOLDER-<Slurm job number>; the script
// takes options of trireme-worker. InvalidArgument: the ranks do not fill the nodes, or
// CheckBatchOptions.
absl::StatusOr<std::string> StandaloneScript(const BatchJob& job, const BatchOptions& options);

// One attempt, in its folder, which has logs/: of several submissions one claims `guard.json`
// {"slurm_job"} there and runs; its last act is `exit` {"exit_code"}. An empty guard.json seals the
// folder. Slurm is not to queue it again.
absl::StatusOr<std::string> AttemptScript(const BatchJob& job, const BatchOptions& options,
                                          const std::string& attempt_folder);

}  // namespace trireme::slurm
