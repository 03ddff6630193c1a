// A job file (YAML), `--set a.b=c` overrides and a Hugging Face config.json become one typed,
// defaulted and validated JobSpec. YAML keys are the field names of
// proto/trireme/v1/job_spec.proto, walked by reflection, so a new field needs no parser change;
// defaults live in ApplyDefaults, rules in Validate. All faults are reported at once, each with its
// file and line, what was expected and what to do. Nothing here keeps state; every function may be
// called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::spec {

// One thing wrong with a spec.
struct Fault {
  std::string
      path;  // dotted field path, as in "parallelism.tensor_parallel_size"; empty: the whole job
  std::string message;  // what is wrong, the legal values and the fix
};

// Reads and resolves the job file at `path`. Each override is "a.b=value" (without `--set`) and
// wins over the file; a list is "a.b=[1,2]" and replaces the list of the file. Relative paths in
// the file are taken from the file's folder, those of overrides and defaults from the current
// directory. The resolved spec has every field set, but for what only the run can tell: training's
// data_parallel_size 0 (from the ranks), vocab_size 0 (from the tokenizer), layers_per_stage empty
// (even), checkpoint.directory absent (in the run folder), and resources.nodes empty (any).
// model.config_path has been merged into model.config and is cleared, so that the echo of a job
// stands alone. InvalidArgument: the faults, one per line, "job.yaml:12:
// parallelism.tensor_paralel: unknown field, did you mean tensor_parallel_size?". Unknown keys of
// config.json are appended to `warnings` if given.
absl::StatusOr<v1::JobSpec> LoadJob(const std::string& path, std::span<const std::string> overrides,
                                    std::vector<std::string>* warnings = nullptr);

// The same for a job file held in memory; `name` stands for the file in messages, and its folder is
// the base of relative paths.
absl::StatusOr<v1::JobSpec> ParseJob(const std::string& text, const std::string& name,
                                     std::span<const std::string> overrides,
                                     std::vector<std::string>* warnings = nullptr);

// The echo of a resolved job (ToYaml), as checkpoints hold it: as ParseJob, but no other file is
// read, whatever the text says. `name` stands for it in messages.
absl::StatusOr<v1::JobSpec> ParseEcho(const std::string& text, const std::string& name);

// Fills each absent field. The only place with defaults. Needs model.config merged; safe on specs
// that Validate refuses.
void ApplyDefaults(v1::JobSpec& spec);

// Every rule that a resolved spec breaks; empty if it may run. Touches no file.
std::vector<Fault> Validate(const v1::JobSpec& spec);

// Those of the rules that a plan leans on: model, sizes of the batch, parallelism. For a job that
// may lack the rest (data, folders); a number that is absent is a fault too.
std::vector<Fault> ValidateForPlan(const v1::JobSpec& spec);

// A Hugging Face config.json of gpt2 or llama; absent keys stay absent. Keys that change the maths
// and are not supported are refused by name (InvalidArgument, all at once); unknown ones are
// appended to `warnings` if given.
absl::StatusOr<v1::ModelConfig> ReadModelConfig(const std::string& path,
                                                std::vector<std::string>* warnings = nullptr);

// The spec as a job file. Loading it again gives an equal message, bit for bit, if `spec` is
// resolved.
std::string ToYaml(const v1::JobSpec& spec);

// Hash over what must stay the same for a bit-exact resume of a resolved spec: seed, model.config,
// data (file names without folders), optimizer, and training without `steps` (a run may be
// prolonged; decay_steps is hashed) and micro_batch_size (like parallelism, a matter of layout);
// mode and bound of compression where it is not off.
// Stable over versions: a field still at its zero value or absent adds nothing.
uint64_t SpecHash(const v1::JobSpec& spec);

// The fields that SpecHash hears and in which two resolved specs differ, as in
// "optimizer.decay_steps: 1000 there, 2000 here".
struct ResumeDifferences {
  // The state does not fit, or samples would be seen twice or never: model, data, seed, batch.
  std::vector<std::string> forbidden;
  // How training goes on may be changed, though the run is then another one: optimizer, policy,
  // compression.
  std::vector<std::string> changed;
};
ResumeDifferences CompareForResume(const v1::JobSpec& there, const v1::JobSpec& here);

}  // namespace trireme::spec
