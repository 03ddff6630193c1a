#include "runtime/graph/lowering.h"

#include <algorithm>
#include <bit>

#include "runtime/graph/stage_lowering.h"

namespace trireme::graph {

namespace {

// Buffers begin on cache lines, so that vector kernels see aligned rows and ranks of one process
// share no line.
constexpr int64_t kAlignmentElements = 16;

int64_t AlignUp(int64_t elements) {
  return (elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

struct Use {
  bool forward = false;
  bool input_grad = false;
  bool weight_grad = false;
  // First and last position in the one list that uses a temporary.
  int first = -1;
  int last = -1;
};

void MarkUses(const std::vector<LoweredOp>& list, bool Use::*flag_override,
              std::vector<Use>& uses) {
  for (size_t position = 0; position < list.size(); ++position) {
    const LoweredOp& op = list[position];
    for (const OperandRef& operand : op.operand) {
      if (operand.space != Space::kBuffer) continue;
      Use& use = uses[operand.id];
      use.*flag_override = true;
      if (use.first < 0) use.first = static_cast<int>(position);
      use.last = static_cast<int>(position);
    }
  }
}

// Offsets for buffers alive over [first, last] of one list: largest first, each at the lowest place
// that is free.
int64_t Colour(std::vector<Buffer>& buffers, const std::vector<Use>& uses,
               std::vector<int32_t> ids) {
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return buffers[a].elements > buffers[b].elements; });
  std::vector<int32_t> placed;
  int64_t end = 0;
  for (int32_t id : ids) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (int32_t other : placed) {
      if (uses[other].last < uses[id].first || uses[id].last < uses[other].first) continue;
      taken.emplace_back(buffers[other].offset,
                         buffers[other].offset + AlignUp(buffers[other].elements));
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, finish] : taken) {
      if (offset + AlignUp(buffers[id].elements) <= begin) break;
      offset = std::max(offset, finish);
    }
    buffers[id].offset = offset;
    end = std::max(end, offset + AlignUp(buffers[id].elements));
    placed.push_back(id);
  }
  return end;
}

BufferPool PoolOf(const Use& use, bool split_backward) {
  const bool backward = use.input_grad || use.weight_grad;
  if (!split_backward)
    return use.forward && backward ? BufferPool::kActivation : BufferPool::kTemporary;
  if (use.weight_grad && (use.forward || use.input_grad)) return BufferPool::kStash;
  return use.forward && use.input_grad ? BufferPool::kActivation : BufferPool::kTemporary;
}

class Hash {
 public:
  void Add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull + (hash_ >> 47); }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

void AddOp(const LoweredOp& op, Hash& hash) {
  const OpSpec& spec = op.spec;
  hash.Add(static_cast<uint64_t>(spec.kind) * 256 + static_cast<uint64_t>(spec.phase));
  for (int64_t value :
       {spec.rows, spec.cols, spec.inner, spec.x_ld, spec.y_ld, spec.row_begin, spec.weight_rows,
        spec.vocab_begin, spec.vocab_rows, spec.tokens, spec.heads, spec.kv_heads, spec.head_dim,
        spec.head_begin, spec.global_heads}) {
    hash.Add(static_cast<uint64_t>(value));
  }
  for (double value : {spec.epsilon, spec.rope_theta, spec.dropout_p}) hash.Add(value);
  hash.Add(spec.site);
  hash.Add(static_cast<uint64_t>(spec.weight_layout) + (op.first_writer ? 16 : 0));
  for (const OperandRef& operand : op.operand) {
    hash.Add(static_cast<uint64_t>(operand.space));
    hash.Add(static_cast<uint64_t>(operand.id));
    hash.Add(static_cast<uint64_t>(operand.offset));
  }
  for (int64_t offset : op.offsets) hash.Add(static_cast<uint64_t>(offset));
}

}  // namespace

void AssignPools(StageOps& stage, bool split_backward) {
  std::vector<Use> uses(stage.buffers.size());
  MarkUses(stage.forward, &Use::forward, uses);
  MarkUses(stage.backward, &Use::input_grad, uses);
  MarkUses(stage.input_grad, &Use::input_grad, uses);
  MarkUses(stage.weight_grad, &Use::weight_grad, uses);
  std::vector<int32_t> temporary_of_forward, temporary_of_backward, temporary_of_weight;
  for (size_t id = 0; id < stage.buffers.size(); ++id) {
    Buffer& buffer = stage.buffers[id];
    if (buffer.pool <= BufferPool::kGradientOut) continue;
    buffer.pool = PoolOf(uses[id], split_backward);
    if (buffer.pool == BufferPool::kActivation || buffer.pool == BufferPool::kStash) {
      int64_t& end =
          buffer.pool == BufferPool::kActivation ? stage.activation_elements : stage.stash_elements;
      buffer.offset = end;
      end += AlignUp(buffer.elements);
      continue;
    }
    auto& ids = uses[id].forward      ? temporary_of_forward
                : uses[id].input_grad ? temporary_of_backward
                                      : temporary_of_weight;
    ids.push_back(static_cast<int32_t>(id));
  }
  for (const auto& ids : {temporary_of_forward, temporary_of_backward, temporary_of_weight}) {
    stage.temporary_elements = std::max(stage.temporary_elements, Colour(stage.buffers, uses, ids));
  }
}

uint64_t StageOps::Fingerprint() const {
  Hash hash;
  for (const auto* list : {&forward, &backward, &input_grad, &weight_grad}) {
    hash.Add(static_cast<uint64_t>(list->size()));
    for (const LoweredOp& op : *list) AddOp(op, hash);
  }
  for (const Buffer& buffer : buffers) {
    hash.Add(static_cast<uint64_t>(buffer.pool));
    hash.Add(static_cast<uint64_t>(buffer.offset));
    hash.Add(static_cast<uint64_t>(buffer.elements));
  }
  return hash.value();
}

int64_t StageOps::Reach(BufferPool pool) const {
  int64_t end = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.pool == pool) end = std::max(end, buffer.offset + buffer.elements);
  }
  return end;
}

StageOps LowerStage(const ModelGraph& graph, int first_block, int end_block,
                    const LoweringOptions& options) {
  return StageLowering(graph, first_block, end_block, options).Run();
}

}  // namespace trireme::graph
