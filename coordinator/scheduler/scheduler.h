// Which waiting job gets which allocation, and why the others wait. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/scheduler/queue.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct NodeCapacity {
  std::string name;
  uint32_t cpus = 0;
  uint64_t memory_bytes = 0;
  uint32_t gpus = 0;
  bool usable = true;        // neither drained nor lost
  std::string unusable_why;  // "drained: new disk", "lost"
  bool gone = false;         // for good
};

// A job that holds an allocation.
struct Holding {
  uint64_t job_id = 0;
  v1::ResourceRequest resources;
  std::vector<v1::NodeAllocation> allocation;
  std::string user = {};     // as of Asked
  int64_t ends_unix_ns = 0;  // at the latest, by its time limit; 0: nobody knows
};

struct Waits;  // waits.h

struct Decision {
  std::map<uint64_t, std::vector<v1::NodeAllocation>> allocations;  // jobs to start now
  std::map<uint64_t, Reservation> reservations;
  std::shared_ptr<const Waits> waits;  // of all others
  size_t looked_at = 0;                // jobs, of all that wait: what it has cost
};

struct SchedulingPolicy {
  std::chrono::seconds patience{600};  // after which nothing passes a job that waits
  // Jobs at the head of the queue that may have a reservation.
  size_t most_reservations = 50;
  // Nobody passes one that waits for room, whatever its patience: not all nodes are known yet.
  bool in_order = false;
  uint64_t user_running_ranks = 0;  // at a time, of each user; 0: any number
};

// Conservative backfill: a job that has to wait for others with time limits gets a reservation, and
// none behind it starts where it would still run then. One that has to wait for others without a
// limit, or is behind `most_reservations`, is passed until its patience is lost, and then by
// nobody. Reservations change to earlier ones only, unless somebody goes first who was not there, a
// job runs on beyond its end, or a node is lost.
//
// Ranks fill as few nodes as they can, in rank order over the allocation; nodes in the order given
// break ties. CPUs may be asked for beyond what any node has: such a job waits with that as its
// reason.
Decision Schedule(std::vector<NodeCapacity> nodes, const std::vector<Holding>& holding,
                  const Queue& queue, const SchedulingPolicy& policy, int64_t now_unix_ns);

}  // namespace trireme::coordinator
