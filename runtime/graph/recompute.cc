#include "runtime/graph/recompute.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/graph/op_schema.h"

namespace trireme::graph {

namespace {

using OpList = std::vector<LoweredOp>;

bool MayRepeat(const LoweredOp& op) {
  return op.is_collective() || SchemaOf(op.spec.kind).recompute != Recompute::kNever;
}

bool Writes(const LoweredOp& op, size_t operand) {
  const OperandSchema* schema =
      SchemaOf(op.spec.kind).Find(op.spec.phase, static_cast<Operand>(operand));
  return schema != nullptr && schema->access != Access::kRead;
}

class Pass {
 public:
  Pass(StageOps& stage, const std::vector<RecomputeMode>& modes)
      : stage_(stage), modes_(modes), buffers_(stage.buffers.size()) {}

  void Run() {
    FindWriters();
    FindWanted();
    FindDropped();
    for (OpList* list : {&stage_.backward, &stage_.input_grad, &stage_.weight_grad}) Rewrite(*list);
  }

 private:
  struct OfBuffer {
    std::vector<size_t> writers;  // in forward, ascending
    bool wanted = false;          // by backward
    bool dropped = false;         // made again in backward
    int32_t again = kNone;        // the buffer that backward makes
  };

  RecomputeMode ModeOf(const LoweredOp& op) const {
    const auto block = static_cast<size_t>(op.block);
    return op.block < 0 || block >= modes_.size() ? RecomputeMode::kNone : modes_[block];
  }

  template <typename Call>
  void ForBuffers(const LoweredOp& op, const Call& call) const {
    for (size_t operand = 0; operand < op.operand.size(); ++operand) {
      const OperandRef& ref = op.operand[operand];
      if (ref.space == Space::kBuffer) call(operand, ref.id);
    }
  }

  void FindWriters() {
    for (size_t index = 0; index < stage_.forward.size(); ++index) {
      const LoweredOp& op = stage_.forward[index];
      ForBuffers(op, [&](size_t operand, int32_t id) {
        if (Writes(op, operand)) buffers_[id].writers.push_back(index);
      });
    }
  }

  // What backward wants of a selected operator is its output: RestoreOutputs may have spared it.
  void FindWanted() {
    for (const OpList* list : {&stage_.backward, &stage_.input_grad, &stage_.weight_grad}) {
      for (const LoweredOp& op : *list) {
        ForBuffers(op, [&](size_t, int32_t id) { buffers_[id].wanted = true; });
      }
    }
  }

  bool IsSelected(const LoweredOp& op) const {
    return SchemaOf(op.spec.kind).recompute == Recompute::kSelective &&
           buffers_[op.operand[kY].id].wanted;
  }

  // A buffer is dropped where all that write it are repeated: selected operators with the
  // collectives that follow on what they wrote, or a whole block but for what the next ones read.
  void FindDropped() {
    for (OfBuffer& buffer : buffers_) {
      if (buffer.writers.empty()) continue;
      const LoweredOp& first = stage_.forward[buffer.writers.front()];
      const RecomputeMode mode = ModeOf(first);
      buffer.dropped =
          mode == RecomputeMode::kFull || (mode == RecomputeMode::kSelective && IsSelected(first));
      for (const size_t writer : buffer.writers) {
        const LoweredOp& op = stage_.forward[writer];
        buffer.dropped = buffer.dropped && op.block == first.block && MayRepeat(op) &&
                         (mode == RecomputeMode::kFull || op.is_collective() || IsSelected(op));
      }
    }
    for (size_t index = 0; index < stage_.forward.size(); ++index) {
      const LoweredOp& op = stage_.forward[index];
      ForBuffers(op, [&](size_t, int32_t id) {
        OfBuffer& buffer = buffers_[id];
        const std::vector<size_t>& writers = buffer.writers;
        const bool own = !writers.empty() && stage_.forward[writers.front()].block == op.block &&
                         stage_.buffers[id].pool > BufferPool::kGradientOut;
        // What another block reads is its input; what a slot of its own holds travels; and what is
        // read half made would have to be read half made again.
        const bool whole =
            own && (index > writers.back() ||
                    std::find(writers.begin(), writers.end(), index) != writers.end());
        if (!whole) buffer.dropped = false;
      });
    }
  }

  // Adds to `missing` the operators that make buffer `id` again, with those whose results they
  // read.
  void Miss(int32_t id, std::set<size_t>& missing) {
    if (!buffers_[id].dropped || buffers_[id].again != kNone) return;
    Buffer copy = stage_.buffers[id];
    copy.name += ".again";
    stage_.buffers.push_back(std::move(copy));
    buffers_[id].again = static_cast<int32_t>(stage_.buffers.size()) - 1;
    for (const size_t writer : buffers_[id].writers) {
      if (!missing.insert(writer).second) continue;
      ForBuffers(stage_.forward[writer], [&](size_t, int32_t read) { Miss(read, missing); });
    }
  }

  void UseAgain(LoweredOp& op) {
    for (OperandRef& ref : op.operand) {
      if (ref.space != Space::kBuffer || static_cast<size_t>(ref.id) >= buffers_.size()) continue;
      if (buffers_[ref.id].again != kNone) ref.id = buffers_[ref.id].again;
    }
  }

  void Rewrite(OpList& list) {
    OpList rewritten;
    for (LoweredOp& op : list) {
      std::set<size_t> missing;
      ForBuffers(op, [&](size_t, int32_t id) { Miss(id, missing); });
      for (const size_t index : missing) {  // in the order of forward
        LoweredOp again = stage_.forward[index];
        again.recomputes = true;
        again.name += ".again";
        UseAgain(again);
        rewritten.push_back(std::move(again));
      }
      UseAgain(op);
      rewritten.push_back(std::move(op));
    }
    list = std::move(rewritten);
  }

  StageOps& stage_;
  const std::vector<RecomputeMode>& modes_;
  std::vector<OfBuffer> buffers_;
};

}  // namespace

void RecomputeForward(StageOps& stage, const std::vector<RecomputeMode>& modes) {
  if (std::all_of(modes.begin(), modes.end(),
                  [](RecomputeMode mode) { return mode == RecomputeMode::kNone; })) {
    return;
  }
  Pass(stage, modes).Run();
}

}  // namespace trireme::graph
