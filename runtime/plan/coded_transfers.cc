#include "runtime/plan/coded_transfers.h"

#include <algorithm>

#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace {

// Elements of a replica's share. Coded sums go to the owner of each share, n(n-1) messages each
// way; plain ones of so few bytes take a tree, 2(n-1) in all (kTreeBytesPerRank of runtime/comm).
constexpr int64_t kLeastCodedShare = 512 / sizeof(float);

template <typename Axis>
bool Codes(const Axis& axis, tensor::DType dtype, int64_t bytes) {
  const bool on = axis.mode() == "on" || axis.mode() == "auto";
  return on && dtype == tensor::DType::kF32 && bytes >= axis.min_bytes();
}

}  // namespace

bool SumsTravelAsBf16(const v1::JobSpec& job) {
  return job.training().gradient_transfer() == "bf16";
}

std::vector<bool> CodedBuckets(const v1::Plan& plan, const StateLayout& state) {
  std::vector<bool> coded(state.buckets.size(), false);
  if (plan.mesh().data() < 2) return coded;
  const tensor::DType dtype = StateDType(ComputeDType(plan.job()), v1::GRADIENT);
  const v1::DataCompressionSpec& axis = plan.job().compression().data_parallel();
  const bool as_bf16 = SumsTravelAsBf16(plan.job()) && dtype == tensor::DType::kF32;
  for (size_t bucket = 0; bucket < coded.size(); ++bucket) {
    const int64_t elements = static_cast<int64_t>(state.buckets[bucket].count());
    const bool asked =
        as_bf16 || Codes(axis, dtype, elements * static_cast<int64_t>(sizeof(float)));
    coded[bucket] = asked && elements / plan.mesh().data() > kLeastCodedShare;
  }
  return coded;
}

bool IsMessage(const v1::Instruction& instruction) {
  return instruction.kind() >= v1::SEND_ACT && instruction.kind() <= v1::RECV_GRAD;
}

bool IsSend(const v1::Instruction& instruction) {
  return instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::SEND_GRAD;
}

CodedPeaks CodedPeaksOf(const v1::Program& step) {
  CodedPeaks peaks;
  std::vector<const v1::Instruction*> issued;
  size_t sends = 0, receives = 0;
  for (const v1::Instruction& instruction : step.instructions()) {
    if (instruction.ticket() >= issued.size()) issued.resize(instruction.ticket() + 1);
    const bool wait = instruction.kind() == v1::WAIT;
    const v1::Instruction* transfer = wait ? issued[instruction.ticket()] : &instruction;
    if (!wait) issued[instruction.ticket()] = &instruction;
    if (transfer == nullptr || !transfer->coded()) continue;
    if (transfer->kind() == v1::REDUCE) peaks.sums = true;
    if (!IsMessage(*transfer)) continue;
    size_t& count = IsSend(*transfer) ? sends : receives;
    count += wait ? -1 : 1;
    peaks.messages = std::max(peaks.messages, count);
  }
  return peaks;
}

bool CodesMessages(const v1::Plan& plan, const graph::StageOps& ops) {
  return Codes(plan.job().compression().pipeline(), ComputeDType(plan.job()), ops.boundary_bytes);
}

}  // namespace trireme::plan
