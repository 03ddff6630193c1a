// Two stages that would not run the same differ in their fingerprints: every member of every
// operator, operand and buffer is changed by itself. The structs are taken apart by all of their
// members, so that a new one does not compile here until it is among those changed.
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <tuple>
#include <type_traits>

#include "runtime/graph/lowering.h"
#include "runtime/model/model.h"

namespace trireme::graph {

namespace {

template <typename T>
void Change(T& field) {
  if constexpr (std::is_same_v<T, bool>) {
    field = !field;
  } else if constexpr (std::is_enum_v<T>) {
    field = static_cast<T>(static_cast<std::underlying_type_t<T>>(field) ^ 1);
  } else {
    field += 1;
  }
}

constexpr size_t kSpecFields = 25;

// Changes member number `index`.
void ChangeField(OpSpec& spec, size_t index) {
  auto& [kind, phase, dtype, rows, cols, inner, x_ld, y_ld, weight_layout, fused_residual,
         row_begin, weight_rows, vocab_begin, vocab_rows, tokens, heads, kv_heads, head_dim,
         head_begin, global_heads, tensor_ranks, epsilon, rope_theta, dropout_p, site] = spec;
  const auto fields =
      std::tie(kind, phase, dtype, rows, cols, inner, x_ld, y_ld, weight_layout, fused_residual,
               row_begin, weight_rows, vocab_begin, vocab_rows, tokens, heads, kv_heads, head_dim,
               head_begin, global_heads, tensor_ranks, epsilon, rope_theta, dropout_p, site);
  static_assert(std::tuple_size_v<decltype(fields)> == kSpecFields);
  size_t at = 0;
  std::apply([&](auto&... field) { ((at++ == index ? Change(field) : void()), ...); }, fields);
}

std::vector<StageOps> Samples() {
  v1::ModelConfig config;
  config.set_num_hidden_layers(2);
  config.set_num_attention_heads(6);
  config.set_num_key_value_heads(3);
  config.set_head_dim(4);
  config.set_hidden_size(24);
  config.set_intermediate_size(21);
  config.set_vocab_size(31);
  config.set_max_position_embeddings(16);
  config.set_norm_epsilon(1e-5);
  config.set_rope_theta(10000);
  std::vector<StageOps> samples;
  for (const char* family : {"gpt2", "llama"}) {
    config.set_model_type(family);
    config.set_bias(family == std::string("gpt2"));
    if (family == std::string("gpt2")) config.set_num_key_value_heads(6);
    const auto graph = model::BuildModel(config);
    REQUIRE(graph.ok());
    for (const bool split : {false, true}) {
      samples.push_back(LowerStage(*graph, 0, graph->blocks,
                                   {.tensor_size = 2,
                                    .sequence_parallel = split,
                                    .micro_batch = 2,
                                    .tokens = 5,
                                    .split_backward = split}));
    }
  }
  return samples;
}

// Counts the fingerprints that `change` leaves as they were.
int Unseen(const StageOps& stage, const std::function<void(StageOps&)>& change) {
  StageOps changed = stage;
  change(changed);
  return changed.Fingerprint() == stage.Fingerprint() ? 1 : 0;
}

}  // namespace

TEST_CASE("fingerprint: every member of every operator is in it") {
  std::set<OpKind> kinds;
  for (const StageOps& stage : Samples()) {
    for (const auto list :
         {&StageOps::forward, &StageOps::backward, &StageOps::input_grad, &StageOps::weight_grad}) {
      for (size_t op = 0; op < (stage.*list).size(); ++op) {
        const LoweredOp& whole = (stage.*list)[op];
        kinds.insert(whole.spec.kind);
        for (size_t field = 0; field < kSpecFields; ++field) {
          INFO(whole.name << ", member " << field << " of OpSpec");
          CHECK(Unseen(stage,
                       [&](StageOps& other) { ChangeField((other.*list)[op].spec, field); }) == 0);
        }
        for (size_t name = 0; name < kOperandCount; ++name) {
          const auto operand = [&](StageOps& other) -> OperandRef& {
            return (other.*list)[op].operand[name];
          };
          INFO(whole.name << ", operand " << name);
          CHECK(Unseen(stage, [&](StageOps& other) { Change(operand(other).space); }) == 0);
          CHECK(Unseen(stage, [&](StageOps& other) { Change(operand(other).id); }) == 0);
          CHECK(Unseen(stage, [&](StageOps& other) { Change(operand(other).offset); }) == 0);
        }
        CHECK(Unseen(stage, [&](StageOps& other) { Change((other.*list)[op].first_writer); }) == 0);
        CHECK(Unseen(stage, [&](StageOps& other) { Change((other.*list)[op].at_position); }) == 0);
        for (size_t rank = 0; rank < whole.offsets.size(); ++rank) {
          CHECK(Unseen(stage, [&](StageOps& other) { Change((other.*list)[op].offsets[rank]); }) ==
                0);
        }
      }
    }
  }
  CHECK(kinds.size() == 15);  // all of them: both families, split and not, in a tensor group
}

TEST_CASE("fingerprint: buffers, sizes and what is Partial are in it") {
  for (const StageOps& stage : Samples()) {
    for (size_t buffer = 0; buffer < stage.buffers.size(); ++buffer) {
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.buffers[buffer].bytes); }) == 0);
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.buffers[buffer].dtype); }) == 0);
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.buffers[buffer].pool); }) == 0);
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.buffers[buffer].offset); }) == 0);
    }
    for (const auto size :
         {&StageOps::boundary_bytes, &StageOps::activation_bytes, &StageOps::stash_bytes,
          &StageOps::gradient_stash_bytes, &StageOps::temporary_bytes}) {
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.*size); }) == 0);
    }
    for (size_t use = 0; use < kForwardUses; ++use) {
      CHECK(Unseen(stage, [&](StageOps& other) { Change(other.forward_end[use]); }) == 0);
    }
    CHECK(Unseen(stage, [](StageOps& other) { Change(other.logits_buffer); }) == 0);
    CHECK(Unseen(stage, [](StageOps& other) { Change(other.row_losses_buffer); }) == 0);
    CHECK(Unseen(stage, [](StageOps& other) { Change(other.parameters.front()); }) == 0);
    CHECK(Unseen(stage, [](StageOps& other) {
            if (other.partial_over_tensor.erase(other.parameters.front()) == 0) {
              other.partial_over_tensor.insert(other.parameters.front());
            }
          }) == 0);
  }
}

}  // namespace trireme::graph
