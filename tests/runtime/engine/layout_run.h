// Runs a few steps of a tiny job on any mesh, ranks as threads, and gathers logical tensors: the measuring device of the
// parity, mutation and oracle suites.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/mutation.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::engine {

// Logical tensors in row-major order, as f64.
using Tensors = std::map<std::string, std::vector<double>>;

struct LayoutResult {
  Tensors gradients;  // of the first step, before clipping
  Tensors weights;    // after the last step
  std::vector<double> losses;
  std::vector<double> norms;
  double validation_loss = 0;
  uint64_t arena_bytes = 0;  // largest over the ranks
  uint64_t planned_bytes = 0;
};

struct LayoutRunOptions {
  int steps = 3;
  bool evaluate = false;
  // Replaces the initial weights where not empty.
  const Tensors* initial = nullptr;
  Mutation mutation = Mutation::kCount;
};

// InvalidArgument where the planner refuses the layout (the reason), any other error where it fails.
absl::StatusOr<LayoutResult> RunLayout(const v1::JobSpec& job, int ranks, const data::Dataset& dataset,
                                       const LayoutRunOptions& options = {});

// Plants `mutation` in every engine of this process until called with kCount.
void PlantMutation(Mutation mutation);

// Tokens of a counter-based generator; about one target in eight is not counted, unevenly over the samples.
std::unique_ptr<data::Dataset> MakeRandomDataset(int64_t vocab_size, int64_t sequence_length);

// max |a - b| over all elements of a tensor, divided by `scale`, per tensor that exceeds `limit`.
std::map<std::string, double> Differences(const Tensors& a, const Tensors& b, double scale, double limit);
double NormOf(const Tensors& tensors);

struct TinyJobOptions {
  std::string family = "gpt2";
  std::string dtype = "f64";
  int64_t layers = 4;
  double dropout = 0;
  bool tie = true;
  bool bias = true;
};
// A resolved job of a model small enough for thousands of runs.
v1::JobSpec TinyJob(const TinyJobOptions& options);

}  // namespace trireme::engine
