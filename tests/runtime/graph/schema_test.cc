// What schemas say of operators holds of every operator that lowering makes: which operands there
// are and in what memory, that they lie inside it, that what is read was written and not yet given
// to another value, and which operators may run again.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/graph/op_schema.h"
#include "runtime/model/model.h"

namespace trireme::graph {

namespace {

using OpList = std::vector<LoweredOp>;

struct Sample {
  ModelGraph graph;
  LoweringOptions options;
  int first;
  int end;
  std::string name;
  StageOps stage = LowerStage(graph, first, end, options);

  // The lists in the order in which a micro-batch runs them.
  std::array<const OpList*, 4> lists() const {
    return {&stage.forward, &stage.backward, &stage.input_grad, &stage.weight_grad};
  }
};

ModelGraph SampleGraph(const std::string& family, bool full) {
  v1::ModelConfig config;
  config.set_model_type(family);
  config.set_num_hidden_layers(2);
  config.set_num_attention_heads(6);
  config.set_num_key_value_heads(family == "gpt2" ? 6 : 3);
  config.set_head_dim(4);
  config.set_hidden_size(24);
  config.set_intermediate_size(7);
  config.set_vocab_size(11);
  config.set_max_position_embeddings(16);
  config.set_tie_word_embeddings(full);
  config.set_bias(full);
  for (const auto set : {&v1::ModelConfig::set_embd_pdrop, &v1::ModelConfig::set_attn_pdrop,
                         &v1::ModelConfig::set_resid_pdrop}) {
    (config.*set)(full ? 0.1 : 0);
  }
  auto graph = model::BuildModel(config);
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Both families, with and without biases, dropout and a tied head, every rank of tensor groups of
// one to three, all of a model and its first, middle and last stage.
void ForAllSamples(const std::function<void(const Sample&)>& check) {
  for (const char* family : {"gpt2", "llama"}) {
    for (const bool full : {false, true}) {
      const ModelGraph graph = SampleGraph(family, full);
      for (const auto& [size, index] : {std::pair(1, 0), {2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}}) {
        for (int variant = 0; variant < 4; ++variant) {
          for (const auto dtype :
               {tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kBf16}) {
            for (const auto& [first, end] : {std::pair(0, 4), {0, 2}, {1, 2}, {2, 4}, {3, 4}}) {
              const LoweringOptions options{.tensor_size = size,
                                            .tensor_index = index,
                                            .sequence_parallel = variant % 2 == 1,
                                            .micro_batch = 2,
                                            .tokens = 2,
                                            .dtype = dtype,
                                            .split_backward = variant / 2 == 1,
                                            .loss_tile_rows = (variant + 3) % 4};
              std::ostringstream name;
              name << family << (full ? " full" : "") << ", blocks " << first << " to " << end
                   << ", rank " << index << " of " << size << ", variant " << variant << ", "
                   << tensor::NameOf(dtype) << ": ";
              check({graph, options, first, end, name.str()});
            }
          }
        }
      }
    }
  }
}

Shape ShapeIn(const LoweredOp& op, const OperandSchema& operand) {
  if (operand.shape != nullptr) return operand.shape(op.spec);
  return {1, op.offsets.back(), op.offsets.back()};
}

int64_t WidthOf(const LoweredOp& op, const OperandSchema& operand) {
  return static_cast<int64_t>(tensor::SizeOf(operand.DTypeIn(op.spec)));
}

// Calls visit(op, operand, ref) for all operands that are given.
template <typename Visit>
void ForOperands(const OpList& list, const Visit& visit) {
  for (const LoweredOp& op : list) {
    for (const OperandSchema& operand : SchemaOf(op.spec.kind).Operands(op.spec.phase)) {
      const OperandRef& ref = op.operand[operand.name];
      if (ref.space != Space::kNone) visit(op, operand, ref);
    }
  }
}

struct Byte {
  int32_t buffer = kNone;  // whose value lies here
  const LoweredOp* writer = nullptr;
  bool read = false;
};

// The bytes of each pool's slot, and what the operators of a stage do to them, one after another.
class Memory {
 public:
  explicit Memory(const Sample& sample) : stage_(sample.stage), rank_(sample.options.tensor_index) {
    for (int32_t id = 0; id < static_cast<int32_t>(stage_.buffers.size()); ++id) {
      const Buffer& buffer = stage_.buffers[id];
      std::vector<Byte>& pool = bytes_[buffer.pool];
      pool.resize(std::max(pool.size(), static_cast<size_t>(buffer.offset + buffer.bytes)));
      const bool received =
          buffer.pool == BufferPool::kInput || buffer.pool == BufferPool::kGradientIn;
      if (received) Give({Space::kBuffer, id, 0}, {1, buffer.bytes, 0}, 1, {.buffer = id});
    }
  }

  // Of operators that an evaluation alone runs: what they give beside the loss is for nobody.
  void set_for_loss_alone(bool for_loss_alone) { for_loss_alone_ = for_loss_alone; }

  // A list finds nothing that another left in temporaries.
  void BeginList() {
    std::vector<Byte>& temporary = bytes_[BufferPool::kTemporary];
    temporary.assign(temporary.size(), {});
  }

  // Empty, or what is wrong: an operand read where its value is not, or a value lost unread.
  std::string Run(const LoweredOp& op) {
    std::string fault;
    ForBuffers(op, [&](const OperandSchema& operand, const OperandRef& ref, int64_t width) {
      if (operand.access == Access::kWrite) return;
      const bool gathers = op.spec.kind == OpKind::kAllGather;
      const auto [source, shape] =
          gathers ? Share(op, rank_, width) : std::pair(ref, ShapeIn(op, operand));
      if (!Holds(source, shape, width)) {
        fault = "reads operand " + std::to_string(operand.name) + " before it is written";
      }
    });
    ForBuffers(op, [&](const OperandSchema& operand, const OperandRef& ref, int64_t width) {
      if (operand.access == Access::kRead) return;
      const Byte value{.buffer = ref.id, .writer = &op, .read = for_loss_alone_};
      const bool gathers = op.spec.kind == OpKind::kAllGather;
      const bool scatters = op.spec.kind == OpKind::kReduceScatter;
      if (!gathers && !Give(ref, ShapeIn(op, operand), width, scatters ? Byte{} : value)) {
        fault = "overwrites what nobody has read";
      }
      for (int64_t rank = 0; rank < op.spec.tensor_ranks && (gathers || scatters); ++rank) {
        const auto [share, shape] = Share(op, rank, width);
        if (scatters == (rank == rank_)) Give(share, shape, width, value);
      }
    });
    return fault;
  }

  bool Holds(const OperandRef& ref, const Shape& shape, int64_t width) {
    bool all = true;
    ForBytes(ref, shape, width, [&](Byte& byte) {
      all = all && byte.buffer == ref.id;
      byte.read = true;
    });
    return all;
  }

  // The operators whose values `op` would read, by their names.
  std::set<std::string> WritersFor(const LoweredOp& op) {
    std::set<std::string> writers;
    ForBuffers(op, [&](const OperandSchema& operand, const OperandRef& ref, int64_t width) {
      if (operand.access == Access::kWrite) return;
      ForBytes(ref, ShapeIn(op, operand), width, [&](const Byte& byte) {
        writers.insert(byte.writer == nullptr ? "received" : byte.writer->name);
      });
    });
    return writers;
  }

 private:
  // False if a value was lost.
  bool Give(const OperandRef& ref, const Shape& shape, int64_t width, const Byte& value) {
    bool kept = true;
    ForBytes(ref, shape, width, [&](Byte& byte) {
      kept = kept && (byte.buffer == kNone || byte.read);
      byte = value;
    });
    return kept;
  }

  template <typename Visit>
  void ForBytes(const OperandRef& ref, const Shape& shape, int64_t width, const Visit& visit) {
    const Buffer& buffer = stage_.buffers[ref.id];
    std::vector<Byte>& pool = bytes_[buffer.pool];
    for (int64_t row = 0; row < shape.rows; ++row) {
      const int64_t begin = buffer.offset + ref.offset + row * shape.ld * width;
      for (int64_t at = 0; at < shape.cols * width; ++at) visit(pool.at(begin + at));
    }
  }

  template <typename Visit>
  static void ForBuffers(const LoweredOp& op, const Visit& visit) {
    for (const OperandSchema& operand : SchemaOf(op.spec.kind).Operands(op.spec.phase)) {
      const OperandRef& ref = op.operand[operand.name];
      if (ref.space == Space::kBuffer) visit(operand, ref, WidthOf(op, operand));
    }
  }

  // Of a collective.
  static std::pair<OperandRef, Shape> Share(const LoweredOp& op, int64_t rank, int64_t width) {
    OperandRef ref = op.operand[kY];
    ref.offset += op.offsets[rank] * width;
    return {ref, {1, op.offsets[rank + 1] - op.offsets[rank], 0}};
  }

  const StageOps& stage_;
  const int64_t rank_;
  bool for_loss_alone_ = false;
  std::map<BufferPool, std::vector<Byte>> bytes_;
};

// By weight-grad: the operators whose values it reads.
std::map<std::string, std::set<std::string>> WhatWeightGradsRead(const Sample& sample) {
  std::map<std::string, std::set<std::string>> read;
  Memory memory(sample);
  for (const OpList* list : sample.lists()) {
    memory.BeginList();
    for (const LoweredOp& op : *list) {
      if (op.spec.phase == Phase::kWeightGrad) {
        read[op.name + " " + std::to_string(op.operand[kDW].id)].merge(memory.WritersFor(op));
      }
      memory.Run(op);
    }
  }
  return read;
}

}  // namespace

TEST_CASE("schema: the table is in the order of OpKind") {
  constexpr const char* kNames[] = {
      "Embedding",  "PositionEmbedding", "LayerNorm", "RmsNorm",   "Linear",
      "Rope",       "Attention",         "Gelu",      "SwiGlu",    "ResidualAdd",
      "LmHeadLoss", "LossCombine",       "AllReduce", "AllGather", "ReduceScatter"};
  for (size_t kind = 0; kind < std::size(kNames); ++kind) {
    CHECK(SchemaOf(static_cast<OpKind>(kind)).name == kNames[kind]);
  }
}

TEST_CASE("schema: lowered operators have the operands that it names, in the memory it names") {
  std::set<OpKind> kinds;
  ForAllSamples([&](const Sample& sample) {
    for (const OpList* list : sample.lists()) {
      for (const LoweredOp& op : *list) {
        const OpSchema& schema = SchemaOf(op.spec.kind);
        INFO(sample.name << op.name << ", " << schema.name);
        kinds.insert(op.spec.kind);
        REQUIRE(op.flops == (schema.flops == nullptr ? 0 : schema.flops(op.spec)));
        for (int name = 0; name < kOperandCount; ++name) {
          const OperandRef& ref = op.operand[name];
          const OperandSchema* operand = schema.Find(op.spec.phase, static_cast<Operand>(name));
          const bool may_lack = operand == nullptr || operand->optional;
          const bool fits = ref.space == Space::kNone
                                ? may_lack
                                : operand != nullptr && operand->space == ref.space;
          INFO("operand " << name << " is in space " << static_cast<int>(ref.space));
          if (!fits) FAIL("not as its schema says");
        }
      }
    }
  });
  CHECK(kinds.size() == 15);
}

TEST_CASE("schema: every operand is of the dtype and inside of the memory that it is in") {
  ForAllSamples([](const Sample& sample) {
    const int64_t rows = sample.options.micro_batch * sample.options.tokens;
    const auto check = [&](const LoweredOp& op, const OperandSchema& operand,
                           const OperandRef& ref) {
      const int64_t width = WidthOf(op, operand);
      const int64_t end = ref.offset + ShapeIn(op, operand).Span() * width;
      int64_t least = end, most = end;
      if (ref.space == Space::kBuffer) {
        least = 0;
        most = sample.stage.buffers[ref.id].bytes;
        if (sample.stage.buffers[ref.id].dtype != operand.DTypeIn(op.spec)) most = -1;
      } else if (ref.space == Space::kParameter || ref.space == Space::kGradient) {
        const Parameter& parameter = sample.graph.parameters[ref.id];
        least = most =
            width *
            parameter.LocalBox(sample.options.tensor_size, sample.options.tensor_index).elements();
      } else if (ref.space == Space::kTokens || ref.space == Space::kTargets) {
        most = rows * width;
        least = ref.space == Space::kTokens ? most : 0;  // the loss takes its rows in tiles
      }
      INFO(sample.name << op.name << ", operand " << operand.name << " ends at " << end << " of "
                       << least << " to " << most << " bytes");
      if (ref.offset < 0 || ref.offset % width != 0 || end < least || end > most) FAIL("");
    };
    for (const OpList* list : sample.lists()) ForOperands(*list, check);
  });
}

TEST_CASE("schema: what is read was written, what is written is read before it is lost") {
  ForAllSamples([](const Sample& sample) {
    Memory memory(sample);
    std::set<int32_t> gradients;
    for (const OpList* list : sample.lists()) {
      memory.BeginList();
      const bool forward = list == &sample.stage.forward;
      const size_t end =
          forward ? sample.stage.ForwardEnd(ForwardUse::kStep) : list->size();  // of a step
      for (size_t at = 0; at < end; ++at) {
        const LoweredOp& op = (*list)[at];
        INFO(sample.name << op.name << ", " << SchemaOf(op.spec.kind).name);
        const std::string fault = memory.Run(op);
        if (!fault.empty()) FAIL(fault);
        bool first = false;
        for (const Operand name : {kDW, kDB}) {
          if (op.operand[name].space != Space::kGradient) continue;
          first = gradients.insert(op.operand[name].id).second || first;
        }
        if (op.first_writer != first) FAIL("first_writer is wrong");
      }
      // What the engine reads once the list of input-grads is over.
      const int32_t losses = sample.stage.row_losses_buffer;
      const bool has_loss = list == (sample.options.split_backward ? &sample.stage.input_grad
                                                                   : &sample.stage.backward) &&
                            sample.end == sample.graph.blocks;
      if (!has_loss) continue;
      INFO(sample.name);
      REQUIRE(losses != kNone);
      const int64_t bytes = sample.stage.buffers[losses].bytes;
      if (!memory.Holds({Space::kBuffer, losses, 0}, {1, bytes, 0}, 1)) FAIL("losses overwritten");
    }
    for (int32_t id = 0; id < static_cast<int32_t>(sample.stage.buffers.size()); ++id) {
      const Buffer& buffer = sample.stage.buffers[id];
      if (buffer.pool != BufferPool::kOutput && buffer.pool != BufferPool::kGradientOut) continue;
      INFO(sample.name << buffer.name << " leaves the stage");
      if (!memory.Holds({Space::kBuffer, id, 0}, {1, buffer.bytes, 0}, 1)) FAIL("not written");
    }
  });
}

TEST_CASE("schema: a forward without backward reads what it has written") {
  ForAllSamples([](const Sample& sample) {
    const OpList& list = sample.stage.forward;
    const size_t body = sample.stage.ForwardEnd(ForwardUse::kStep);
    REQUIRE(sample.stage.ForwardEnd(ForwardUse::kEvaluate) == list.size());
    Memory memory(sample);
    for (size_t at = 0; at < list.size(); ++at) {
      const LoweredOp& op = list[at];
      INFO(sample.name << op.name << ", " << SchemaOf(op.spec.kind).name);
      memory.set_for_loss_alone(at >= body && !op.at_position);
      const std::string fault = memory.Run(op);
      if (!fault.empty()) FAIL(fault);
    }
    const int32_t logits = sample.stage.logits_buffer;
    CHECK((logits != kNone) == (sample.end == sample.graph.blocks));
    if (logits == kNone) return;
    // What the engine reads once generation's list is over.
    const Buffer& buffer = sample.stage.buffers[logits];
    if (!memory.Holds({Space::kBuffer, logits, 0}, {1, buffer.bytes, 0}, 1)) FAIL("overwritten");
  });
}

TEST_CASE("schema: a weight-grad reads the same values in a list of its own") {
  ForAllSamples([](const Sample& sample) {
    if (!sample.options.split_backward) return;
    LoweringOptions one_list = sample.options;
    one_list.split_backward = false;
    INFO(sample.name);
    CHECK(WhatWeightGradsRead(sample) ==
          WhatWeightGradsRead({sample.graph, one_list, sample.first, sample.end, sample.name}));
  });
}

TEST_CASE("schema: operands of one operator share memory only where it says so") {
  int64_t shared = 0;
  ForAllSamples([&](const Sample& sample) {
    const auto& buffers = sample.stage.buffers;
    const auto check = [&](const LoweredOp& op, const OperandSchema& written,
                           const OperandRef& to) {
      if (written.access == Access::kRead || to.space != Space::kBuffer) return;
      for (const OperandSchema& other : SchemaOf(op.spec.kind).Operands(op.spec.phase)) {
        const OperandRef& from = op.operand[other.name];
        if (other.name == written.name || from.space != Space::kBuffer) continue;
        if (buffers[from.id].pool != buffers[to.id].pool) continue;
        const int64_t a = buffers[from.id].offset + from.offset;
        const int64_t b = buffers[to.id].offset + to.offset;
        const int64_t a_end = a + ShapeIn(op, other).Span() * WidthOf(op, other);
        const int64_t b_end = b + ShapeIn(op, written).Span() * WidthOf(op, written);
        if (a_end <= b || b_end <= a) continue;
        INFO(sample.name << op.name << ", operands " << written.name << " and " << other.name);
        if (other.may_be != written.name || a != b) FAIL("share memory");
        ++shared;
      }
    };
    for (const OpList* list : sample.lists()) ForOperands(*list, check);
  });
  CHECK(shared > 0);
}

TEST_CASE("schema: what is recomputed by itself finds its inputs, and changes nothing else") {
  for (const OpKind kind : {OpKind::kLayerNorm, OpKind::kRmsNorm, OpKind::kAttention}) {
    CHECK(SchemaOf(kind).recompute == Recompute::kSelective);
  }
  ForAllSamples([](const Sample& sample) {
    const OpList& forward = sample.stage.forward;
    for (size_t at = 0; at < forward.size(); ++at) {
      const OpSchema& schema = SchemaOf(forward[at].spec.kind);
      std::set<int32_t> touched;
      for (const OperandSchema& operand : schema.Operands(Phase::kForward)) {
        INFO(sample.name << forward[at].name << ", operand " << operand.name);
        // A second run would count it twice.
        if (schema.recompute != Recompute::kNever) REQUIRE(operand.space != Space::kLossSum);
        if (schema.recompute != Recompute::kSelective) continue;
        REQUIRE((operand.access == Access::kRead || operand.access == Access::kWrite));
        const OperandRef& ref = forward[at].operand[operand.name];
        if (ref.space == Space::kBuffer) touched.insert(ref.id);
      }
      const OpList rest(forward.begin() + static_cast<std::ptrdiff_t>(at) + 1, forward.end());
      ForOperands(
          rest, [&](const LoweredOp& op, const OperandSchema& operand, const OperandRef& ref) {
            // An all-gather leaves this rank's share as it was.
            if (operand.access == Access::kRead || op.spec.kind == OpKind::kAllGather) return;
            INFO(sample.name << op.name << " overwrites what " << forward[at].name << " needs");
            if (ref.space == Space::kBuffer && touched.count(ref.id) > 0) FAIL("");
          });
    }
  });
}

}  // namespace trireme::graph
