// Restored outputs: who keeps what, and that the order of what adds to a gradient stays.
#include "runtime/graph/restore.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/graph/op_schema.h"
#include "tests/runtime/graph/small_models.h"

namespace trireme::graph {

namespace {

ModelGraph ModelOf(const std::string& family) { return SmallModel(family, {.layers = 2}); }

StageOps Lowered(const ModelGraph& graph, bool sequence, bool split) {
  return LowerStage(graph, 0, graph.blocks,
                    {.tensor_size = sequence ? 2 : 1,
                     .sequence_parallel = sequence,
                     .micro_batch = 2,
                     .tokens = 5,
                     .split_backward = split});
}

bool IsNorm(OpKind kind) { return kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm; }
bool IsActivation(OpKind kind) { return kind == OpKind::kGelu || kind == OpKind::kSwiGlu; }

bool LivesIntoBackward(const StageOps& ops, const LoweredOp& op) {
  const BufferPool pool = ops.buffers[op.operand[kY].id].pool;
  return pool == BufferPool::kActivation || pool == BufferPool::kStash;
}

const std::vector<LoweredOp>& InputGrads(const StageOps& ops) {
  return ops.backward.empty() ? ops.input_grad : ops.backward;
}

}  // namespace

TEST_CASE("restore: forward keeps no output that an input-grad gives once more") {
  for (const char* family : {"gpt2", "llama"}) {
    const ModelGraph graph = ModelOf(family);
    for (const bool sequence : {false, true}) {
      for (const bool split : {false, true}) {
        INFO(family << (sequence ? " sequence" : "") << (split ? " split" : ""));
        const StageOps ops = Lowered(graph, sequence, split);
        for (const LoweredOp& op : ops.forward) {
          INFO(op.name);
          // The head reads the last norm, and tensor ranks gather what norms give under sequence
          // parallelism: they want the output before its input-grad is run.
          const bool inside = op.block <= 2;
          if (IsActivation(op.spec.kind)) CHECK_FALSE(LivesIntoBackward(ops, op));
          if (IsNorm(op.spec.kind)) CHECK(LivesIntoBackward(ops, op) == (sequence || !inside));
        }
        const auto& list = InputGrads(ops);
        CHECK(std::count_if(list.begin(), list.end(), [](const LoweredOp& op) {
                return (IsNorm(op.spec.kind) || IsActivation(op.spec.kind)) &&
                       op.spec.phase == Phase::kInputGrad && op.operand[kY].space == Space::kBuffer;
              }) == (sequence ? 2 : 6));
      }
    }
  }
}

TEST_CASE("restore: what is restored is there for each weight-grad, whole") {
  for (const char* family : {"gpt2", "llama"}) {
    const StageOps ops = Lowered(ModelOf(family), false, false);
    std::set<int32_t> restored;
    size_t read = 0;
    for (const LoweredOp& op : ops.backward) {
      if (op.spec.phase == Phase::kWeightGrad && op.operand[kX].space == Space::kBuffer &&
          ops.buffers[op.operand[kX].id].name.ends_with(".restored")) {
        INFO(op.name);
        CHECK(restored.contains(op.operand[kX].id));
        CHECK(ops.buffers[op.operand[kX].id].pool == BufferPool::kTemporary);
        ++read;
      }
      if (op.spec.phase == Phase::kInputGrad && op.operand[kY].space == Space::kBuffer) {
        restored.insert(op.operand[kY].id);
      }
    }
    // Of each layer: gate and up, or c_fc; down; q, k and v, or c_attn.
    CHECK(read == (std::string(family) == "gpt2" ? 2 * 3 : 2 * 6));
  }
}

// The first that writes a gradient overwrites it; a later one adds.
TEST_CASE("restore: what adds to a gradient keeps its order") {
  for (const char* family : {"gpt2", "llama"}) {
    for (const bool split : {false, true}) {
      const StageOps ops = Lowered(ModelOf(family), false, split);
      std::map<int32_t, size_t> writers;
      for (const auto* list : {&ops.backward, &ops.input_grad, &ops.weight_grad}) {
        for (const LoweredOp& op : *list) {
          for (const Operand name : {kDW, kDB}) {
            if (op.operand[name].space != Space::kGradient) continue;
            INFO(op.name);
            const bool first = writers[op.operand[name].id]++ == 0;
            if (name == kDW && first) CHECK(op.first_writer);
            if (!first) CHECK_FALSE(op.first_writer);
          }
        }
      }
      CHECK(writers.size() == ops.parameters.size());
    }
  }
}

// y = gelu(x) of one block: x, y, their gradients; W of the product behind it reads y.
TEST_CASE("restore: an output stays where a weight-grad cannot wait for the input-grad") {
  const auto stage = [](bool overwritten) {
    StageOps ops;
    for (const char* name : {"x", "y", "dz", "dy", "dx"}) {
      ops.buffers.push_back({.name = name, .bytes = 64});
    }
    const auto op = [](OpKind kind, Phase phase) {
      LoweredOp made;
      made.spec.kind = kind;
      made.spec.phase = phase;
      made.block = 1;
      return made;
    };
    const auto buffer = [](int32_t id) { return OperandRef{Space::kBuffer, id, 0}; };
    LoweredOp forward = op(OpKind::kGelu, Phase::kForward);
    forward.operand[kX] = buffer(0);
    forward.operand[kY] = buffer(1);
    LoweredOp weight = op(OpKind::kLinear, Phase::kWeightGrad);
    weight.operand[kX] = buffer(1);
    weight.operand[kDY] = buffer(2);
    weight.operand[kDW] = {Space::kGradient, 0, 0};
    LoweredOp input = op(OpKind::kGelu, Phase::kInputGrad);
    input.operand[kX] = buffer(0);
    input.operand[kDY] = buffer(3);
    // In the memory of dz, which W still reads.
    input.operand[kDX] = buffer(overwritten ? 2 : 4);
    ops.forward = {forward};
    ops.backward = {weight, input};
    RestoreOutputs(ops);
    return ops;
  };
  const StageOps moved = stage(false);
  CHECK(moved.backward[0].spec.kind == OpKind::kGelu);
  CHECK(moved.backward[0].operand[kY] == moved.backward[1].operand[kX]);
  CHECK(moved.backward[0].operand[kY].id == 5);
  const StageOps kept = stage(true);
  CHECK(kept.backward[0].spec.kind == OpKind::kLinear);
  CHECK(kept.backward[0].operand[kX].id == 1);
  CHECK(kept.buffers.size() == 5);
}

}  // namespace trireme::graph
