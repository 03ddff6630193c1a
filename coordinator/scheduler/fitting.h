// How many ranks go where: amounts of CPUs, memory and GPUs, and the fewest nodes that hold a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct Amount {
  uint64_t cpus = 0;
  uint64_t memory_bytes = 0;
  uint64_t gpus = 0;
};

Amount AmountOfRank(const v1::ResourceRequest& request);

// Ranks that fit into `there`, at most `most` (all of them, if a rank takes nothing).
uint64_t RoomFor(const Amount& rank, const Amount& there, uint64_t most);

// What is left of `there`; never less than nothing.
Amount Without(const Amount& there, const Amount& rank, uint64_t ranks);

struct Share {
  size_t node = 0;  // index into `there`
  uint64_t ranks = 0;
};

// `ranks` on as few of the nodes with `allowed` as possible, the fullest first; where one node is
// enough for what remains it is the one with the least left over: GPUs, then CPUs, then memory,
// then the earlier one. Empty: not all of them fit.
std::vector<Share> Fit(const Amount& rank, uint64_t ranks, const std::vector<Amount>& there,
                       const std::vector<bool>& allowed);

// Ranks that all nodes with `allowed` hold, at most `most`.
uint64_t RoomInAll(const Amount& rank, uint64_t most, const std::vector<Amount>& there,
                   const std::vector<bool>& allowed);

}  // namespace trireme::coordinator
