// Dropout by element index: what to multiply an element with. The index counts elements of the
// global tensor, so the mask is the same in every layout. A dropped NaN stays a NaN (0 * NaN):
// nothing is hidden.
#pragma once

#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/graph/op_spec.h"

namespace trireme::kernels::ref {

class Dropout {
 public:
  // spec.dropout_p must lie in [0, 1). Without dropout (p == 0, or not training) every factor is 1.
  Dropout(const graph::OpSpec& spec, const graph::OpCall& call)
      : site_{call.seed, spec.site, call.step},
        active_(call.training && spec.dropout_p > 0),
        threshold_(active_ ? base::DropThreshold(spec.dropout_p) : 0),
        kept_(active_ ? 1.0 / (1.0 - spec.dropout_p) : 1.0) {
    TRIREME_CHECK(spec.dropout_p >= 0 && spec.dropout_p < 1);
  }

  bool active() const { return active_; }

  // 0 or 1 / (1 - p).
  double Factor(int64_t index) {
    if (!active_) return 1.0;
    const uint64_t element = static_cast<uint64_t>(index);
    // Four neighbours share a block.
    if (element / 4 != block_index_) {
      block_index_ = element / 4;
      block_ = site_.Block(block_index_);
    }
    return block_[element % 4] < threshold_ ? 0.0 : kept_;
  }

 private:
  base::RandomSite site_;
  bool active_;
  uint32_t threshold_;
  double kept_;
  uint64_t block_index_ = ~uint64_t{0};
  base::PhiloxBlock block_{};
};

}  // namespace trireme::kernels::ref
