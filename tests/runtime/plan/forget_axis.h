// A bucket that is not summed over one of its axes.
#pragma once

#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

inline void Forget(v1::ReduceAxis axis, v1::Bucket& bucket) {
  const v1::Bucket whole = bucket;
  bucket.clear_axes();
  for (const int each : whole.axes()) {
    if (each != axis) bucket.add_axes(static_cast<v1::ReduceAxis>(each));
  }
}

}  // namespace trireme::plan
