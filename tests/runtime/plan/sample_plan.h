// A plan made by hand for the tests of the verifier: every pool has a slot per micro-batch, sends
// are waited for at the end, receives at once; two operators per list; one bucket, tied between the
// first and last coordinate.
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/plan/schedule.h"
#include "runtime/plan/stage_facts.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

class SampleProgram {
 public:
  SampleProgram(const ScheduleOptions& options, uint32_t rank, bool training)
      : options_(options), rank_(rank), training_(training) {}

  v1::Program Build(const std::vector<ComputeStep>& order) {
    Add(v1::LOAD);
    for (const ComputeStep& step : order) {
      if (training_ || step.kind == Compute::kForward) Compute1(step);
    }
    for (const uint32_t ticket : sends_) Add(v1::WAIT).set_ticket(ticket);
    if (training_) Finish();
    return program_;
  }

 private:
  v1::Instruction& Add(v1::InstructionKind kind) {
    v1::Instruction& instruction = *program_.add_instructions();
    instruction.set_kind(kind);
    return instruction;
  }

  v1::Instruction& AddFor(v1::InstructionKind kind, const ComputeStep& step) {
    v1::Instruction& instruction = Add(kind);
    instruction.set_virtual_stage(step.virtual_stage);
    instruction.set_micro_batch(step.micro_batch);
    instruction.set_activation(step.micro_batch);
    instruction.set_stash(step.micro_batch);
    instruction.set_gradient_stash(step.micro_batch);
    instruction.set_input(step.micro_batch);
    instruction.set_output(step.micro_batch);
    instruction.set_gradient_in(step.micro_batch);
    instruction.set_gradient_out(step.micro_batch);
    return instruction;
  }

  // `stage`: global stage of the sender; the channel belongs to it.
  uint32_t Transfer(v1::InstructionKind kind, const ComputeStep& step, bool next, uint32_t stage) {
    const int ranks = static_cast<int>(options_.ranks);
    const int own = static_cast<int>(rank_);
    v1::Instruction& transfer = AddFor(kind, step);
    transfer.set_peer((own + (next ? 1 : ranks - 1)) % ranks - own);
    transfer.set_channel(2 * stage + (kind == v1::SEND_GRAD || kind == v1::RECV_GRAD ? 1 : 0));
    transfer.set_ticket(++tickets_);
    return tickets_;
  }

  void Compute1(const ComputeStep& step) {
    const uint32_t stage = step.virtual_stage * options_.ranks + rank_;
    const bool first = stage == 0;
    const bool last = stage + 1 == options_.ranks * options_.virtual_stages;
    const bool forward = step.kind == Compute::kForward;
    const bool weight = step.kind == Compute::kWeightGrad;
    if (!weight && !(forward ? first : last)) {
      const uint32_t ticket = Transfer(forward ? v1::RECV_ACT : v1::RECV_GRAD, step, !forward,
                                       forward ? stage - 1 : stage + 1);
      Add(v1::WAIT).set_ticket(ticket);
    }
    const v1::InstructionKind kinds[] = {v1::F, v1::I, v1::W, v1::B};
    for (uint32_t op = 0; op < 2; ++op) {
      v1::Instruction& compute = AddFor(kinds[static_cast<int>(step.kind)], step);
      compute.set_op_begin(op);
      compute.set_op_end(op + 1);
    }
    if (!weight && !(forward ? last : first)) {
      sends_.push_back(Transfer(forward ? v1::SEND_ACT : v1::SEND_GRAD, step, forward, stage));
      if (sends_.size() > 256) {  // as many as may be in flight, with room to spare
        Add(v1::WAIT).set_ticket(sends_.front());
        sends_.pop_front();
      }
    }
  }

  void Finish() {
    Add(v1::REDUCE).set_ticket(++tickets_);
    Add(v1::WAIT).set_ticket(tickets_);
    Add(v1::NORM);
    Add(v1::STEP);
    Add(v1::GATHER).set_ticket(++tickets_);
    Add(v1::WAIT).set_ticket(tickets_);
  }

  const ScheduleOptions options_;
  const uint32_t rank_;
  const bool training_;
  v1::Program program_;
  std::deque<uint32_t> sends_;
  uint32_t tickets_ = 0;
};

inline v1::Plan SamplePlan(const std::string& schedule, const ScheduleOptions& options) {
  v1::Plan plan;
  plan.set_version(1);
  plan.mutable_mesh()->set_pipeline(options.ranks);
  plan.mutable_mesh()->set_data(2);
  plan.mutable_mesh()->set_tensor(1);
  plan.set_micro_batches(options.micro_batches);
  plan.set_evaluation_micro_batches(options.micro_batches);
  plan.set_schedule(schedule);
  v1::JobSpec& job = *plan.mutable_job();
  job.mutable_parallelism()->set_zero_stage(1);
  job.mutable_model()->mutable_config()->set_num_hidden_layers(
      int64_t{2} * options.ranks * options.virtual_stages - 2);
  const ComputeOrder order = *GenerateSchedule(schedule, options);
  plan.set_bubble(Simulate(order, options, {})->bubble);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    v1::StagePlan& stage = *plan.add_stages();
    uint64_t offset = 0;
    const auto add_pool = [&](v1::PoolKind kind, uint32_t v, uint32_t slots, uint64_t bytes) {
      v1::Pool& pool = *stage.add_pools();
      pool.set_kind(kind);
      pool.set_virtual_stage(v);
      pool.set_slots(slots);
      pool.set_slot_bytes(bytes);
      offset = (offset + 4095) / 4096 * 4096;
      pool.set_offset_bytes(offset);
      offset += slots * bytes;
    };
    for (const auto kind : {v1::PARAMETER, v1::GRADIENT, v1::MOMENT1, v1::MOMENT2}) {
      add_pool(kind, 0, 1, 4096);
    }
    for (uint32_t v = 0; v < options.virtual_stages; ++v) {
      stage.add_first_block(2 * (v * options.ranks + rank));
      stage.add_end_block(2 * (v * options.ranks + rank) + 2);
      for (const auto kind : {v1::ACTIVATION, v1::STASH, v1::GRADIENT_STASH, v1::INPUT, v1::OUTPUT,
                              v1::GRADIENT_IN, v1::GRADIENT_OUT}) {
        add_pool(kind, v, options.micro_batches, 256);
      }
    }
    stage.set_arena_bytes(offset);
    v1::Bucket& bucket = *stage.add_buckets();
    bucket.set_count(1024);
    bucket.add_axes(v1::AXIS_DATA);
    if (options.ranks > 1 && (rank == 0 || rank + 1 == options.ranks)) {
      bucket.add_axes(v1::AXIS_TIED);
    }
    *stage.mutable_step() = SampleProgram(options, rank, true).Build(order[rank]);
    *stage.mutable_evaluate() = SampleProgram(options, rank, false).Build(order[rank]);
    std::vector<ComputeStep> first;
    std::copy_if(order[rank].begin(), order[rank].end(), std::back_inserter(first),
                 [](const ComputeStep& each) { return each.micro_batch == 0; });
    *stage.mutable_generate() = SampleProgram(options, rank, false).Build(first);
  }
  return plan;
}

// The lists that touch each pool, of a stage that is the model's first or last or neither.
inline std::array<uint8_t, v1::PoolKind_ARRAYSIZE> SampleTouches(bool first, bool last) {
  const uint8_t f = ListBit(v1::F), i = ListBit(v1::I), w = ListBit(v1::W), b = ListBit(v1::B);
  std::array<uint8_t, v1::PoolKind_ARRAYSIZE> touches{};
  touches[v1::ACTIVATION] = f | i | b;
  touches[v1::STASH] = f | i | w;
  touches[v1::GRADIENT_STASH] = i | w;
  touches[v1::INPUT] = first ? 0 : f | i | w | b;
  touches[v1::OUTPUT] = last ? 0 : f;
  touches[v1::GRADIENT_IN] = last ? 0 : i | w | b;
  touches[v1::GRADIENT_OUT] = first ? 0 : i | b;
  return touches;
}

// What the sample's operators ask: both operators of every list write the one bucket.
inline std::vector<StageFacts> SampleFacts(const v1::Plan& plan) {
  std::vector<StageFacts> facts;
  for (const v1::StagePlan& stage : plan.stages()) {
    StageFacts& one = facts.emplace_back();
    for (const auto kind : {v1::PARAMETER, v1::GRADIENT, v1::MOMENT1, v1::MOMENT2}) {
      one.pool_bytes[kind] = 4096;
    }
    one.buckets = {stage.buckets().begin(), stage.buckets().end()};
    one.virtual_stages.resize(static_cast<size_t>(stage.first_block_size()));
    const bool first = facts.size() == 1;
    const bool last = facts.size() == static_cast<size_t>(plan.stages_size());
    for (VirtualStageFacts& virtual_stage : one.virtual_stages) {
      for (const auto kind : {v1::ACTIVATION, v1::STASH, v1::GRADIENT_STASH, v1::INPUT, v1::OUTPUT,
                              v1::GRADIENT_IN, v1::GRADIENT_OUT}) {
        virtual_stage.slot_bytes[kind] = 256;
      }
      virtual_stage.touched_by =
          SampleTouches(first && &virtual_stage == &one.virtual_stages.front(),
                        last && &virtual_stage == &one.virtual_stages.back());
      virtual_stage.forward.fill(2);
      virtual_stage.input_grad = virtual_stage.weight_grad = virtual_stage.backward = 2;
      virtual_stage.writes = {{0, 0}, {1, 0}};
    }
  }
  return facts;
}

}  // namespace trireme::plan
