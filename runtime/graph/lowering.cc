#include "runtime/graph/lowering.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "runtime/graph/stage_lowering.h"

namespace trireme::graph {

namespace {

// Buffers begin on cache lines, so that vector kernels see aligned rows and ranks of one process
// share no line.
constexpr int64_t kLineBytes = 64;

// Each tile packs the head's weight twice, and reads and writes its gradient once: with so many
// rows that is nothing beside the products, with a quarter of them up to a fifth of a step
// (docs/performance.md). Small vocabularies need no tiles.
constexpr int64_t kLossTileRows = 1024, kLossTileBytes = 16 << 20;
// Of a tile but the last: products work on so many rows at a time.
constexpr int64_t kLossTileUnit = 32;

int64_t AlignUp(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

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
                   [&](int32_t a, int32_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<int32_t> placed;
  int64_t end = 0;
  for (int32_t id : ids) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (int32_t other : placed) {
      if (uses[other].last < uses[id].first || uses[id].last < uses[other].first) continue;
      taken.emplace_back(buffers[other].offset,
                         buffers[other].offset + AlignUp(buffers[other].bytes));
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, finish] : taken) {
      if (offset + AlignUp(buffers[id].bytes) <= begin) break;
      offset = std::max(offset, finish);
    }
    buffers[id].offset = offset;
    end = std::max(end, offset + AlignUp(buffers[id].bytes));
    placed.push_back(id);
  }
  return end;
}

BufferPool PoolOf(const Use& use, bool split_backward) {
  const bool backward = use.input_grad || use.weight_grad;
  if (!split_backward)
    return use.forward && backward ? BufferPool::kActivation : BufferPool::kTemporary;
  if (use.weight_grad && use.forward) return BufferPool::kStash;
  if (use.weight_grad && use.input_grad) return BufferPool::kGradientStash;
  return use.forward && use.input_grad ? BufferPool::kActivation : BufferPool::kTemporary;
}

// Of the pools whose buffers lie one after another in a slot.
int64_t* SlotEnd(StageOps& stage, BufferPool pool) {
  switch (pool) {
    case BufferPool::kActivation:
      return &stage.activation_bytes;
    case BufferPool::kStash:
      return &stage.stash_bytes;
    case BufferPool::kGradientStash:
      return &stage.gradient_stash_bytes;
    default:
      return nullptr;
  }
}

class Hash {
 public:
  template <typename T>
  void Add(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      AddBits(std::bit_cast<uint64_t>(value));
    } else {
      static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
      AddBits(static_cast<uint64_t>(value));
    }
  }
  uint64_t value() const { return hash_; }

 private:
  void AddBits(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull + (hash_ >> 47); }

  uint64_t hash_ = 0xcbf29ce484222325ull;
};

template <typename... Fields>
void AddAll(Hash& hash, const Fields&... fields) {
  (hash.Add(fields), ...);
}

// The structs are taken apart by all of their members, so that one with a new member does not
// compile until it is said here what becomes of it.
void AddSpec(const OpSpec& spec, Hash& hash) {
  const auto& [kind, phase, dtype, rows, cols, inner, x_ld, y_ld, weight_layout, fused_residual,
               row_begin, weight_rows, vocab_begin, vocab_rows, tokens, heads, kv_heads, head_dim,
               head_begin, global_heads, tensor_ranks, epsilon, rope_theta, dropout_p, site] = spec;
  AddAll(hash, kind, phase, dtype, rows, cols, inner, x_ld, y_ld, weight_layout, fused_residual,
         row_begin, weight_rows, vocab_begin, vocab_rows, tokens, heads, kv_heads, head_dim,
         head_begin, global_heads, tensor_ranks, epsilon, rope_theta, dropout_p, site);
}

void AddOp(const LoweredOp& op, Hash& hash) {
  // Names and flops are for people: they change nothing that is run.
  const auto& [spec, operands, name, offsets, first_writer, recomputes, at_position, block, flops] =
      op;
  AddSpec(spec, hash);
  for (const auto& [space, id, offset] : operands) AddAll(hash, space, id, offset);
  hash.Add(offsets.size());
  for (const int64_t offset : offsets) hash.Add(offset);
  AddAll(hash, first_writer, recomputes, at_position, block);
}

}  // namespace

void AssignPools(StageOps& stage, bool split_backward) {
  std::vector<Use> uses(stage.buffers.size());
  MarkUses(stage.forward, &Use::forward, uses);
  MarkUses(stage.backward, &Use::input_grad, uses);
  MarkUses(stage.input_grad, &Use::input_grad, uses);
  MarkUses(stage.weight_grad, &Use::weight_grad, uses);
  for (const int32_t id : {stage.logits_buffer, stage.row_losses_buffer}) {
    if (id != kNone) uses[static_cast<size_t>(id)].last = std::numeric_limits<int>::max();
  }
  std::vector<int32_t> temporary_of_forward, temporary_of_backward, temporary_of_weight;
  for (size_t id = 0; id < stage.buffers.size(); ++id) {
    Buffer& buffer = stage.buffers[id];
    if (buffer.pool <= BufferPool::kGradientOut) continue;
    buffer.pool = PoolOf(uses[id], split_backward);
    if (int64_t* end = SlotEnd(stage, buffer.pool); end != nullptr) {
      buffer.offset = *end;
      *end += AlignUp(buffer.bytes);
      continue;
    }
    auto& ids = uses[id].forward      ? temporary_of_forward
                : uses[id].input_grad ? temporary_of_backward
                                      : temporary_of_weight;
    ids.push_back(static_cast<int32_t>(id));
  }
  for (const auto& ids : {temporary_of_forward, temporary_of_backward, temporary_of_weight}) {
    stage.temporary_bytes = std::max(stage.temporary_bytes, Colour(stage.buffers, uses, ids));
  }
}

uint64_t StageOps::Fingerprint() const {
  Hash hash;
  const auto& [own_buffers, own_forward, ends, own_backward, own_input_grad, own_weight_grad,
               boundary_size, activation_size, stash_size, gradient_stash_size, temporary_size,
               own_parameters, partial_parameters, logits, row_losses] = *this;
  for (const auto* list : {&own_forward, &own_backward, &own_input_grad, &own_weight_grad}) {
    hash.Add(list->size());
    for (const LoweredOp& op : *list) AddOp(op, hash);
  }
  hash.Add(own_buffers.size());
  for (const auto& [name, dtype, bytes, pool, offset] : own_buffers) {
    AddAll(hash, dtype, bytes, pool, offset);
  }
  for (const uint32_t end : ends) hash.Add(end);
  AddAll(hash, boundary_size, activation_size, stash_size, gradient_stash_size, temporary_size,
         logits, row_losses);
  hash.Add(own_parameters.size());
  for (const ParameterId id : own_parameters) hash.Add(id);
  hash.Add(partial_parameters.size());
  for (const ParameterId id : partial_parameters) hash.Add(id);
  return hash.value();
}

int64_t StageOps::Reach(BufferPool pool) const {
  int64_t end = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.pool == pool) end = std::max(end, buffer.offset + buffer.bytes);
  }
  return end;
}

// Of nearly the same size, so that the last is no tail.
int64_t LossTileRows(int64_t rows, int64_t row_bytes) {
  if (rows == 0) return 0;
  const int64_t most =
      std::max(kLossTileRows, kLossTileBytes / row_bytes / kLossTileUnit * kLossTileUnit);
  const int64_t tiles = (rows + most - 1) / most;
  const int64_t even = (rows + tiles - 1) / tiles;
  return std::min(rows, (even + kLossTileUnit - 1) / kLossTileUnit * kLossTileUnit);
}

StageOps LowerStage(const ModelGraph& graph, int first_block, int end_block,
                    const LoweringOptions& options) {
  return StageLowering(graph, first_block, end_block, options).Run();
}

}  // namespace trireme::graph
