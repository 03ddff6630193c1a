#include "runtime/plan/coded_transfers.h"

namespace trireme::plan {

namespace {

template <typename Axis>
bool Codes(const v1::Plan& plan, const Axis& axis, int64_t elements) {
  const bool on = axis.mode() == "on" || axis.mode() == "auto";
  return on && plan.job().training().dtype() == "f32" &&
         elements * static_cast<int64_t>(sizeof(float)) >= axis.min_bytes();
}

}  // namespace

std::vector<bool> CodedBuckets(const v1::Plan& plan, const StateLayout& state) {
  std::vector<bool> coded(state.buckets.size(), false);
  if (plan.mesh().data() < 2) return coded;
  const v1::DataCompressionSpec& axis = plan.job().compression().data_parallel();
  for (size_t bucket = 0; bucket < coded.size(); ++bucket) {
    coded[bucket] = Codes(plan, axis, static_cast<int64_t>(state.buckets[bucket].count()));
  }
  return coded;
}

bool CodesMessages(const v1::Plan& plan, const graph::StageOps& ops) {
  return Codes(plan, plan.job().compression().pipeline(), ops.boundary_elements);
}

}  // namespace trireme::plan
