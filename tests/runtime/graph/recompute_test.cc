// Recomputing: what is kept from forward, and that backward reads nothing before it is there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/graph/op_schema.h"
#include "tests/runtime/graph/small_models.h"

namespace trireme::graph {

namespace {

constexpr int kLayers = 3;

ModelGraph Deep(const std::string& family) {
  return SmallModel(family, {.layers = kLayers, .residual_dropout = family == "gpt2" ? 0.1 : 0});
}

StageOps Lower(const ModelGraph& graph, const std::vector<RecomputeMode>& modes,
               bool sequence = false, bool split = false) {
  return LowerStage(graph, 0, graph.blocks,
                    {.tensor_size = sequence ? 2 : 1,
                     .sequence_parallel = sequence,
                     .micro_batch = 2,
                     .tokens = 5,
                     .split_backward = split,
                     .recompute = modes});
}

std::vector<RecomputeMode> AllLayers(RecomputeMode mode) {
  std::vector<RecomputeMode> modes(kLayers + 2, mode);
  modes.front() = modes.back() = RecomputeMode::kNone;
  return modes;
}

// Buffers that live from forward to backward and whose values block `block` makes.
std::set<int32_t> KeptOf(const StageOps& ops, int32_t block) {
  std::set<int32_t> kept;
  for (const LoweredOp& op : ops.forward) {
    if (op.block != block) continue;
    for (const Operand written : {kY, kStats}) {
      const OperandRef& ref = op.operand[written];
      if (ref.space != Space::kBuffer) continue;
      const BufferPool pool = ops.buffers[ref.id].pool;
      if (pool == BufferPool::kActivation || pool == BufferPool::kStash) kept.insert(ref.id);
    }
  }
  return kept;
}

}  // namespace

TEST_CASE("recompute: full keeps the input of each layer alone") {
  for (const char* family : {"gpt2", "llama"}) {
    const ModelGraph graph = Deep(family);
    const StageOps none = Lower(graph, {});
    const StageOps full = Lower(graph, AllLayers(RecomputeMode::kFull));
    for (int layer = 1; layer <= kLayers; ++layer) {
      CHECK(KeptOf(none, layer).size() > 5);
      // The input of the next layer or of the head.
      CHECK(KeptOf(full, layer).size() == 1);
    }
    CHECK(KeptOf(full, kLayers + 1) == KeptOf(none, kLayers + 1));
    CHECK(full.forward.size() == none.forward.size());
    CHECK(full.activation_bytes < none.activation_bytes);
  }
}

TEST_CASE("recompute: selective makes norms and attention again, and nothing else") {
  for (const bool sequence : {false, true}) {
    const ModelGraph graph = Deep("gpt2");
    const StageOps ops = Lower(graph, AllLayers(RecomputeMode::kSelective), sequence);
    std::vector<OpKind> kinds;
    for (const LoweredOp& op : ops.backward) {
      if (op.recomputes && op.block == 2 && !op.is_collective()) kinds.push_back(op.spec.kind);
    }
    std::sort(kinds.begin(), kinds.end());
    // Under sequence parallelism a norm's result is made and gathered again; else its input-grad
    // restores it.
    CHECK(kinds == (sequence ? std::vector<OpKind>{OpKind::kLayerNorm, OpKind::kLayerNorm,
                                                   OpKind::kAttention}
                             : std::vector<OpKind>{OpKind::kAttention}));
    CHECK(std::count_if(ops.backward.begin(), ops.backward.end(), [](const LoweredOp& op) {
            return op.recomputes && op.is_collective() && op.block == 2;
          }) == (sequence ? 2 : 0));
  }
}

TEST_CASE("recompute: one mode for each layer") {
  const ModelGraph graph = Deep("llama");
  std::vector<RecomputeMode> modes(kLayers + 2, RecomputeMode::kNone);
  modes[2] = RecomputeMode::kFull;
  const StageOps ops = Lower(graph, modes);
  for (const LoweredOp& op : ops.backward) CHECK((!op.recomputes || op.block == 2));
  CHECK(KeptOf(ops, 2).size() == 1);
  CHECK(KeptOf(ops, 1) == KeptOf(Lower(graph, {}), 1));
  modes[2] = RecomputeMode::kNone;
  CHECK(Lower(graph, modes).Fingerprint() == Lower(graph, {}).Fingerprint());
}

TEST_CASE("recompute: nothing is read before it is made") {
  for (const char* family : {"gpt2", "llama"}) {
    const ModelGraph graph = Deep(family);
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      for (const bool sequence : {false, true}) {
        for (const bool split : {false, true}) {
          const StageOps ops = Lower(graph, AllLayers(mode), sequence, split);
          std::set<int32_t> made;
          const auto run = [&](const std::vector<LoweredOp>& list) {
            for (const LoweredOp& op : list) {
              const auto operands = SchemaOf(op.spec.kind).Operands(op.spec.phase);
              for (const OperandSchema& operand : operands) {
                const OperandRef& ref = op.operand[operand.name];
                if (ref.space != Space::kBuffer || operand.access == Access::kWrite) continue;
                INFO(family << " " << op.name << " reads " << ops.buffers[ref.id].name);
                CHECK(made.contains(ref.id));
              }
              for (const OperandSchema& operand : operands) {
                const OperandRef& ref = op.operand[operand.name];
                if (ref.space == Space::kBuffer && operand.access != Access::kRead) {
                  made.insert(ref.id);
                }
              }
            }
          };
          for (const auto* list :
               {&ops.forward, &ops.backward, &ops.input_grad, &ops.weight_grad}) {
            run(*list);
            // What a list leaves in temporaries is gone.
            for (size_t id = 0; id < ops.buffers.size(); ++id) {
              if (ops.buffers[id].pool == BufferPool::kTemporary) {
                made.erase(static_cast<int32_t>(id));
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace trireme::graph
