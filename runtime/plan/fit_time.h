// How much longer a step takes by what saves memory: a model of time, made to put choices in order
// and not to forecast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// What layers may have made again by backward, least first.
constexpr const char* kRecomputeModes[] = {"none", "selective", "full"};
// Of a job's layers, as indexes of kRecomputeModes; one for all of them where the job says no more.
std::vector<size_t> RecomputeLevels(const v1::JobSpec& job);

// Per replica and step.
int64_t MicroBatches(const v1::JobSpec& job, const v1::Mesh& mesh);

// With t tokens in a micro-batch and n micro-batches per replica and step, a step takes, in units
// of its products,
//
//   (1 + recompute) (1 + 54 / t) + zero_stage + offload + tiles
//
// recompute: full 1/3, forward again (arXiv 2205.05198). Selective 0.01 for the norms, and a third
// of the share T / (T + 12 C) that causal attention has of the flops. The mean of the layers.
//
// 54 / t: for each weight a micro-batch moves 16 bytes (read twice, added to its gradient) beside
// 6 t flops, of which 20 take as long as a byte of memory.
//
// zero_stage: of 1 0.01, for parameters are gathered behind the update and not behind backward. Of
// 2 0.02 + (n - 1) / n 54 / t, gradients being scattered in each micro-batch. Of 3 0.03 and
// (2 n - 1) / n 54 / t more, parameters being gathered for each forward and backward. 54 / t: 4
// bytes over the network beside 6 t flops, of which 80 take as long (100 Gflop/s, 10 Gbit/s).
//
// offload: of optimizer state 16 bytes a weight and step (24 in bf16) in and out beside 6 t n
// flops, shared by the replicas from ZeRO-1 on. Of activations, where the schedule lets any go, up
// to 136 bytes a token and hidden unit of a layer beside 72 C flops. A byte takes as long as 80
// flops to a file, 20 to memory; nothing of it is taken as hidden behind the operators.
//
// tiles of r rows of the loss, fewer than 1,024 and than the micro-batch has: 256 / r of 0.7 of the
// head's share in bf16, of 0.065 in other dtypes. At 256 rows a step of GPT-2 124M with AMX takes
// 18-24 % and 2 % longer (docs/performance.md), and a third of its products are the head's.
//
// bf16 counts as no slower, and the bubble is left out: smaller micro-batches only shrink it.
class StepTimes {
 public:
  // `mesh` must outlive it.
  explicit StepTimes(const v1::Mesh& mesh) : mesh_(mesh) {}

  double Of(const v1::JobSpec& job);
  // Whether the job offloads activations and its schedule lets any of them go.
  bool MovesActivations(const v1::JobSpec& job);

 private:
  static double TileTime(const v1::JobSpec& job);
  double OffloadTime(const v1::JobSpec& job, double tokens_of_step);

  const v1::Mesh& mesh_;
  std::map<std::pair<std::string, uint32_t>, bool> far_;  // by schedule and micro-batches
};

// Of two slowdowns the model tells the order only where their classes differ: it knows a fiftieth
// of a step at best.
int64_t TimeClass(double slowdown);

}  // namespace trireme::plan
