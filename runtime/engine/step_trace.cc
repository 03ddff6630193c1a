// Names of groups.
#include "runtime/engine/step_trace.h"

namespace trireme::engine {

std::string_view TextOf(GroupName name) {
  switch (name) {
    case GroupName::kWorld:
      return "world";
    case GroupName::kTensor:
      return "tensor";
    case GroupName::kData:
      return "data";
    case GroupName::kPipeline:
      return "pipeline";
    case GroupName::kTied:
      return "tied";
  }
  return "?";
}

TraceSums StepTrace::Sums() const {
  constexpr double kMsPerNs = 1e-6;
  int64_t compute_ns = 0, wait_ns = 0, offload_ns = 0;
  for (const ComputeSpan& span : computes_) compute_ns += span.end_ns - span.start_ns;
  for (const CommunicationSpan& span : communications_) {
    if (span.wait_end_ns != 0) wait_ns += span.wait_end_ns - span.wait_start_ns;
  }
  for (const OffloadSpan& span : offloads_) {
    if (span.end_ns != 0) offload_ns += span.end_ns - span.start_ns;
  }
  return {static_cast<double>(compute_ns) * kMsPerNs, static_cast<double>(wait_ns) * kMsPerNs,
          static_cast<double>(offload_ns) * kMsPerNs};
}

}  // namespace trireme::engine
