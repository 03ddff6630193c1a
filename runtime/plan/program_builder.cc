#include "runtime/plan/program_builder.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace trireme::plan {

using v1::Instruction;

uint32_t SlotPool::Acquire() {
  if (free_.empty()) {
    used_.push_back(true);
    return static_cast<uint32_t>(used_.size()) - 1;
  }
  const uint32_t slot = free_.top();
  free_.pop();
  used_[slot] = true;
  return slot;
}

void SlotPool::Release(uint32_t slot) {
  TRIREME_CHECK(slot < used_.size() && used_[slot]);
  used_[slot] = false;
  free_.push(slot);
}

void SlotCounts::Raise(const SlotCounts& other) {
  activation = std::max(activation, other.activation);
  stash = std::max(stash, other.stash);
  gradient_stash = std::max(gradient_stash, other.gradient_stash);
  input = std::max(input, other.input);
  output = std::max(output, other.output);
  gradient_in = std::max(gradient_in, other.gradient_in);
  gradient_out = std::max(gradient_out, other.gradient_out);
  stored = std::max(stored, other.stored);
}

ProgramBuilder::ProgramBuilder(const ProgramOptions& options,
                               std::vector<const graph::StageOps*> stages, const StateLayout& state)
    : options_(options),
      stages_(std::move(stages)),
      state_(state),
      slots_(options.virtual_stages),
      walk_(stages_, state, options.zero_stage,
            {.gather = [this](uint32_t bucket) { return Gather(bucket); },
             .reduce = [this](uint32_t bucket) { return Reduce(bucket); },
             .wait = [this](uint32_t ticket) { AddWait(ticket, {}); }}) {
  ReduceTriggers();
}

// A bucket is complete after the last operator that writes one of its gradients.
void ProgramBuilder::ReduceTriggers() {
  triggers_.resize(stages_.size());
  std::map<graph::ParameterId, uint32_t> bucket_of;
  for (const StatePlace& place : state_.places) bucket_of[place.parameter] = place.bucket;
  struct Writer {
    size_t stage = 0;
    Triggers StageTriggers::*run = nullptr;
    uint32_t operators = 0;  // of the list, up to and with this one
  };
  std::vector<Writer> last(state_.buckets.size());
  const auto overwrite = [&](size_t stage, const std::vector<graph::LoweredOp>& list,
                             Triggers StageTriggers::*run) {
    for (size_t index = 0; index < list.size(); ++index) {
      for (graph::Operand name : {graph::kDW, graph::kDB}) {
        const graph::OperandRef& target = list[index].operand[name];
        if (target.space != graph::Space::kGradient) continue;
        last[bucket_of.at(target.id)] = {stage, run, static_cast<uint32_t>(index) + 1};
      }
    }
  };
  // Stages finish backward from the last to the first, the last I before the last W; later ones
  // overwrite.
  for (size_t stage = stages_.size(); stage-- > 0;) {
    overwrite(stage, stages_[stage]->backward, &StageTriggers::final_grad);
    overwrite(stage, stages_[stage]->input_grad, &StageTriggers::input_grad);
    overwrite(stage, stages_[stage]->weight_grad, &StageTriggers::final_grad);
  }
  for (size_t bucket = 0; bucket < last.size(); ++bucket) {
    const Writer& writer = last[bucket];
    (triggers_[writer.stage].*writer.run)
        .emplace_back(writer.operators, static_cast<uint32_t>(bucket));
  }
  for (StageTriggers& stage : triggers_) {
    std::sort(stage.input_grad.begin(), stage.input_grad.end());
    std::sort(stage.final_grad.begin(), stage.final_grad.end());
  }
}

void ProgramBuilder::Begin() {
  program_.Clear();
  pools_.assign(options_.virtual_stages, {});
  held_.clear();
  sends_.clear();
  swaps_.clear();
  backward_at_.clear();
  reduces_.clear();
  gathers_.clear();
  next_ticket_ = 1;
}

void ProgramBuilder::NoteOrder(const std::vector<ComputeStep>& order) {
  last_runs_.assign(options_.virtual_stages, {});
  for (size_t position = 0; position < order.size(); ++position) {
    const ComputeStep& step = order[position];
    LastRuns& last = last_runs_[step.virtual_stage];
    const bool is_final = step.kind == Compute::kBackward || step.kind == Compute::kWeightGrad;
    if (step.kind == Compute::kInputGrad) last.input_grad = position;
    if (is_final) last.final_grad = position;
    if (step.kind == Compute::kInputGrad || step.kind == Compute::kBackward) {
      backward_at_[{step.virtual_stage, step.micro_batch}] = position;
    }
  }
}

v1::Program ProgramBuilder::BuildStep(const std::vector<ComputeStep>& order) {
  Begin();
  NoteOrder(order);
  Add(v1::LOAD, {});
  use_ = graph::ForwardUse::kStep;
  training_ = true;
  Walk(order);
  Finish();
  CountSlots();
  return std::move(program_);
}

v1::Program ProgramBuilder::BuildForward(const std::vector<ComputeStep>& order,
                                         uint32_t micro_batches, graph::ForwardUse use) {
  Begin();
  std::vector<ComputeStep> forward;
  for (const ComputeStep& step : order) {
    if (step.kind == Compute::kForward && step.micro_batch < micro_batches) forward.push_back(step);
  }
  Add(v1::LOAD, {});
  use_ = use;
  training_ = false;
  Walk(forward);
  CountSlots();
  return std::move(program_);
}

void ProgramBuilder::Walk(const std::vector<ComputeStep>& order) {
  walk_.Begin(order, use_);
  if (!order.empty()) IssueReceive(order[0]);
  for (position_ = 0; position_ < order.size(); ++position_) {
    const ComputeStep& step = order[position_];
    WaitReceive(step);
    // The next input travels while this instruction computes.
    if (position_ + 1 < order.size()) IssueReceive(order[position_ + 1]);
    if (step.kind == Compute::kForward) {
      Forward(step);
    } else {
      BackwardSteps(step);
    }
    SendAfter(step, position_);
    WaitSends(position_, /*all=*/false);
    WaitSwaps(position_, /*all=*/false);
  }
  WaitSends(position_, /*all=*/true);
  WaitSwaps(position_, /*all=*/true);
}

// Only the slots that the instruction touches: a plan for thousands of ranks is mostly
// instructions.
void ProgramBuilder::SetSlots(v1::InstructionKind kind, const Held& held,
                              Instruction& instruction) {
  const bool compute = kind == v1::F || kind == v1::I || kind == v1::W || kind == v1::B;
  const bool swap = kind == v1::SWAP_OUT || kind == v1::SWAP_IN;
  if (swap || (compute && kind != v1::W)) instruction.set_activation(held.activation);
  if (swap || compute) instruction.set_stash(held.stash);
  if (swap) instruction.set_stored(held.stored);
  if (kind == v1::I || kind == v1::W) instruction.set_gradient_stash(held.gradient_stash);
  if (compute || kind == v1::RECV_ACT) instruction.set_input(held.input);
  if (kind == v1::F || kind == v1::SEND_ACT) instruction.set_output(held.output);
  if ((compute && kind != v1::F) || kind == v1::RECV_GRAD) {
    instruction.set_gradient_in(held.gradient_in);
  }
  if (kind == v1::I || kind == v1::B || kind == v1::SEND_GRAD) {
    instruction.set_gradient_out(held.gradient_out);
  }
}

Instruction& ProgramBuilder::Add(v1::InstructionKind kind, const ComputeStep& step) {
  Instruction& instruction = *program_.add_instructions();
  instruction.set_kind(kind);
  instruction.set_virtual_stage(step.virtual_stage);
  instruction.set_micro_batch(step.micro_batch);
  const auto found = held_.find({step.virtual_stage, step.micro_batch});
  if (found != held_.end()) SetSlots(kind, found->second, instruction);
  return instruction;
}

void ProgramBuilder::AddWait(uint32_t ticket, const ComputeStep& step) {
  Add(v1::WAIT, step).set_ticket(ticket);
}

// The neighbours in the ring of virtual stages: going forward from the last rank leads to the
// first.
static int32_t PeerOffset(const ProgramOptions& options, bool next) {
  const int32_t rank = static_cast<int32_t>(options.rank);
  const int32_t ranks = static_cast<int32_t>(options.ranks);
  if (next) return rank + 1 == ranks ? -rank : 1;
  return rank == 0 ? ranks - 1 : -1;
}

// A channel belongs to (direction, virtual stage of the producer's side of the cut), so its
// messages ascend in micro-batch.
static uint32_t Channel(bool gradient, uint32_t cut) { return 2 * cut + (gradient ? 1 : 0); }

void ProgramBuilder::IssueReceive(const ComputeStep& step) {
  SwapIn(step);
  if (!Receives(step)) return;
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  StagePools& pools = pools_[step.virtual_stage];
  const uint32_t global = step.virtual_stage * options_.ranks + options_.rank;
  if (step.kind == Compute::kForward) {
    held.input = pools.input.Acquire();
    held.receive_act = next_ticket_++;
    Instruction& receive = Add(v1::RECV_ACT, step);
    receive.set_peer(PeerOffset(options_, /*next=*/false));
    receive.set_channel(Channel(false, global - 1));
    receive.set_coded(options_.code_messages && training_);
    receive.set_ticket(held.receive_act);
  } else {
    held.gradient_in = pools.gradient_in.Acquire();
    held.receive_grad = next_ticket_++;
    Instruction& receive = Add(v1::RECV_GRAD, step);
    receive.set_peer(PeerOffset(options_, /*next=*/true));
    receive.set_channel(Channel(true, global));
    receive.set_coded(options_.code_messages && training_);
    receive.set_ticket(held.receive_grad);
  }
}

void ProgramBuilder::WaitReceive(const ComputeStep& step) {
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  if (held.swap_in != 0) {
    AddWait(std::exchange(held.swap_in, 0), step);
    pools_[step.virtual_stage].stored.Release(held.stored);
  }
  if (step.kind == Compute::kForward && held.receive_act != 0) AddWait(held.receive_act, step);
  if ((step.kind == Compute::kBackward || step.kind == Compute::kInputGrad) &&
      held.receive_grad != 0) {
    AddWait(held.receive_grad, step);
  }
}

uint32_t ProgramBuilder::Length(const ComputeStep& step) const {
  const graph::StageOps& ops = *stages_[step.virtual_stage];
  switch (step.kind) {
    case Compute::kForward:
      return ops.ForwardEnd(use_);
    case Compute::kInputGrad:
      return static_cast<uint32_t>(ops.input_grad.size());
    case Compute::kWeightGrad:
      return static_cast<uint32_t>(ops.weight_grad.size());
    case Compute::kBackward:
      return static_cast<uint32_t>(ops.backward.size());
  }
  TRIREME_CHECK(false);
}

void ProgramBuilder::Forward(const ComputeStep& step) {
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  StagePools& pools = pools_[step.virtual_stage];
  held.activation = pools.activation.Acquire();
  held.stash = pools.stash.Acquire();
  if (!LastStage(step.virtual_stage)) held.output = pools.output.Acquire();
  AddCompute(v1::F, step, walk_.gathers());
  if (training_) {
    if (GoesOut(step)) SwapOut(step);
    return;
  }
  pools.activation.Release(held.activation);
  pools.stash.Release(held.stash);
  if (!FirstStage(step.virtual_stage)) pools.input.Release(held.input);
}

void ProgramBuilder::BackwardSteps(const ComputeStep& step) {
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  StagePools& pools = pools_[step.virtual_stage];
  if (step.kind != Compute::kWeightGrad && !FirstStage(step.virtual_stage)) {
    held.gradient_out = pools.gradient_out.Acquire();
  }
  if (step.kind == Compute::kInputGrad) held.gradient_stash = pools.gradient_stash.Acquire();
  const v1::InstructionKind kind = step.kind == Compute::kInputGrad    ? v1::I
                                   : step.kind == Compute::kWeightGrad ? v1::W
                                                                       : v1::B;
  const LastRuns& last = last_runs_[step.virtual_stage];
  const bool input_grad = step.kind == Compute::kInputGrad;
  const bool is_last = position_ == (input_grad ? last.input_grad : last.final_grad);
  if (is_last && !walk_.reduces()) {
    LastBackward(kind, step);
  } else {
    AddCompute(kind, step, walk_.reduces());
  }
  if (step.kind != Compute::kWeightGrad) pools.activation.Release(held.activation);
  if (step.kind == Compute::kInputGrad) return;
  pools.stash.Release(held.stash);
  if (step.kind == Compute::kWeightGrad) pools.gradient_stash.Release(held.gradient_stash);
  if (!FirstStage(step.virtual_stage)) pools.input.Release(held.input);
  if (!LastStage(step.virtual_stage)) pools.gradient_in.Release(held.gradient_in);
}

void ProgramBuilder::AddPart(v1::InstructionKind kind, const ComputeStep& step, uint32_t begin,
                             uint32_t end) {
  Instruction& part = Add(kind, step);
  part.set_op_begin(begin);
  part.set_op_end(end);
}

void ProgramBuilder::AddCompute(v1::InstructionKind kind, const ComputeStep& step, bool by_block) {
  if (!by_block) return AddPart(kind, step, 0, Length(step));
  for (const BlockOps& block : walk_.BlocksOf(step)) {
    walk_.Before(block);
    AddPart(kind, step, block.begin, block.end);
    walk_.After(block);
  }
}

void ProgramBuilder::LastBackward(v1::InstructionKind kind, const ComputeStep& step) {
  const StageTriggers& triggers = triggers_[step.virtual_stage];
  const uint32_t end = Length(step);
  uint32_t begin = 0;
  for (const auto& [done, bucket] :
       step.kind == Compute::kInputGrad ? triggers.input_grad : triggers.final_grad) {
    if (done > begin) AddPart(kind, step, std::exchange(begin, done), done);
    reduces_.push_back(Reduce(bucket));
  }
  if (begin < end || end == 0) AddPart(kind, step, begin, end);
}

// None is waited for before backward is over: neighbours would stand behind a slower replica of
// this stage with the patience for a pipeline alone (docs/adr/0010), and a tied one's WAIT meets
// that of the other end of the pipeline, which may need what this end has still to send. A stage
// has few enough buckets for that (kMostBuckets).
uint32_t ProgramBuilder::Reduce(uint32_t bucket) {
  Instruction& reduce = Add(v1::REDUCE, {});
  reduce.set_bucket(bucket);
  reduce.set_coded(!options_.coded_buckets.empty() && options_.coded_buckets[bucket]);
  reduce.set_ticket(next_ticket_);
  return next_ticket_++;
}

uint32_t ProgramBuilder::Gather(uint32_t bucket) {
  Instruction& gather = Add(v1::GATHER, {});
  gather.set_bucket(bucket);
  gather.set_ticket(next_ticket_);
  return next_ticket_++;
}

void ProgramBuilder::SendAfter(const ComputeStep& step, size_t position) {
  const uint32_t global = step.virtual_stage * options_.ranks + options_.rank;
  const Held& held = held_[{step.virtual_stage, step.micro_batch}];
  StagePools& pools = pools_[step.virtual_stage];
  const bool forward = step.kind == Compute::kForward;
  if (!Sends(step)) return;
  Instruction& send = Add(forward ? v1::SEND_ACT : v1::SEND_GRAD, step);
  send.set_peer(PeerOffset(options_, /*next=*/forward));
  send.set_channel(forward ? Channel(false, global) : Channel(true, global - 1));
  send.set_coded(options_.code_messages && training_);
  send.set_ticket(next_ticket_);
  sends_.push_back({.position = position,
                    .ticket = next_ticket_++,
                    .pool = forward ? &pools.output : &pools.gradient_out,
                    .slot = forward ? held.output : held.gradient_out});
}

void ProgramBuilder::WaitSends(size_t position, bool all) {
  while (!sends_.empty() && (all || sends_.front().position + options_.send_lag <= position)) {
    AddWait(sends_.front().ticket, {});
    sends_.front().pool->Release(sends_.front().slot);
    sends_.pop_front();
  }
}

void ProgramBuilder::Finish() {
  for (const uint32_t ticket : reduces_) AddWait(ticket, {});
  walk_.Finish();
  for (uint32_t bucket = 0; walk_.reduces() && bucket < state_.buckets.size(); ++bucket) {
    const v1::Bucket& shape = state_.buckets[bucket];
    if (IsPartialOver(shape, v1::AXIS_TENSOR) || IsPartialOver(shape, v1::AXIS_TIED)) {
      Add(v1::SUM, {}).set_bucket(bucket);
    }
  }
  if (options_.pieces.empty()) {
    Update();
  } else {
    UpdateInPieces();
  }
  for (uint32_t ticket : gathers_) AddWait(ticket, {});
}

// A GATHER comes right after its STEP, so that it travels while the next bucket's STEP runs.
void ProgramBuilder::Update() {
  Add(v1::NORM, {});
  for (uint32_t bucket = 0; bucket < state_.buckets.size(); ++bucket) {
    Add(v1::STEP, {}).set_bucket(bucket);
    GatherUpdated(bucket);
  }
}

void ProgramBuilder::CountSlots() {
  for (size_t stage = 0; stage < pools_.size(); ++stage) {
    const StagePools& pools = pools_[stage];
    slots_[stage].Raise({.activation = pools.activation.peak(),
                         .stash = pools.stash.peak(),
                         .gradient_stash = pools.gradient_stash.peak(),
                         .input = pools.input.peak(),
                         .output = pools.output.peak(),
                         .gradient_in = pools.gradient_in.peak(),
                         .gradient_out = pools.gradient_out.peak(),
                         .stored = pools.stored.peak()});
  }
}

}  // namespace trireme::plan
