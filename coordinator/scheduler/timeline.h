// What of each node is free at which time, as far as time limits tell: by the jobs that run, those
// that start now, and those that have a reservation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "coordinator/scheduler/fitting.h"

namespace trireme::coordinator {

inline constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// From `from` until `until`, Unix ns; kNoEnd: nobody knows.
struct Span {
  int64_t from = 0;
  int64_t until = kNoEnd;
};

class Timeline {
 public:
  // Indices of nodes are those of `capacity`.
  explicit Timeline(const std::vector<Amount>& capacity)
      : capacity_(capacity), uses_(capacity.size()) {}

  // `job` has these ranks on that node.
  void Take(uint64_t job, const Amount& rank, const Share& share, const Span& span);

  // What is free of a node, or of each, in all of `span`.
  Amount Least(size_t node, const Span& span) const;
  std::vector<Amount> Least(const Span& span) const;

  // The earliest from `not_before` on at which all ranks fit for `runs_ns` (kNoEnd: for ever),
  // where something ends; kNoEnd: they do not while those without an end run.
  int64_t EarliestStart(const Amount& rank, uint64_t ranks, const std::vector<bool>& allowed,
                        int64_t runs_ns, int64_t not_before) const;

  // The job at whose end, which is `time`, something is free on one of the nodes; 0: none.
  uint64_t EndsAt(int64_t time, const std::vector<Share>& shares) const;
  bool AnyEnd() const { return !ends_.empty(); }

 private:
  struct Use {
    uint64_t job = 0;
    Amount rank;
    uint64_t ranks = 0;
    Span span;
  };

  std::vector<Amount> capacity_;
  std::vector<std::vector<Use>> uses_;  // by node
  std::vector<int64_t> ends_;           // of all that have one, in order
};

// Beyond all time there is no end either.
inline Span SpanOf(int64_t from, int64_t runs_ns) {
  return {from, runs_ns > kNoEnd - from ? kNoEnd : from + runs_ns};
}

}  // namespace trireme::coordinator
