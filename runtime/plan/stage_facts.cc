#include "runtime/plan/stage_facts.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/coded_transfers.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace {

using graph::LoweredOp;
using graph::StageOps;
using OpList = std::vector<LoweredOp>;

constexpr OpList StageOps::*kLists[] = {&StageOps::forward, &StageOps::input_grad,
                                        &StageOps::weight_grad, &StageOps::backward};

std::string NameOf(const OpList& list, size_t index) {
  return index < list.size() ? list[index].name : "the end of its list";
}

// The members of a tensor group meet in their collectives only if they run the same lists.
absl::Status CheckSameLists(const StageOps& first, const StageOps& other,
                            const std::string& where) {
  for (const auto member : kLists) {
    const OpList &a = first.*member, &b = other.*member;
    for (size_t index = 0; index < std::max(a.size(), b.size()); ++index) {
      const bool both = index < a.size() && index < b.size();
      if (both && a[index].spec.kind == b[index].spec.kind &&
          a[index].spec.phase == b[index].spec.phase && a[index].offsets == b[index].offsets) {
        continue;
      }
      return absl::InternalError(absl::StrCat(
          where, " would run ", NameOf(b, index), " as operator ", index,
          " where coordinate 0 runs ", NameOf(a, index), ": their collectives could not meet"));
    }
  }
  return absl::OkStatus();
}

void RaiseSlots(const StageOps& ops, VirtualStageFacts& facts) {
  for (int pool = 0; pool <= static_cast<int>(graph::BufferPool::kTemporary); ++pool) {
    const auto buffers = static_cast<graph::BufferPool>(pool);
    uint64_t& bytes = facts.slot_bytes[PoolKindOf(buffers)];
    bytes = std::max(bytes, static_cast<uint64_t>(ops.Reach(buffers)));
  }
}

void AddTouches(const StageOps& ops, VirtualStageFacts& facts) {
  constexpr std::pair<OpList StageOps::*, v1::InstructionKind> kKinds[] = {
      {&StageOps::forward, v1::F},
      {&StageOps::input_grad, v1::I},
      {&StageOps::weight_grad, v1::W},
      {&StageOps::backward, v1::B}};
  for (const auto& [list, kind] : kKinds) {
    for (const LoweredOp& op : ops.*list) {
      for (const graph::OperandRef& operand : op.operand) {
        if (operand.space != graph::Space::kBuffer) continue;
        const graph::BufferPool pool = ops.buffers[static_cast<size_t>(operand.id)].pool;
        facts.touched_by[PoolKindOf(pool)] |= ListBit(kind);
      }
    }
  }
}

// Of a list that writes gradients.
VirtualStageFacts::Writes PartlyWritten(const OpList& list,
                                        const std::map<graph::ParameterId, uint32_t>& bucket_of) {
  std::map<uint32_t, size_t> parameters, begins;
  for (const auto& [parameter, bucket] : bucket_of) ++parameters[bucket];
  std::set<graph::ParameterId> written;
  for (uint32_t index = 0; index < list.size(); ++index) {
    for (const graph::OperandRef& operand : list[index].operand) {
      if (operand.space != graph::Space::kGradient || !written.insert(operand.id).second) continue;
      const uint32_t bucket = bucket_of.at(operand.id);
      begins.emplace(bucket, index);
      --parameters[bucket];
    }
  }
  VirtualStageFacts::Writes partly;
  for (const auto& [bucket, index] : begins) {
    if (parameters[bucket] > 0) partly.emplace_back(static_cast<uint32_t>(index), bucket);
  }
  return partly;
}

void AddLists(const StageOps& ops, const std::map<graph::ParameterId, uint32_t>& bucket_of,
              VirtualStageFacts& facts) {
  facts.forward = ops.forward_end;
  facts.input_grad = static_cast<uint32_t>(ops.input_grad.size());
  facts.weight_grad = static_cast<uint32_t>(ops.weight_grad.size());
  facts.backward = static_cast<uint32_t>(ops.backward.size());
  const auto add = [&](const OpList& list, VirtualStageFacts::Writes& writes) {
    for (uint32_t index = 0; index < list.size(); ++index) {
      for (const graph::OperandRef& operand : list[index].operand) {
        if (operand.space != graph::Space::kGradient) continue;
        writes.emplace_back(index, bucket_of.at(operand.id));
      }
    }
  };
  const auto add_reads = [&](const OpList& list, VirtualStageFacts::Writes& reads) {
    for (uint32_t index = 0; index < list.size(); ++index) {
      for (const graph::OperandRef& operand : list[index].operand) {
        if (operand.space != graph::Space::kParameter) continue;
        reads.emplace_back(index, bucket_of.at(operand.id));
      }
    }
  };
  facts.partly[v1::I] = PartlyWritten(ops.input_grad, bucket_of);
  facts.partly[v1::W] = PartlyWritten(ops.weight_grad, bucket_of);
  facts.partly[v1::B] = PartlyWritten(ops.backward, bucket_of);
  add_reads(ops.forward, facts.reads[v1::F]);
  add_reads(ops.input_grad, facts.reads[v1::I]);
  add_reads(ops.weight_grad, facts.reads[v1::W]);
  add_reads(ops.backward, facts.reads[v1::B]);
  add(ops.weight_grad.empty() ? ops.backward : ops.weight_grad, facts.writes);
  add(ops.input_grad, facts.input_grad_writes);
}

}  // namespace

absl::StatusOr<StageFacts> FactsOf(const v1::Plan& plan, const LoweredStage& lowered,
                                   uint32_t pipeline) {
  const StateLayout& state = lowered.state;
  std::map<graph::ParameterId, uint32_t> bucket_of;
  for (const StatePlace& place : state.places) bucket_of[place.parameter] = place.bucket;
  StageFacts facts;
  facts.buckets = state.buckets;
  facts.coded_buckets = CodedBuckets(plan, state);
  const std::vector<StageOps>& first = lowered.ops[0];
  facts.code_messages = CodesMessages(plan, first[0]);
  facts.virtual_stages.resize(first.size());
  for (size_t index = 0; index < first.size(); ++index) {
    AddLists(first[index], bucket_of, facts.virtual_stages[index]);
  }
  for (size_t tensor = 0; tensor < lowered.ops.size(); ++tensor) {
    const std::vector<StageOps>& stages = lowered.ops[tensor];
    for (size_t index = 0; index < stages.size(); ++index) {
      RETURN_IF_ERROR(CheckSameLists(first[index], stages[index],
                                     absl::StrCat("stage ", pipeline, ", virtual stage ", index,
                                                  ", tensor coordinate ", tensor)));
      RaiseSlots(stages[index], facts.virtual_stages[index]);
      AddTouches(stages[index], facts.virtual_stages[index]);
    }
  }
  for (VirtualStageFacts& stage : facts.virtual_stages) {
    uint64_t& temporary = facts.pool_bytes[v1::TEMPORARY];
    temporary = std::max(temporary, std::exchange(stage.slot_bytes[v1::TEMPORARY], 0));
  }
  const tensor::DType dtype = ComputeDType(plan.job());
  const auto elements = static_cast<uint64_t>(state.elements);
  const uint64_t share = elements / plan.mesh().data();
  const int64_t zero = plan.job().parallelism().zero_stage();
  const uint64_t wide = tensor::SizeOf(tensor::AccumulatorOf(dtype));
  const uint64_t updated = (zero >= 1 ? share : elements) * wide;
  facts.pool_bytes[v1::PARAMETER] = (zero >= 3 ? share : elements) * tensor::SizeOf(dtype);
  facts.pool_bytes[v1::GRADIENT] = (zero >= 2 ? share : elements) * wide;
  facts.pool_bytes[v1::MOMENT1] = facts.pool_bytes[v1::MOMENT2] = updated;
  const bool masters = dtype == tensor::DType::kBf16 || plan.snapshot_slots() > 0;
  facts.pool_bytes[v1::MASTER] = masters ? updated : 0;
  // Ids of a micro-batch, for the embedding, and targets, for the loss.
  if (pipeline == 0 || pipeline + 1 == plan.mesh().pipeline()) {
    facts.pool_bytes[v1::TOKENS] = 2 * sizeof(int32_t) *
                                   static_cast<uint64_t>(plan.job().training().micro_batch_size()) *
                                   static_cast<uint64_t>(plan.job().data().sequence_length());
  }
  facts.pool_bytes[v1::SCALARS] = kScalarBytes;
  return facts;
}

absl::StatusOr<std::vector<StageFacts>> FactsOf(const v1::Plan& plan,
                                                const graph::ModelGraph& graph) {
  std::vector<StageFacts> facts;
  for (uint32_t pipeline = 0; pipeline < plan.mesh().pipeline(); ++pipeline) {
    ASSIGN_OR_RETURN(facts.emplace_back(),
                     FactsOf(plan, LowerStage(plan, graph, pipeline), pipeline));
  }
  return facts;
}

}  // namespace trireme::plan
