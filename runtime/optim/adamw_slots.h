// AdamW from one slot of the state to another (docs/adr/0024): what it writes is the snapshot, so
// it goes past the caches, and the sums that guard it are made of the values before they are
// stored.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/checksum/lane_sums.h"
#include "runtime/optim/adamw.h"

namespace trireme::optim {

// Equally long parts of the arrays of one slot.
template <typename T>
struct StateSpans {
  std::span<T> parameter, moment1, moment2;
};

// Of the arrays that are written, the sums of their pieces so far (checksum::kSummedBytes each, the
// last filled with zeros), from that with the array's first element.
struct StateSums {
  std::span<checksum::LaneSums> parameter, moment1, moment2;
};

// All spans are equally long.
template <typename T, typename Weight>
struct SlotStep {
  StateSpans<const T> from;
  std::span<const T> gradient;
  // Also the same as `from`: each element is read before it is written. The arrays that these are
  // parts of begin on cache lines.
  StateSpans<T> to;
  std::span<Weight> weight;  // what is derived: the new parameters, rounded
  size_t first = 0;          // element of each array at which its span begins
  StateSums sums;
};

// The same bits as those of AdamW in place, whatever the cuts and the number of threads. Adds the
// sums of what it writes to `step.sums`: of spans that do not overlap, once each and in any order,
// they become those of the pieces, which were 0 before. Other threads see what is written once they
// see what this one stores afterwards. (T, Weight): (float, float), (float, BFloat16) or
// (double, double).
template <typename T, typename Weight>
void AdamW(const SlotStep<T, Weight>& step, const AdamWOptions& options);

}  // namespace trireme::optim
