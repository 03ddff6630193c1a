// The subcommands of `trireme`: what the command line gives each, and its function. Each prints its
// own errors, once, to stderr, and returns the exit code (runtime/base/exit_code.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

struct RunOptions {
  std::string job;
  int ranks = 0;  // 0: the product of the parallel sizes of the job
  std::vector<std::string> overrides;
  std::string resume;   // "auto", a checkpoint folder, or empty
  std::string run_dir;  // empty: a new one under runtime.runs_directory
  bool bind_cores = false;
  double grace_seconds = 0;  // from the first Ctrl-C to the kill; 0: from step time and deadline
  bool json = false;  // lines of `trireme watch --json`, then one object that says how it ended
};
int RunRun(const RunOptions& options);

struct PlanOptions {
  std::string job;
  int ranks = 0;
  std::vector<std::string> overrides;
  bool json = false;
  bool remote = false;    // by the coordinator (RunRemotePlan)
  bool programs = false;  // with json: the instructions as well
  std::string out;        // plan.pb
  std::string svg;
  std::optional<std::string> fit;  // a size that each rank has to fit into
};
int RunPlan(const PlanOptions& options);

struct SlurmScriptOptions {
  std::string job;
  int ranks = 0;
  int nodes = 0;  // 0: as Slurm finds room
  std::vector<std::string> overrides;
  std::string partition;
  std::string account;
  std::string time;
  std::vector<std::string> sbatch;  // options of sbatch as they are
  std::string out;                  // empty: stdout
  bool json = false;                // {"script", "file"}; the file is empty without `out`
};
int RunSlurmScript(const SlurmScriptOptions& options);

struct GenerateOptions {
  std::string checkpoint;  // a checkpoint, a folder of checkpoints or a run folder
  // Absent: as in the checkpoint's job (generation, seed).
  std::optional<std::string> prompt;
  std::optional<int64_t> tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  bool json = false;  // {"prompt", "text", "tokens", "stopped"} once it is done
};
// Checks everything a user may have wrong, then becomes the worker; returns only on an error.
int RunGenerate(const GenerateOptions& options);

struct BenchOptions {
  std::string dtype = "both";  // f32, bf16 or both
  int threads = 0;             // 0: one per core
  int seconds = 50;
  std::string only;   // a part of the names of operators
  bool json = false;  // one object: limits, operators of each dtype, sums of a step
};
// Becomes the worker; returns only on an error.
int RunBench(const BenchOptions& options);

struct ValidateOptions {
  std::string job;
  std::vector<std::string> overrides;
  bool json = false;
};
int RunValidate(const ValidateOptions& options);

struct CheckpointOptions {
  std::string folder;
  bool json = false;
};
int RunCheckpointList(const CheckpointOptions& options);
int RunCheckpointVerify(const CheckpointOptions& options);

int RunVersion(bool json);

}  // namespace trireme::cli
