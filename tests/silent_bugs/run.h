// Runs a tiny job with a bug planted in it, ranks as threads, and keeps what detectors look at: how
// it ended, the numbers of each step, the state that the last part began with, who read what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/silent_bugs/plant.h"
#include "tests/silent_bugs/text.h"

namespace trireme::silent_bugs {

struct RunOptions {
  uint64_t steps = 6;
  // Of a job that resumes: saved after this many steps. Others begin with initial weights at step 0
  // and keep the state at this step.
  uint64_t saved_at = 3;
  bool unbroken = false;       // one part, whatever the job says
  bool compares = false;       // replicas, in each step
  bool keeps_tensors = false;  // gradients and weights of each step, and the state
  uint64_t seed = 1;           // of the initial weights
};

enum class Stage : uint8_t { kNone, kPlan, kSave, kOpen, kRestore, kStep };

// Logical tensors by name.
using engine::Tensors;

struct Outcome {
  Stage ended_in = Stage::kNone;
  uint64_t ended_at = 0;  // the step, from 1, where ended_in is kStep
  absl::Status status;    // why
  // By step, from step `begin`: the first one of the last part.
  uint64_t begin = 0;
  std::vector<Tensors> gradients, weights;
  std::vector<double> norms;
  std::vector<double> losses;  // from step 0, of all parts
  Tensors state;               // at `saved_at`, by "kind name"
  Reading repeated;            // by the ledger; sample -1: none
};

v1::JobSpec SpecOf(const Job& job, const RunOptions& options);
// The plan of a sound job.
v1::Plan PlanOf(const Job& job, const RunOptions& options);
// The plants of numbers act in the last part alone, those of a save at the end of the first.
Outcome Run(const Job& job, const Plant& plant, const RunOptions& options);

}  // namespace trireme::silent_bugs
