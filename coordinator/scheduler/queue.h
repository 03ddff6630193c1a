// The jobs that wait for resources. Those that differ by their place alone form a line: where one
// of it does not start, nobody behind it there does. So a decision looks at lines, of which there
// are few, and not at all that wait.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// When and where a job that waits starts at the latest, as far as time limits tell.
struct Reservation {
  int64_t start_unix_ns = 0;
  std::vector<v1::NodeAllocation> allocation;
};

struct Asked {
  v1::ResourceRequest resources;
  int64_t runs_ns = 0;    // at most, by its time limit, with its stop; 0: nobody knows
  std::string user = {};  // to whose running ranks it counts; empty: to nobody's
  // Nodes that could not start it, the newest last: it goes there where no others are free, or,
  // if it waits for others, where none can hold it.
  std::vector<std::string> avoids = {};
  bool waits_for_others = false;
};

struct Waiting {
  uint64_t job_id = 0;
  int32_t priority = 0;
  int64_t submitted_unix_ns = 0;
  int64_t waits_since_unix_ns = 0;  // not before it was submitted
  Asked asked;
};

// The smaller goes first.
struct QueueKey {
  int64_t order = 0;  // minus the priority
  int64_t submitted_unix_ns = 0;
  uint64_t job_id = 0;
  auto operator<=>(const QueueKey&) const = default;
};

// Threads: one.
class Queue {
 public:
  struct Line {
    uint64_t number = 0;  // no other line has ever had it
    std::shared_ptr<const Asked> asked;
    std::string kind;             // equal for those who ask for the same
    int64_t waited_again_ns = 0;  // since then all of them wait; 0: since they were submitted
    std::set<QueueKey> jobs;      // never empty

    int64_t WaitsSince(const QueueKey& job) const {
      return waited_again_ns == 0 ? job.submitted_unix_ns : waited_again_ns;
    }
  };

  // The number of its line. The job must not be here.
  uint64_t Add(const Waiting& job);
  // With its reservation, where it has one; nothing, if it is not here.
  void Remove(uint64_t job_id);
  size_t size() const { return places_.size(); }

  // In no order.
  std::vector<const Line*> lines() const;
  // Both of a job that is here.
  const Line& LineOf(uint64_t job_id) const { return places_.at(job_id).first->second; }
  const QueueKey& KeyOf(uint64_t job_id) const { return places_.at(job_id).second; }

  // Those of the decision before the next one, by job, all of which are here: each is kept unless
  // there is an earlier one.
  void SetReservations(std::map<uint64_t, Reservation> reservations);
  const std::map<uint64_t, Reservation>& reservations() const { return reservations_; }
  // The clock was set.
  void MoveReservations(int64_t by_ns);

 private:
  // In a line of one priority nobody waits for longer than who is before him, so that the first who
  // has lost his patience is found without a look at all: hence `waited_again_ns`.
  struct LineKey {
    std::string kind;
    std::string user;
    int32_t priority = 0;
    int64_t waited_again_ns = 0;
    auto operator<=>(const LineKey&) const = default;
  };
  using ByKey = std::map<LineKey, Line>;

  ByKey lines_;
  uint64_t next_line_ = 1;
  std::unordered_map<uint64_t, std::pair<ByKey::iterator, QueueKey>> places_;  // by job
  std::map<uint64_t, Reservation> reservations_;
};

}  // namespace trireme::coordinator
