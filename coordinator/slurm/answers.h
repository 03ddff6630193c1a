// What squeue, sinfo and scontrol print. Pure; lines that make no sense are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::slurm {

// Of a Slurm job: waits in Slurm's queue, has nodes (also while its processes are being ended), or
// nothing is left of it.
enum class JobPhase { kPending, kLive, kEnded };

struct SlurmJob {
  uint64_t id = 0;
  std::string state;  // Slurm's word: PENDING, RUNNING, TIMEOUT, ...
  JobPhase phase = JobPhase::kLive;
  std::string reason;  // why it waits: Resources, Priority, ...; empty: none
  std::string comment;
};

// Of `squeue --noheader --format=kQueueFormat`.
inline constexpr char kQueueFormat[] = "%A|%T|%r|%k";
std::vector<SlurmJob> ParseQueue(const std::string& text);

struct Step {
  std::string id;  // "12.0"
  std::string name;
};

// Of `squeue --noheader --steps --format=kStepFormat`: steps that have not ended.
inline constexpr char kStepFormat[] = "%i|%j";
std::vector<Step> ParseSteps(const std::string& text);

struct Capacity {
  uint64_t nodes = 0;
  uint64_t cpus = 0;
  uint64_t memory_bytes = 0;
  uint64_t gpus = 0;
};

// Of `sinfo --noheader --Node --format=kPartitionFormat`: all nodes of `partition`, of the default
// one if that is empty. NotFound: there is none.
inline constexpr char kPartitionFormat[] = "%N|%P|%c|%m|%G";
absl::StatusOr<Capacity> ParsePartition(const std::string& text, const std::string& partition);

// Of `scontrol --oneliner show job`: what the batch script ended with, 128 + n for a signal.
std::optional<int> ParseExitCode(const std::string& text);

// Of `sbatch --parsable`: "123" or "123;cluster".
std::optional<uint64_t> ParseSubmitted(const std::string& text);

}  // namespace trireme::slurm
