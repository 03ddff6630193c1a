// Lowering: one pipeline stage of a ModelGraph becomes the operators of one tensor rank:
// collectives of the tensor group inserted where placements ask for them, backward derived and
// split into input-grad and weight-grad, every buffer given a pool and an offset. A pure function,
// so planner and worker get the same lists (Fingerprint proves it).
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/op_schema.h"
#include "runtime/graph/op_spec.h"
#include "runtime/tensor/dtype.h"

namespace trireme::graph {

// How a value or gradient lies over the tensor axis.
enum class Placement : uint8_t {
  kReplicate,
  kRows,     // Shard: rows of the micro-batch (sequence parallelism)
  kColumns,  // Shard: heads, feed-forward columns or vocabulary
  kPartial,  // Partial(sum)
};

struct OperandRef {
  Space space = Space::kNone;
  int32_t id = kNone;  // buffer or parameter
  int64_t offset = 0;  // bytes from its start
  friend bool operator==(const OperandRef&, const OperandRef&) = default;
};

struct LoweredOp {
  OpSpec spec;
  std::array<OperandRef, kOperandCount> operand{};
  std::string name;
  // Collectives over the tensor group, in place on kY: rank r's share is elements [offsets[r],
  // offsets[r+1]).
  std::vector<int64_t> offsets;
  bool first_writer = false;  // weight-grad: first of the stage that writes this gradient
  bool recomputes = false;    // in backward: makes again what forward has not kept
  bool at_position = false;   // its x is the one row of the operand that StepContext names
  int32_t block = kNone;      // of the model
  double flops = 0;

  bool is_collective() const { return spec.kind >= OpKind::kAllReduce; }
};

// The pool of a buffer: see PoolKind of plan.proto.
enum class BufferPool : uint8_t {
  kInput,
  kOutput,
  kGradientIn,
  kGradientOut,
  kActivation,
  kStash,
  kGradientStash,
  kTemporary
};

struct Buffer {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  int64_t bytes = 0;
  BufferPool pool = BufferPool::kTemporary;
  int64_t offset = 0;  // bytes, inside its pool's slot
};

// What of a block's forward is made again in backward instead of being kept.
enum class RecomputeMode : uint8_t {
  kNone,
  kSelective,  // norms and attention: much memory, little work (Korthikanti et al.,
               // arXiv 2205.05198)
  kFull,       // all but the block's input
};

// What a forward is run for. A training step runs its head in backward, right before the gradients
// that its logits become (docs/adr/0013); generation wants the logits of one row and no loss.
enum class ForwardUse : uint8_t { kStep, kGenerate, kEvaluate };
constexpr size_t kForwardUses = 3;

struct LoweringOptions {
  int64_t tensor_size = 1;
  int64_t tensor_index = 0;
  bool sequence_parallel = false;
  int64_t micro_batch = 1;                    // B
  int64_t tokens = 1;                         // T
  tensor::DType dtype = tensor::DType::kF32;  // statistics are of its AccumulatorOf
  bool split_backward = false;  // separate I and W lists; otherwise one list, W right after its I
  // Rows of the micro-batch whose logits exist at the same time; 0: as many as LossTileRows gives.
  int64_t loss_tile_rows = 0;
  // By block of the model; empty: none is recomputed.
  std::vector<RecomputeMode> recompute;
};

struct StageOps {
  std::vector<Buffer> buffers;
  std::vector<LoweredOp> forward;
  // By use, how many of `forward` run.
  std::array<uint32_t, kForwardUses> forward_end{};
  std::vector<LoweredOp> backward;     // !split_backward
  std::vector<LoweredOp> input_grad;   // split_backward
  std::vector<LoweredOp> weight_grad;  // split_backward
  // Bytes of one slot.
  int64_t boundary_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t stash_bytes = 0;
  int64_t gradient_stash_bytes = 0;
  int64_t temporary_bytes = 0;
  // Parameters of this stage, ascending; those whose gradient is Partial over the tensor axis.
  std::vector<ParameterId> parameters;
  std::set<ParameterId> partial_over_tensor;
  // Of the last stage, there until their list is over: after a forward that generates, the logits
  // of the row at the position, [1, local vocabulary]; after the list of input-grads, the log of
  // the softmax' sum, [B*T].
  int32_t logits_buffer = kNone, row_losses_buffer = kNone;

  uint32_t ForwardEnd(ForwardUse use) const { return forward_end[static_cast<size_t>(use)]; }
  uint64_t Fingerprint() const;
  // How far into a slot of `pool` the buffers reach, in bytes.
  int64_t Reach(BufferPool pool) const;
};

// Blocks [first_block, end_block) of `graph`. Reads an activation where first_block > 0, gives one
// where end_block < graph.blocks.
StageOps LowerStage(const ModelGraph& graph, int first_block, int end_block,
                    const LoweringOptions& options);

// Rows of a micro-batch of `rows` whose logits, of this many bytes a row, exist at the same time.
int64_t LossTileRows(int64_t rows, int64_t row_bytes);

// Gives every buffer of `stage` its pool and offset and sets the slot sizes. Called by LowerStage.
void AssignPools(StageOps& stage, bool split_backward);

}  // namespace trireme::graph
