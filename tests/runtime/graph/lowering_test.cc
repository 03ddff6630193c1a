// Which collectives stand where, which gradients stay Partial, and what is saved for backward.
#include "runtime/graph/lowering.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/model/model.h"

namespace trireme::graph {

namespace {

v1::ModelConfig Config(const std::string& family, int64_t layers) {
  v1::ModelConfig config;
  config.set_model_type(family);
  config.set_num_hidden_layers(layers);
  config.set_num_attention_heads(6);
  config.set_num_key_value_heads(family == "gpt2" ? 6 : 3);
  config.set_head_dim(4);
  config.set_hidden_size(24);
  config.set_intermediate_size(21);
  config.set_vocab_size(31);
  config.set_max_position_embeddings(16);
  config.set_tie_word_embeddings(family == "gpt2");
  config.set_bias(family == "gpt2");
  config.set_norm_epsilon(1e-5);
  config.set_rope_theta(10000);
  config.set_initializer_range(0.02);
  return config;
}

ModelGraph Graph(const std::string& family, int64_t layers) {
  auto graph = model::BuildModel(Config(family, layers));
  REQUIRE(graph.ok());
  return *std::move(graph);
}

int Count(const std::vector<LoweredOp>& list, OpKind kind) {
  return static_cast<int>(std::count_if(list.begin(), list.end(),
                                        [&](const LoweredOp& op) { return op.spec.kind == kind; }));
}

}  // namespace

TEST_CASE("model: parameter counts are those of the published formulas") {
  // GPT-2: V C + M C + L (12 C^2 + 13 C) + 2 C with a feed-forward of 4 C; here 21 wide instead.
  const int64_t c = 24, f = 21, layers = 3;
  const int64_t layer = 2 * c + 3 * c * c + 3 * c + c * c + c + 2 * c + 2 * c * f + f + c;
  CHECK(Graph("gpt2", layers).ParameterCount() == 31 * c + 16 * c + layers * layer + 2 * c);
  // Llama: grouped heads, untied.
  const int64_t llama = 2 * c + 6 * 4 * c + 2 * 3 * 4 * c + c * 24 + 3 * c * f;
  CHECK(Graph("llama", layers).ParameterCount() == 2 * 31 * c + layers * llama + c);
}

TEST_CASE("model: flops of a token count products and no lookups") {
  const int64_t c = 24, f = 21, vocabulary = 31, layers = 3, length = 16;
  const auto flops = [&](const std::string& family, bool tied) {
    v1::ModelConfig config = Config(family, layers);
    config.set_tie_word_embeddings(tied);
    const auto graph = model::BuildModel(config);
    REQUIRE(graph.ok());
    return model::TrainingFlopsPerToken(*graph, config, length);
  };
  const int64_t gpt2 = 2 * c + 3 * c * c + 3 * c + c * c + c + 2 * c + 2 * c * f + f + c;
  const int64_t llama = 2 * c + 6 * 4 * c + 2 * 3 * 4 * c + c * 24 + 3 * c * f;
  // The head once, whether its table is also the embedding or not.
  const double head = static_cast<double>(vocabulary * c);
  for (const bool tied : {true, false}) {
    CHECK(flops("gpt2", tied) ==
          6 * (static_cast<double>(layers * gpt2 + 2 * c) + head) + 12.0 * layers * 24 * length);
    CHECK(flops("llama", tied) ==
          6 * (static_cast<double>(layers * llama + c) + head) + 12.0 * layers * 24 * length);
  }
}

TEST_CASE("lowering: two all-reduces per layer and direction in a tensor group") {
  const ModelGraph graph = Graph("gpt2", 2);
  const StageOps one = LowerStage(graph, 1, 2, {.tensor_size = 1, .micro_batch = 2, .tokens = 5});
  CHECK(Count(one.forward, OpKind::kAllReduce) == 0);
  CHECK(one.partial_over_tensor.empty());
  const StageOps two = LowerStage(graph, 1, 2, {.tensor_size = 2, .micro_batch = 2, .tokens = 5});
  CHECK(Count(two.forward, OpKind::kAllReduce) == 2);
  CHECK(Count(two.backward, OpKind::kAllReduce) == 2);
  CHECK(two.partial_over_tensor.empty());
}

TEST_CASE(
    "lowering: sequence parallelism scatters and gathers, and leaves norm gradients Partial") {
  const ModelGraph graph = Graph("gpt2", 2);
  const LoweringOptions options{
      .tensor_size = 2, .sequence_parallel = true, .micro_batch = 1, .tokens = 5};
  const StageOps ops = LowerStage(graph, 1, 2, options);
  CHECK(Count(ops.forward, OpKind::kAllReduce) == 0);
  CHECK(Count(ops.forward, OpKind::kAllGather) == 2);
  CHECK(Count(ops.forward, OpKind::kReduceScatter) == 2);
  CHECK(Count(ops.backward, OpKind::kAllGather) == 2);
  CHECK(Count(ops.backward, OpKind::kReduceScatter) == 2);
  // ln_1, ln_2 weights and biases, and the biases of the two row-parallel products.
  CHECK(ops.partial_over_tensor.size() == 6);
  // 5 rows over 2 ranks: 3 and 2.
  CHECK(ops.boundary_bytes == 3 * 24 * 4);
  LoweringOptions second = options;
  second.tensor_index = 1;
  CHECK(LowerStage(graph, 1, 2, second).boundary_bytes == 2 * 24 * 4);
}

TEST_CASE("lowering: the operators of a list follow from placements and no size") {
  // One row for two ranks: rank 0 has all rows in its own ones.
  for (const char* family : {"gpt2", "llama"}) {
    const ModelGraph graph = Graph(family, 2);
    for (const auto& [first, end] : {std::pair(0, 2), std::pair(1, 3), std::pair(0, 4)}) {
      LoweringOptions options{
          .tensor_size = 2, .sequence_parallel = true, .micro_batch = 1, .tokens = 1};
      const StageOps zero = LowerStage(graph, first, end, options);
      options.tensor_index = 1;
      const StageOps one = LowerStage(graph, first, end, options);
      options.tokens = 6;
      const StageOps wide = LowerStage(graph, first, end, options);
      for (const StageOps* other : {&one, &wide}) {
        CHECK(other->forward.size() == zero.forward.size());
        CHECK(other->backward.size() == zero.backward.size());
      }
    }
  }
}

TEST_CASE("lowering: a separate weight-grad reads nothing that a later input-grad overwrites") {
  for (const char* family : {"gpt2", "llama"}) {
    const ModelGraph graph = Graph(family, 3);
    for (bool sequence : {false, true}) {
      const StageOps ops = LowerStage(graph, 1, 4,
                                      {.tensor_size = sequence ? 2 : 1,
                                       .sequence_parallel = sequence,
                                       .micro_batch = 2,
                                       .tokens = 5,
                                       .split_backward = true});
      CHECK(ops.backward.empty());
      // The operand of each weight-grad must be stashed, received, or made inside W itself.
      for (const LoweredOp& op : ops.weight_grad) {
        for (Operand name : {kX, kY, kDY, kStats}) {
          const OperandRef& operand = op.operand[name];
          if (operand.space != Space::kBuffer) continue;
          const BufferPool pool = ops.buffers[operand.id].pool;
          CHECK((pool == BufferPool::kStash || pool == BufferPool::kGradientStash ||
                 pool == BufferPool::kInput || pool == BufferPool::kGradientIn));
        }
      }
      CHECK(ops.stash_bytes > 0);
      CHECK(ops.gradient_stash_bytes > 0);
    }
  }
}

TEST_CASE("lowering: overlapping temporaries are never alive at once") {
  const ModelGraph graph = Graph("llama", 2);
  const StageOps ops = LowerStage(graph, 0, 4, {.tensor_size = 1, .micro_batch = 2, .tokens = 5});
  std::vector<std::pair<int, int>> life(ops.buffers.size(), {1 << 30, -1});
  for (size_t at = 0; at < ops.backward.size(); ++at) {
    for (const OperandRef& operand : ops.backward[at].operand) {
      if (operand.space != Space::kBuffer) continue;
      auto& [first, last] = life[static_cast<size_t>(operand.id)];
      first = std::min(first, static_cast<int>(at));
      last = std::max(last, static_cast<int>(at));
    }
  }
  for (size_t a = 0; a < ops.buffers.size(); ++a) {
    for (size_t b = a + 1; b < ops.buffers.size(); ++b) {
      const Buffer &x = ops.buffers[a], &y = ops.buffers[b];
      if (x.pool != BufferPool::kTemporary || y.pool != BufferPool::kTemporary) continue;
      if (life[a].second < 0 || life[b].second < 0) continue;
      const bool alive = life[a].first <= life[b].second && life[b].first <= life[a].second;
      const bool overlap = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
      CHECK_FALSE((alive && overlap));
    }
  }
}

TEST_CASE("lowering: the fingerprint tells stages apart and repeats") {
  const ModelGraph graph = Graph("gpt2", 4);
  const LoweringOptions options{.tensor_size = 1, .micro_batch = 2, .tokens = 5};
  CHECK(LowerStage(graph, 1, 3, options).Fingerprint() ==
        LowerStage(graph, 1, 3, options).Fingerprint());
  CHECK(LowerStage(graph, 1, 3, options).Fingerprint() !=
        LowerStage(graph, 2, 4, options).Fingerprint());
  LoweringOptions longer = options;
  longer.tokens = 6;
  CHECK(LowerStage(graph, 1, 3, options).Fingerprint() !=
        LowerStage(graph, 1, 3, longer).Fingerprint());
}

}  // namespace trireme::graph
