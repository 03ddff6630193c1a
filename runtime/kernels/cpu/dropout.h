// The dropout stream of a call (runtime/base/philox.h) in the form of the vector loops.
#pragma once

#include "runtime/base/philox.h"
#include "runtime/graph/op_spec.h"
#include "runtime/kernels/cpu/row_loops.h"

namespace trireme::kernels::cpu {

inline bool HasDropout(const graph::OpSpec& spec, const graph::OpCall& call) {
  return call.training && spec.dropout_p > 0;
}

inline DropoutStream MakeDropoutStream(const graph::OpSpec& spec, const graph::OpCall& call) {
  const base::RandomSite site{call.seed, spec.site, call.step};
  DropoutStream stream;
  // RandomSite::Block's key.
  stream.key = site.seed ^ (site.site * 0x9E3779B97F4A7C15ull + (site.site >> 29));
  stream.step = site.step;
  stream.threshold = base::DropThreshold(spec.dropout_p);
  stream.keep_scale = static_cast<float>(1 / (1 - spec.dropout_p));
  return stream;
}

}  // namespace trireme::kernels::cpu
