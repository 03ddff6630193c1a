// Which waiting job gets which allocation, and why the others wait. Pure.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

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
  std::string user = {};     // to whose running ranks it counts; empty: to nobody's
  int64_t ends_unix_ns = 0;  // at the latest, by its time limit; 0: nobody knows
};

// When and where a job that waits starts at the latest, as far as time limits tell.
struct Reservation {
  int64_t start_unix_ns = 0;
  std::vector<v1::NodeAllocation> allocation;
};

struct Waiting {
  uint64_t job_id = 0;
  int32_t priority = 0;
  int64_t submitted_unix_ns = 0;
  int64_t waits_since_unix_ns = 0;
  v1::ResourceRequest resources;
  int64_t runs_ns = 0;  // at most, by its time limit, with its stop; 0: nobody knows
  // Of the decision before this one: it is kept unless there is an earlier one. No start: none.
  Reservation reservation;
  // Jobs with equal `resources` and `runs_ns` may have one number: where one does not fit, no other
  // of its kind is looked at. 0: not said.
  uint32_t kind = 0;
  std::string user = {};  // as of Holding
};

// The smaller goes first.
struct QueueKey {
  int64_t order = 0;  // minus the priority
  int64_t submitted_unix_ns = 0;
  uint64_t job_id = 0;
  auto operator<=>(const QueueKey&) const = default;
};
inline QueueKey KeyOf(const Waiting& job) {
  return {-int64_t{job.priority}, job.submitted_unix_ns, job.job_id};
}

struct Wait {
  uint32_t position = 0;  // 1 is next
  std::string reason;     // one line
};

struct Decision {
  std::map<uint64_t, std::vector<v1::NodeAllocation>> allocations;  // jobs to start now
  std::map<uint64_t, Reservation> reservations;
  std::map<uint64_t, Wait> waits;  // of all others the first `most_reasons`
};

struct SchedulingPolicy {
  std::chrono::seconds patience{600};  // after which nothing passes a job that waits
  // Jobs at the head of the queue that may have a reservation.
  size_t most_reservations = 50;
  // Jobs at the head of the queue that are told why they wait; behind them it is the queue.
  size_t most_reasons = 1000;
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
Decision Schedule(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                  const std::vector<Waiting>& waiting, const SchedulingPolicy& policy,
                  int64_t now_unix_ns);
// The same of a queue that is in the order of KeyOf already, as a long one is kept.
Decision Schedule(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                  const std::vector<const Waiting*>& queue, const SchedulingPolicy& policy,
                  int64_t now_unix_ns);

}  // namespace trireme::coordinator
