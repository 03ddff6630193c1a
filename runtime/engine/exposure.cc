// Unions of intervals, and what is left of them beside the intervals of computing.
#include "runtime/engine/exposure.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trireme::engine {

namespace {

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

void AddInterval(Intervals& intervals, int64_t start, int64_t end) {
  if (start > 0 && end > start) intervals.emplace_back(start, end);
}

// Sorted and free of overlaps.
void Unite(Intervals& intervals) {
  std::sort(intervals.begin(), intervals.end());
  size_t kept = 0;
  for (const auto& each : intervals) {
    if (kept > 0 && each.first <= intervals[kept - 1].second) {
      intervals[kept - 1].second = std::max(intervals[kept - 1].second, each.second);
    } else {
      intervals[kept++] = each;
    }
  }
  intervals.resize(kept);
}

// Length of `all` outside of `taken`; both united.
int64_t LengthWithout(const Intervals& all, const Intervals& taken) {
  int64_t length = 0;
  size_t next = 0;
  for (const auto& [start, end] : all) {
    length += end - start;
    while (next < taken.size() && taken[next].second <= start) ++next;
    for (size_t at = next; at < taken.size() && taken[at].first < end; ++at) {
      length -= std::min(end, taken[at].second) - std::max(start, taken[at].first);
    }
  }
  return length;
}

}  // namespace

Exposure ExposureOf(const StepTrace& trace) {
  Intervals computing, outstanding, late, swapping;
  for (const ComputeSpan& span : trace.computes()) {
    AddInterval(computing, span.start_ns, span.end_ns);
  }
  for (const CommunicationSpan& span : trace.communications()) {
    AddInterval(outstanding, span.issued_ns, span.done_ns);
    // The engine's thread may wait for what the stream has not come to yet.
    const int64_t wait_start_ns = std::max(span.wait_start_ns, span.issued_ns);
    // Longer where another thread saw it done first, and the one that waits still slept.
    AddInterval(outstanding, wait_start_ns, span.wait_end_ns);
    AddInterval(late, wait_start_ns, std::min(span.wait_end_ns, span.all_issued_ns));
  }
  for (const OffloadSpan& span : trace.offloads()) {
    AddInterval(swapping, span.start_ns, span.end_ns);
  }
  Unite(computing);
  Unite(outstanding);
  Unite(late);
  Unite(swapping);
  Intervals taken = computing;
  taken.insert(taken.end(), swapping.begin(), swapping.end());
  Unite(taken);
  return {.exposed_ns = LengthWithout(outstanding, taken),
          .bubble_ns = LengthWithout(late, taken),
          .offload_ns = LengthWithout(swapping, computing)};
}

}  // namespace trireme::engine
