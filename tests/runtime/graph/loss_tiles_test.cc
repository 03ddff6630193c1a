// The head in tiles of rows: every row of a micro-batch once, no more logits at a time than a tile
// holds, and none that outlive the list that makes them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/model/model.h"

namespace trireme::graph {
namespace {

constexpr int64_t kVocabulary = 61, kSamples = 3, kLength = 7;

ModelGraph Graph(int64_t vocabulary, int64_t width) {
  v1::ModelConfig config;
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(2);
  config.set_num_attention_heads(2);
  config.set_num_key_value_heads(2);
  config.set_head_dim(width / 2);
  config.set_hidden_size(width);
  config.set_intermediate_size(width);
  config.set_vocab_size(vocabulary);
  config.set_max_position_embeddings(1024);
  config.set_tie_word_embeddings(true);
  auto graph = model::BuildModel(config);
  REQUIRE(graph.ok());
  return *std::move(graph);
}

StageOps Lowered(const ModelGraph& graph, int64_t tile, bool split, int64_t tensor) {
  return LowerStage(graph, 0, graph.blocks,
                    {.tensor_size = tensor,
                     .sequence_parallel = tensor > 1,
                     .micro_batch = kSamples,
                     .tokens = kLength,
                     .split_backward = split,
                     .loss_tile_rows = tile});
}

// What the operators of one tile are called on, in the order of the list.
struct Call {
  OpKind kind;
  Phase phase;
  layout::Interval rows;
};

std::vector<Call> HeadCalls(const std::vector<LoweredOp>& list) {
  std::vector<Call> calls;
  for (const LoweredOp& op : list) {
    if (op.spec.kind != OpKind::kLmHeadLoss && op.spec.kind != OpKind::kLossCombine) continue;
    calls.push_back(
        {op.spec.kind, op.spec.phase, {op.spec.row_begin, op.spec.row_begin + op.spec.rows}});
  }
  return calls;
}

// Calls come in tiles of `operators` each, whose rows follow one another to the last.
void CheckCoverage(const std::vector<Call>& calls, size_t operators, int64_t tile) {
  REQUIRE(calls.size() % operators == 0);
  int64_t done = 0;
  for (size_t at = 0; at < calls.size(); ++at) {
    const Call& call = calls[at];
    INFO("operator " << at << " of the head on rows " << call.rows.begin << " to "
                     << call.rows.end);
    CHECK(call.rows.begin == done);
    CHECK(call.rows.size() <= tile);
    const bool last_of_tile = at % operators + 1 == operators;
    if (last_of_tile) done = call.rows.end;
  }
  CHECK(done == kSamples * kLength);
}

}  // namespace

TEST_CASE("loss tiles: each row of a micro-batch is in one tile, of a step and of an evaluation") {
  constexpr int64_t kRows = kSamples * kLength;
  const ModelGraph graph = Graph(kVocabulary, 8);
  for (const int64_t tile : {int64_t{1}, int64_t{4}, int64_t{5}, kRows - 1, kRows, 2 * kRows}) {
    for (const bool split : {false, true}) {
      for (const int64_t tensor : {1, 2, 3}) {
        INFO("tiles of " << tile << (split ? ", split" : "") << ", " << tensor << " ranks");
        const StageOps ops = Lowered(graph, tile, split, tensor);
        // Forward, its loss; in a step also both gradients, before the next tile.
        CheckCoverage(HeadCalls(ops.forward), 2, tile);
        CheckCoverage(HeadCalls(split ? ops.input_grad : ops.backward), 4, tile);
        CHECK(HeadCalls(ops.weight_grad).empty());
        const auto begin = ops.forward.begin();
        CHECK(HeadCalls({begin, begin + ops.ForwardEnd(ForwardUse::kGenerate)}).empty());
        CHECK(ops.forward[ops.ForwardEnd(ForwardUse::kStep)].at_position);
      }
    }
  }
}

TEST_CASE("loss tiles: logits are held for one tile, and for no longer than their list") {
  const ModelGraph graph = Graph(kVocabulary, 8);
  for (const int64_t tile : {1, 4, 20}) {
    for (const bool split : {false, true}) {
      const StageOps ops = Lowered(graph, tile, split, 1);
      int logits = 0;
      for (const Buffer& buffer : ops.buffers) {
        if (buffer.bytes < kVocabulary * static_cast<int64_t>(sizeof(float))) continue;
        INFO(buffer.name << " of " << buffer.bytes << " bytes, tiles of " << tile);
        const bool of_logits = buffer.name.find("logits") != std::string::npos;
        logits += of_logits ? 1 : 0;
        if (!of_logits) continue;
        CHECK(buffer.bytes == tile * kVocabulary * static_cast<int64_t>(sizeof(float)));
        CHECK(buffer.pool == BufferPool::kTemporary);
      }
      CHECK(logits == 2);  // of an evaluation, and of a step
    }
  }
}

TEST_CASE("loss tiles: no buffer of GPT-2 124M holds the logits of a micro-batch") {
  constexpr int64_t kRows = 4 * 1024, kTile = 1024, kWidest = 50257;
  const ModelGraph graph = Graph(kWidest, 768);
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBf16}) {
    for (const int64_t tensor : {1, 2}) {
      for (const bool split : {false, true}) {
        const StageOps ops = LowerStage(graph, 0, graph.blocks,
                                        {.tensor_size = tensor,
                                         .micro_batch = 4,
                                         .tokens = 1024,
                                         .dtype = dtype,
                                         .split_backward = split});
        // Of a row: the logits of the larger share.
        const int64_t row_bytes =
            (kWidest + tensor - 1) / tensor * static_cast<int64_t>(tensor::SizeOf(dtype));
        for (const Buffer& buffer : ops.buffers) {
          INFO(buffer.name << ", " << tensor << " ranks");
          CHECK(buffer.bytes <= kTile * row_bytes);
        }
        // Beside a tile there are a gradient and statistics of its rows.
        CHECK(ops.temporary_bytes <= (kTile + kRows / 16) * row_bytes);
      }
    }
  }
}

TEST_CASE("loss tiles: rows of a tile by size") {
  constexpr int64_t kBytes = int64_t{16} << 20;
  CHECK(LossTileRows(0, 4) == 0);
  CHECK(LossTileRows(1, 1 << 30) == 1);
  CHECK(LossTileRows(5000, 4) == 5000);  // all of a small vocabulary
  CHECK(LossTileRows(5120, 1 << 30) == 1024);
  CHECK(LossTileRows(1200, 100514) == 608);  // two tiles of nearly one size
  for (const int64_t rows : {1, 31, 33, 256, 1024, 1500, 4096}) {
    for (const int64_t row_bytes : {1000, 100514, 201028, 50000000}) {
      const int64_t tile = LossTileRows(rows, row_bytes);
      INFO(rows << " rows of " << row_bytes << " bytes in tiles of " << tile);
      CHECK(tile <= rows);
      CHECK((tile <= 1024 || tile * row_bytes <= kBytes));
      CHECK((tile == rows || tile % 32 == 0));
    }
  }
}

}  // namespace trireme::graph
