// Why jobs wait: what a decision has found out of each line, and of those that have a reservation.
// The words are made when somebody reads them, which decisions do not wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "coordinator/scheduler/cluster_view.h"
#include "coordinator/scheduler/queue.h"
#include "coordinator/scheduler/scheduler.h"

namespace trireme::coordinator {

// A job that does not start, or all of a line that are not among Waits::of_jobs.
struct Waiter {
  std::shared_ptr<const Asked> asked;
  uint64_t held_back_by = 0;  // it would fit, but for this job; 0: it would not
  // Not asked whether it fits: with so many ranks of its user it would be more than he may run.
  std::optional<uint64_t> ranks_of_user = std::nullopt;
  uint64_t in_the_way_of = 0;  // likewise: it would run on when this one is to start
  int64_t then_ns = 0;         // from now until that
  uint64_t starts_after = 0;   // its own reservation: the job that ends then; 0: not known
  int64_t starts_in_ns = 0;    // 0: it has none
};

// The waiting jobs ahead of one, and the one directly ahead.
struct QueuePlace {
  size_t before = 0;
  uint64_t last_before = 0;
};

struct Waits {
  ClusterView cluster;  // when all that start had started
  SchedulingPolicy policy;
  absl::flat_hash_map<uint64_t, Waiter> of_lines;  // by number
  absl::flat_hash_map<uint64_t, Waiter> of_jobs;   // by id: of some that are not as their line

  // One line; empty: nothing was found out of that line yet.
  std::string ReasonOf(uint64_t job_id, uint64_t line, const QueuePlace& place) const;
};

}  // namespace trireme::coordinator
