// What one rank needs of a plan. A whole plan grows with the depth of the pipeline, since each
// stage has instructions of its own; a rank runs only those of its stage.
#pragma once

#include <cstdint>

#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// The plan for `rank`, which is one of its mesh: the other stages keep their blocks, fingerprints
// and arena_bytes, and lose programs, pools and buckets. Of a slice of the same stage: the same.
v1::Plan SliceOf(const v1::Plan& plan, int rank);

// By which ranks tell whether they hold slices of one plan.
struct SliceHash {
  uint64_t common = 0;  // of what all slices have: the same on every rank
  uint64_t stage = 0;   // of `rank`'s own stage: the same on the ranks of a stage
};
// The same of a plan and of its slice for `rank`, in programs of one version.
SliceHash HashOf(const v1::Plan& plan, int rank);

}  // namespace trireme::plan
