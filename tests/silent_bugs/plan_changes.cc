#include "tests/silent_bugs/plan_changes.h"

#include <functional>
#include <set>

#include "tests/runtime/plan/forget_axis.h"

namespace trireme::silent_bugs {

namespace {

using Match = std::function<bool(const v1::Instruction&)>;

Match Of(v1::InstructionKind kind) {
  return [kind](const v1::Instruction& instruction) { return instruction.kind() == kind; };
}

// Takes out what matches, and the WAITs for it.
v1::Program TakeOut(v1::Program& program, const Match& match) {
  v1::Program kept, taken;
  std::set<uint32_t> tickets;
  for (const v1::Instruction& instruction : program.instructions()) {
    const bool awaited = instruction.kind() == v1::WAIT && tickets.contains(instruction.ticket());
    if (match(instruction) && instruction.ticket() != 0) tickets.insert(instruction.ticket());
    *(match(instruction) || awaited ? taken : kept).add_instructions() = instruction;
  }
  program = kept;
  return taken;
}

// `taken` before the first instruction that matches.
void PutBefore(v1::Program& program, const v1::Program& taken, const Match& match) {
  v1::Program changed;
  bool put = false;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (!put && match(instruction)) {
      changed.MergeFrom(taken);
      put = true;
    }
    *changed.add_instructions() = instruction;
  }
  program = changed;
}

}  // namespace

void ForgetAxis(v1::Plan& plan, v1::ReduceAxis axis) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    for (v1::Bucket& bucket : *stage.mutable_buckets()) plan::Forget(axis, bucket);
  }
}

void DropReduce(v1::Plan& plan, uint32_t bucket) {
  TakeOut(*plan.mutable_stages(0)->mutable_step(), [&](const v1::Instruction& instruction) {
    return instruction.kind() == v1::REDUCE && instruction.bucket() == bucket;
  });
}

void DropSteps(v1::Plan& plan) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) TakeOut(*stage.mutable_step(), Of(v1::STEP));
}

void GatherBeforeSteps(v1::Plan& plan) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    v1::Program& program = *stage.mutable_step();
    const v1::Program gathers = TakeOut(program, Of(v1::GATHER));
    PutBefore(program, gathers, Of(v1::STEP));
  }
}

void AwaitSumLate(v1::Plan& plan) {
  v1::Program& program = *plan.mutable_stages(0)->mutable_step();
  uint32_t ticket = 0;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (instruction.kind() == v1::REDUCE && ticket == 0) ticket = instruction.ticket();
  }
  const v1::Program wait = TakeOut(program, [&](const v1::Instruction& instruction) {
    return instruction.kind() == v1::WAIT && instruction.ticket() == ticket;
  });
  PutBefore(program, wait, Of(v1::NORM));
}

void LayOver(v1::Plan& plan, v1::PoolKind pool, v1::PoolKind other) {
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    uint64_t offset = 0;
    for (const v1::Pool& each : stage.pools()) {
      if (each.kind() == other) offset = each.offset_bytes();
    }
    for (v1::Pool& each : *stage.mutable_pools()) {
      if (each.kind() == pool) each.set_offset_bytes(offset);
    }
  }
}

void DropLastLayer(v1::Plan& plan) {
  v1::StagePlan& last = *plan.mutable_stages(plan.stages_size() - 1);
  last.set_end_block(0, last.end_block(0) - 1);
}

}  // namespace trireme::silent_bugs
