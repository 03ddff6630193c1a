// Parity beside the products of parity_test.cc: other models and splits than its one per family,
// over every way a message can go (eager or not, in pieces, through the shared window), on inline
// and asynchronous streams, each with its evaluation loss and some tokens drawn.
#include <catch2/catch.hpp>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"

namespace trireme::engine {

namespace {

struct Way {
  const char* name;
  comm::LocalMode mode;
  size_t message_bytes;  // the largest; a smaller one makes pieces
  size_t window_bytes;
  bool asynchronous;
};

constexpr size_t kWhole = size_t{1} << 40;
// 256 KiB: pieces of 16 KiB with eight ranks, below 4 KiB there would be no window.
constexpr size_t kSmallWindow = size_t{256} << 10;

constexpr Way kWays[] = {
    {"rendezvous", comm::LocalMode::kRendezvous, kWhole, 0, false},
    {"rendezvous in pieces", comm::LocalMode::kRendezvous, 104, 0, false},
    {"window", comm::LocalMode::kEager, kWhole, kSmallWindow, false},
    {"window, rendezvous in pieces", comm::LocalMode::kRendezvous, 104, kSmallWindow, false},
    {"rendezvous, streams", comm::LocalMode::kRendezvous, kWhole, 0, true},
    {"eager in pieces, streams", comm::LocalMode::kEager, 104, 0, true},
    {"window, streams", comm::LocalMode::kEager, kWhole, kSmallWindow, true},
};
constexpr size_t kWayCount = std::size(kWays);

struct Variant {
  const char* name;
  TinyJobOptions model;
  std::function<void(v1::JobSpec&)> change = [](v1::JobSpec&) {};
  int threads = 1;
};

std::vector<Layout> VariedLayouts() {
  return {
      {.data = 2, .zero = 1, .micro_batch = 1},
      {.data = 2, .zero = 3, .recompute = "full", .micro_batch = 1},
      {.tensor = 3, .micro_batch = 3},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 1},
      {.pipeline = 2, .schedule = "1f1b"},
      {.pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
      {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "gpipe"},
      {.data = 2, .tensor = 2, .pipeline = 2, .schedule = "zb-h1", .micro_batch = 3},
  };
}

std::string RefusedBecause(v1::JobSpec job) {
  job.mutable_data()->add_text_files("text.txt");
  std::string text;
  for (const spec::Fault& fault : spec::Validate(job)) {
    absl::StrAppend(&text, fault.path, ": ", fault.message, "\n");
  }
  return text;
}

// `variant` on each of `layouts`, the ways taken in turn from `way` on.
void RunVariant(const Variant& variant, const std::vector<Layout>& layouts, size_t way) {
  const OnOneProcessor one;
  v1::JobSpec plain = JobFor({.micro_batch = 8}, variant.model);
  plain.mutable_training()->set_dtype("f64");
  plain.mutable_runtime()->set_kernels("reference");
  variant.change(plain);
  const int64_t vocabulary = plain.model().config().vocab_size();
  const auto dataset = MakeRandomDataset(vocabulary, plain.data().sequence_length());
  LayoutRunOptions options{.evaluate = true, .draw = 8};
  const auto reference = RunLayout(plain, 1, *dataset, options);
  INFO(variant.name << ": " << reference.status().ToString());
  REQUIRE(reference.ok());
  REQUIRE(reference->drawn.size() == 9);
  const double limit = variant.model.dtype == "f64" ? 1e-12 : 1e-6;
  for (const Layout& layout : layouts) {
    const Way& by = kWays[way++ % kWayCount];
    v1::JobSpec job = JobFor(layout, variant.model);
    variant.change(job);
    job.mutable_runtime()->set_asynchronous_streams(by.asynchronous);
    INFO(variant.name << ", " << layout.Name() << ", " << by.name);
    CHECK(RefusedBecause(job) == "");
    options.threads = variant.threads;
    options.transport.mode = by.mode;
    options.transport.max_message_bytes = by.message_bytes;
    options.transport.fabric.window_bytes = by.window_bytes;
    const auto result = RunLayout(job, layout.ranks(), *dataset, options);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    CHECK(FaultsOf(*result, *reference, limit) == "");
  }
}

// Sizes that share no divisor with those of TinyJob.
void OtherGpt2Widths(v1::JobSpec& job) {
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_num_attention_heads(4);
  config.set_num_key_value_heads(4);
  config.set_head_dim(6);
  config.set_hidden_size(24);
  config.set_intermediate_size(31);
  config.set_vocab_size(17);
  config.set_max_position_embeddings(6);
  job.mutable_data()->set_sequence_length(6);
}

void OtherLlamaWidths(v1::JobSpec& job) {
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_num_attention_heads(6);
  config.set_num_key_value_heads(3);
  config.set_head_dim(8);
  config.set_hidden_size(16);
  config.set_intermediate_size(13);
  config.set_vocab_size(41);
  job.mutable_data()->set_sequence_length(3);
}

// Six layers, unevenly over however many virtual stages there are.
void GivenLayersPerStage(v1::JobSpec& job) {
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  const int64_t stages = parallelism.pipeline_parallel_size() * parallelism.virtual_stages();
  const std::vector<int64_t> layers = stages == 1   ? std::vector<int64_t>{6}
                                      : stages == 2 ? std::vector<int64_t>{1, 5}
                                                    : std::vector<int64_t>{2, 1, 1, 2};
  parallelism.clear_layers_per_stage();
  for (const int64_t each : layers) parallelism.add_layers_per_stage(each);
}

// By layer; with what each keeps, stages of two layers keep different things. The one rank of the
// reference keeps all.
void MixedRecompute(v1::JobSpec& job) {
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  const int64_t ranks = parallelism.data_parallel_size() * parallelism.tensor_parallel_size() *
                        parallelism.pipeline_parallel_size();
  if (ranks == 1) return;
  parallelism.clear_recompute();
  for (const char* mode : {"full", "none", "selective", "full"}) parallelism.add_recompute(mode);
}

void ThreeVirtualStages(v1::JobSpec& job) {
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  if (parallelism.schedule() == "interleaved") parallelism.set_virtual_stages(3);
}

}  // namespace

TEST_CASE("parity: gpt2 with head of its own and without biases, all ways") {
  RunVariant({"untied, no bias", {.dropout = 0.1, .tie = false, .bias = false}}, VariedLayouts(),
             0);
  RunVariant({"untied", {.tie = false}}, VariedLayouts(), 3);
}

TEST_CASE("parity: llama with tied embeddings, all ways") {
  RunVariant({"tied llama",
              {.family = "llama"},
              [](v1::JobSpec& job) {
                job.mutable_model()->mutable_config()->set_tie_word_embeddings(true);
              }},
             VariedLayouts(), 1);
}

TEST_CASE("parity: f32 with dropout, all ways") {
  RunVariant({"f32 dropout", {.dtype = "f32", .dropout = 0.2}}, VariedLayouts(), 2);
}

TEST_CASE("parity: other widths, all ways") {
  RunVariant({"gpt2, other widths", {.dropout = 0.1}, OtherGpt2Widths}, VariedLayouts(), 4);
  RunVariant({"llama, other widths", {.family = "llama"}, OtherLlamaWidths}, VariedLayouts(), 5);
}

TEST_CASE("parity: given layers per stage, all ways") {
  RunVariant({"layers per stage", {.layers = 6, .dropout = 0.1}, GivenLayersPerStage},
             VariedLayouts(), 6);
}

TEST_CASE("parity: layers recomputed each in its own mode, all ways") {
  const std::vector<Layout> layouts = {
      {.pipeline = 2, .schedule = "1f1b", .micro_batch = 1},
      {.pipeline = 2, .schedule = "gpipe", .offload_activations = "host", .micro_batch = 1},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 3},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "interleaved"},
      {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1},
  };
  RunVariant({"mixed recompute", {.dropout = 0.1}, MixedRecompute}, layouts, 1);
  RunVariant({"mixed recompute", {.family = "llama"}, MixedRecompute}, layouts, 4);
}

TEST_CASE("parity: three virtual stages, all ways") {
  const std::vector<Layout> layouts = {
      {.pipeline = 2, .schedule = "interleaved"},
      {.pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
      {.pipeline = 2, .schedule = "interleaved", .micro_batch = 3},
      {.pipeline = 3, .schedule = "interleaved", .micro_batch = 1},
      {.data = 2, .pipeline = 2, .schedule = "interleaved", .zero = 1},
      {.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "interleaved"},
      {.data = 2, .tensor = 2, .pipeline = 2, .schedule = "interleaved", .micro_batch = 1},
  };
  RunVariant({"three virtual stages", {.layers = 10}, ThreeVirtualStages}, layouts, 0);
}

TEST_CASE("parity: two threads per rank, all ways") {
  RunVariant({.name = "two threads", .model = {.family = "llama", .dtype = "f32"}, .threads = 2},
             VariedLayouts(), 3);
  RunVariant({.name = "two threads, f64", .model = {.dropout = 0.1}, .threads = 2},
             {{.data = 2, .tensor = 2, .zero = 1}, {.pipeline = 2, .schedule = "zb-h1"}}, 2);
}

}  // namespace trireme::engine
