// What no plan can be made for.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// InvalidArgument: the rules of runtime/spec that a plan leans on, one broken one per line.
absl::Status CheckJob(const v1::JobSpec& job);

// For a plan that has its job, mesh and micro-batches. Within these limits the sizes of buffers,
// and what a plan takes to make and to store, stay far from those of their types; InvalidArgument
// beyond.
absl::Status CheckExtent(const v1::Plan& plan);

// Of a micro-batch's loss, which the stage with the head makes tile by tile.
int64_t LossTileRowsOf(const v1::JobSpec& job);
// Tiles, over the tensor ranks of that stage: each is a few operators of its own.
int64_t LossTilesOf(const v1::JobSpec& job);
constexpr int64_t kMostLossTiles = 1 << 16;

// Between virtual stages. Each has two channels of its pipeline group, one a direction
// (kCallerChannels of runtime/comm are twice as many).
constexpr uint64_t kMostCuts = 4096;

}  // namespace trireme::plan
