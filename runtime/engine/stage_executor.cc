#include "runtime/engine/stage_executor.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/mutation.h"
#include "runtime/plan/memory_plan.h"

namespace trireme::engine {

using graph::LoweredOp;
using graph::OpKind;
using graph::Phase;
using graph::Space;

namespace {

uint32_t SlotOf(graph::BufferPool pool, const v1::Instruction& instruction) {
  switch (pool) {
    case graph::BufferPool::kInput:
      return instruction.input();
    case graph::BufferPool::kOutput:
      return instruction.output();
    case graph::BufferPool::kGradientIn:
      return instruction.gradient_in();
    case graph::BufferPool::kGradientOut:
      return instruction.gradient_out();
    case graph::BufferPool::kActivation:
      return instruction.activation();
    case graph::BufferPool::kStash:
      return instruction.stash();
    case graph::BufferPool::kGradientStash:
      return instruction.gradient_stash();
    case graph::BufferPool::kTemporary:
      return 0;
  }
  TRIREME_CHECK(false);
}

}  // namespace

StageExecutor::StageExecutor(graph::StageOps ops, WorkingPlaces places,
                             const StageExecutorOptions& options)
    : ops_(std::move(ops)), places_(std::move(places)), options_(options) {}

absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Prepare(
    graph::StageOps ops, WorkingPlaces places, const StageExecutorOptions& options) {
  std::unique_ptr<StageExecutor> executor(
      new StageExecutor(std::move(ops), std::move(places), options));
  RETURN_IF_ERROR(executor->CheckSlots());
  RETURN_IF_ERROR(executor->PrepareList(executor->ops_.forward, executor->forward_));
  RETURN_IF_ERROR(executor->PrepareList(executor->ops_.backward, executor->backward_));
  RETURN_IF_ERROR(executor->PrepareList(executor->ops_.input_grad, executor->input_grad_));
  RETURN_IF_ERROR(executor->PrepareList(executor->ops_.weight_grad, executor->weight_grad_));
  return executor;
}

// The plan was made elsewhere: what does not fit its slots must not run.
absl::Status StageExecutor::CheckSlots() const {
  for (int pool = 0; pool <= static_cast<int>(graph::BufferPool::kTemporary); ++pool) {
    const auto buffers = static_cast<graph::BufferPool>(pool);
    const v1::PoolKind kind = plan::PoolKindOf(buffers);
    const size_t needed = static_cast<size_t>(ops_.Reach(buffers));
    const size_t planned =
        options_.arena->SlotBytes(kind, kind == v1::TEMPORARY ? 0 : options_.virtual_stage);
    if (needed <= planned) continue;
    return absl::InternalError(absl::StrCat(
        "stage ", options_.pipeline, ", virtual stage ", options_.virtual_stage,
        ", tensor coordinate ", options_.tensor_index, ": its operators need slots of ", needed,
        " bytes in the pool ", v1::PoolKind_Name(kind), ", the plan gives ", planned,
        "; the plan is broken, make it anew"));
  }
  return absl::OkStatus();
}

// Layers repeat, so equal specs share one kernel.
absl::Status StageExecutor::PrepareList(const std::vector<LoweredOp>& ops, List& list) {
  std::set<graph::ParameterId> written;
  std::map<Phase, const LoweredOp*> tiles;  // the first of the loss, for planted bugs
  for (const LoweredOp& op : ops) {
    Prepared prepared{.op = op};
    const graph::OperandRef& weight = op.operand[graph::kDW];
    const graph::OperandRef& target =
        weight.space == Space::kNone ? op.operand[graph::kDB] : weight;
    prepared.overwrites = places_.gradient_pool == v1::PARTIAL &&
                          target.space == Space::kGradient && written.insert(target.id).second;
    if (Mutated(Mutation::kRowOffsetIgnored)) prepared.op.spec.row_begin = 0;
    if (op.spec.kind == OpKind::kLmHeadLoss) {
      const LoweredOp& first = *tiles.emplace(op.spec.phase, &op).first->second;
      const bool rows = op.spec.phase == Phase::kWeightGrad && Mutated(Mutation::kTileRowsOfFirst);
      const bool loss = op.spec.phase == Phase::kInputGrad && Mutated(Mutation::kTileLossOfFirst);
      for (const auto& [planted, name] :
           {std::pair(rows, graph::kX), std::pair(loss, graph::kBase)})
        if (planted) prepared.op.operand[name] = first.operand[name];
    }
    if (!op.is_collective()) {
      for (const auto& [spec, kernel] : kernels_) {
        if (spec == prepared.op.spec) prepared.kernel = kernel.get();
      }
      if (prepared.kernel == nullptr) {
        auto kernel = options_.kernels->Prepare(prepared.op.spec, options_.prepare);
        if (!kernel.ok()) return base::Annotate(kernel.status(), op.name);
        prepared.kernel = kernel->get();
        kernels_.emplace_back(prepared.op.spec, *std::move(kernel));
      }
    }
    list.push_back(std::move(prepared));
  }
  return absl::OkStatus();
}

const StageExecutor::List& StageExecutor::ListOf(v1::InstructionKind kind) const {
  switch (kind) {
    case v1::F:
      return forward_;
    case v1::I:
      return input_grad_;
    case v1::W:
      return weight_grad_;
    case v1::B:
      return backward_;
    default:
      TRIREME_CHECK(false);
  }
}

void StageExecutor::Run(const v1::Instruction& instruction, tensor::Stream& stream) {
  const List& list = ListOf(instruction.kind());
  for (uint32_t begin = instruction.op_begin(); begin < instruction.op_end();) {
    if (list[begin].kernel == nullptr) {
      RunCollective(list[begin++], instruction, stream);
      options_.world->Progress();
      continue;
    }
    uint32_t end = begin + 1;
    while (end < instruction.op_end() && list[end].kernel != nullptr) ++end;
    // What is in flight moves on between operators.
    stream.Issue(tensor::Task([this, &list, begin, end, at = &instruction] {
      for (uint32_t index = begin; index < end; ++index) {
        RunKernel(list[index], *at);
        options_.world->Progress();
      }
    }));
    begin = end;
  }
}

void StageExecutor::RunKernel(const Prepared& prepared, const v1::Instruction& instruction) const {
  const int64_t start_ns = NowNs();
  const LoweredOp& op = prepared.op;
  const StepContext& context = *options_.context;
  graph::OpCall call;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    call.operand[name] = Resolve(op.operand[name], instruction).get();
  }
  if (op.at_position) {
    const int64_t elements = context.position * op.spec.x_ld;
    call.operand[graph::kX] = static_cast<std::byte*>(call.operand[graph::kX]) +
                              static_cast<size_t>(elements) * tensor::SizeOf(op.spec.dtype);
  }
  if (op.spec.phase == Phase::kWeightGrad) {
    const bool first =
        op.first_writer && instruction.micro_batch() == first_micro_batch_[instruction.kind()];
    call.accumulate = places_.gradient_pool == v1::PARTIAL ? !prepared.overwrites : !first;
    if (Mutated(Mutation::kOverwrittenGradient) && op.first_writer) call.accumulate = false;
    if (Mutated(Mutation::kLeftInGradientBuffer)) call.accumulate = true;
    if (Mutated(Mutation::kSkippedMicroBatch) && call.accumulate &&
        instruction.micro_batch() == last_micro_batch_[instruction.kind()]) {
      return;
    }
  }
  call.first_sample =
      context.first_sample + static_cast<int64_t>(instruction.micro_batch()) * options_.micro_batch;
  call.seed = context.seed;
  if (Mutated(Mutation::kDropoutPerTensorRank)) {
    call.seed += static_cast<uint64_t>(options_.tensor_index);
  }
  if (Mutated(Mutation::kRecomputedDropout) && op.recomputes) ++call.seed;
  call.step = Mutated(Mutation::kMasksRestart) ? 0 : context.step;
  call.training = context.training;
  call.loss_scale = *options_.loss_scale;
  call.scratch = {options_.arena->Slot(v1::SCRATCH, 0, 0).get(),
                  options_.arena->SlotBytes(v1::SCRATCH, 0)};
  prepared.kernel->Run(call);
  options_.trace->Add(ComputeSpan{start_ns, NowNs()});
}

void StageExecutor::RunCollective(const Prepared& prepared, const v1::Instruction& instruction,
                                  tensor::Stream& stream) const {
  const LoweredOp& op = prepared.op;
  comm::Communicator& group = *options_.tensor_group;
  void* data = Resolve(op.operand[graph::kY], instruction).get();
  if (Mutated(Mutation::kMissingBackwardReduce) && instruction.kind() != v1::F &&
      op.spec.kind == OpKind::kAllReduce) {
    return;
  }
  if (Mutated(Mutation::kGatherBackwardSlices) && instruction.kind() != v1::F &&
      op.spec.kind == OpKind::kReduceScatter) {
    return;
  }
  const comm::Sharded sharded{data, op.offsets, op.spec.dtype};
  const auto call = [&](const auto& options) {
    if (op.spec.kind == OpKind::kAllReduce) {
      return group.AllReduce(data, op.offsets.back(), op.spec.dtype, comm::ReduceOp::kSum, options);
    }
    return op.spec.kind == OpKind::kAllGather ? group.AllGather(sharded, options)
                                              : group.ReduceScatter(sharded, options);
  };
  const CommunicationSpan span{.kind = static_cast<uint32_t>(instruction.kind()),
                               .virtual_stage = instruction.virtual_stage(),
                               .micro_batch = instruction.micro_batch(),
                               .group = GroupName::kTensor};
  const Traced traced = options_.trace->Issue(span, group, stream, call);
  StepTrace::Stamp(stream, &traced.span->wait_start_ns);
  group.WaitOn(traced.ticket, stream, options_.limit());
  StepTrace::Stamp(stream, &traced.span->wait_end_ns);
}

tensor::DevicePointer StageExecutor::BufferAddress(int32_t buffer,
                                                   const v1::Instruction& instruction) const {
  const graph::Buffer& place = ops_.buffers[buffer];
  const v1::PoolKind kind = plan::PoolKindOf(place.pool);
  const uint32_t virtual_stage = kind == v1::TEMPORARY ? 0 : options_.virtual_stage;
  return options_.arena->Slot(kind, virtual_stage, SlotOf(place.pool, instruction)) +
         static_cast<size_t>(place.offset);
}

tensor::DevicePointer StageExecutor::Resolve(const graph::OperandRef& operand,
                                             const v1::Instruction& instruction) const {
  const Arena& arena = *options_.arena;
  const auto extra = static_cast<size_t>(operand.offset);
  const auto state = [&](v1::PoolKind pool, const std::vector<int64_t>& elements) {
    const size_t width = tensor::SizeOf(plan::StateDType(options_.dtype, pool));
    return arena.Slot(pool, 0, 0) + static_cast<size_t>(elements[operand.id]) * width + extra;
  };
  switch (operand.space) {
    case Space::kNone:
      return {};
    case Space::kBuffer:
      return BufferAddress(operand.id, instruction) + extra;
    case Space::kParameter:
      return state(places_.weight_pool, places_.weights);
    case Space::kGradient:
      return state(places_.gradient_pool, places_.gradients);
    case Space::kTokens:
      return arena.Slot(v1::TOKENS, 0, instruction.micro_batch());
    case Space::kTargets:
      return arena.Slot(v1::TOKENS, 0, instruction.micro_batch()) +
             arena.SlotBytes(v1::TOKENS, 0) / 2 + extra;
    case Space::kLossSum:
      return arena.Slot(v1::SCALARS, 0, 0);
  }
  TRIREME_CHECK(false);
}

}  // namespace trireme::engine
