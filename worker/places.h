// Where the ranks of a job run: srun and host files spread them over machines, and bind them to
// cores or not. From it come the threads of each rank and whether the plan fits.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::worker {

// One rank's. Sent as bytes.
struct Place {
  uint64_t machine = 0;          // equal for the ranks of one running kernel
  uint64_t core_set = 0;         // equal for ranks that may use the same cores
  uint64_t cores = 1;            // in that set
  uint64_t available_bytes = 0;  // that the system can still give out; 0 if it does not say
  // The control group whose limit leaves the rank least: its file, cut short if need be, empty
  // where there is none, and what it leaves.
  std::array<char, 128> limit = {};
  uint64_t limit_bytes = 0;
  uint64_t limit_available_bytes = 0;
};

// Memory and the machine's name from files under ROOT, as base::LookAtMemory reads them.
Place ThisPlace(const std::string& root = "");

// Collective: the place of every rank of `everyone`, by rank.
absl::StatusOr<std::vector<Place>> GatherPlaces(comm::Communicator& everyone,
                                                std::chrono::milliseconds deadline);

// The rank's part of its cores, at least 1: all of them if it is bound to cores of its own.
int ThreadsAt(std::span<const Place> places, int rank);

// ResourceExhausted if the arenas of a machine's ranks are more than it has, or those of the ranks
// in one control group more than its limit leaves, naming the machine by its first rank there.
absl::Status CheckFits(const v1::Plan& plan, std::span<const Place> places);

}  // namespace trireme::worker
