// What is compared with the machine: least bytes and flops of operators and of a step, and the
// table that shows them. No time is asserted.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/benchmark/limits.h"
#include "runtime/benchmark/operator_lines.h"
#include "runtime/benchmark/operator_table.h"
#include "runtime/benchmark/other_load.h"
#include "runtime/benchmark/roofline.h"
#include "runtime/kernels/kernel.h"
#include "runtime/model/model.h"

namespace trireme::benchmark {
namespace {
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using tensor::DType;

OpSpec Rows(OpKind kind, Phase phase, DType dtype) {
  OpSpec spec;
  spec.kind = kind;
  spec.phase = phase;
  spec.dtype = dtype;
  spec.rows = 5;
  spec.cols = spec.inner = spec.x_ld = spec.y_ld = 16;
  spec.weight_rows = 64;
  spec.vocab_rows = 1000;
  return spec;
}

v1::ModelConfig Gpt2() {
  v1::ModelConfig config;
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(12);
  config.set_num_attention_heads(12);
  config.set_num_key_value_heads(12);
  config.set_head_dim(64);
  config.set_hidden_size(768);
  config.set_intermediate_size(3072);
  config.set_vocab_size(50257);
  config.set_max_position_embeddings(1024);
  config.set_tie_word_embeddings(true);
  config.set_bias(true);
  config.set_norm_epsilon(1e-5);
  config.set_initializer_range(0.02);
  return config;
}

StepWork WorkOfGpt2(const graph::LoweringOptions& options) {
  const auto graph = model::BuildModel(Gpt2());
  REQUIRE(graph.ok());
  return WorkOf(graph::LowerStage(*graph, 0, graph->blocks, options));
}

}  // namespace

TEST_CASE("least bytes: each operand once, in its own dtype") {
  const double matrix = 5 * 16;
  // x, y; gamma and beta; mean and deviation of each row, f32 in bf16 too.
  CHECK(LeastBytes(Rows(OpKind::kLayerNorm, Phase::kForward, DType::kF32), false) ==
        4 * (2 * matrix + 2 * 16 + 5 * 2));
  CHECK(LeastBytes(Rows(OpKind::kLayerNorm, Phase::kForward, DType::kBf16), false) ==
        2 * (2 * matrix + 2 * 16) + 4 * 5 * 2);
  // dy, x, what is added to, dx.
  CHECK(LeastBytes(Rows(OpKind::kLayerNorm, Phase::kInputGrad, DType::kF32), true) ==
        4 * (4 * matrix + 16 + 5 * 2));
  CHECK(LeastBytes(Rows(OpKind::kGelu, Phase::kInputGrad, DType::kBf16), false) == 2 * 3 * matrix);
  // Five rows of a table of a thousand, and the tokens that choose them; as few of its gradient.
  CHECK(LeastBytes(Rows(OpKind::kEmbedding, Phase::kForward, DType::kF32), false) ==
        4 * 2 * matrix + 4 * 5);
  CHECK(LeastBytes(Rows(OpKind::kEmbedding, Phase::kWeightGrad, DType::kBf16), false) ==
        2 * matrix + 4 * matrix + 4 * 5);
  // What is changed in place is read and written: logits become their gradient.
  OpSpec head = Rows(OpKind::kLmHeadLoss, Phase::kInputGrad, DType::kF32);
  head.cols = head.y_ld = head.vocab_rows = 40;
  // Logits, W, log-sum-exps and targets, dx.
  CHECK(LeastBytes(head, true) == 4 * (2 * 5 * 40 + 16 * 40 + 5 + 5 + 5 * 16));
}

// The table's lines are the operators of the model's graph, as often as a step runs them.
TEST_CASE("operator lines: times their number they are the work of a step") {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const int64_t tokens : {256, 1024}) {
      const int64_t batch = 1024 / tokens;
      double flops = 0, bytes = 0;
      for (const OperatorLine& line :
           LinesOfGpt2({.dtype = dtype, .batch = batch, .tokens = tokens})) {
        if (line.kind != LineKind::kOperator) continue;
        flops += line.per_step * line.flops;
        if (line.flops == 0) bytes += line.per_step * line.bytes;
      }
      const StepWork work = WorkOfGpt2({.micro_batch = batch, .tokens = tokens, .dtype = dtype});
      CHECK(flops == Approx(work.flops).epsilon(1e-12));
      // The positions' rows of all samples or of one, and the few numbers of the loss.
      CHECK(bytes == Approx(work.bytes).epsilon(0.01));
      const StepWork split = WorkOfGpt2(
          {.micro_batch = batch, .tokens = tokens, .dtype = dtype, .split_backward = true});
      CHECK(split.flops == work.flops);
    }
  }
}

TEST_CASE("operator lines: each has a kernel, and its own name") {
  kernels::KernelRegistry registry;
  kernels::RegisterCpuKernels(registry);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<std::string> names;
    for (const OperatorLine& line : LinesOfGpt2({.dtype = dtype, .batch = 1, .tokens = 8})) {
      INFO(line.name);
      CHECK(std::count(names.begin(), names.end(), line.name) == 0);
      names.push_back(line.name);
      CHECK((line.flops > 0 || line.bytes > 0));
      if (line.kind != LineKind::kOperator) continue;
      CHECK(
          registry.Prepare(line.spec, {.scratch_limit_bytes = size_t{1} << 30, .threads = 1}).ok());
    }
  }
}

TEST_CASE("a line is measured beside a limit of its kind") {
  const auto limits = Limits::Create(1, Stopwatch());
  REQUIRE(limits.ok());
  int measured = 0;
  for (const OperatorLine& line : LinesOfGpt2({.dtype = DType::kBf16, .batch = 1, .tokens = 32})) {
    if (line.name != "layer norm I" && line.name != "proj in,out F") continue;
    ++measured;
    const auto result = Measure(line, **limits, {.repeats = 1, .seconds = 0});
    REQUIRE(result.ok());
    CHECK(result->seconds > 0);
    CHECK(result->limit > 0);
    const double work = line.flops > 0 ? line.flops : line.bytes;
    CHECK(result->rate == Approx(work / result->seconds));
    CHECK(result->LeastSeconds() == Approx(work / result->limit));
  }
  CHECK(measured == 2);
}

// Of rates that are measured twice the last bits differ.
TEST_CASE("lines that have no time take the limit that another was measured beside") {
  const auto limits = Limits::Create(1, Stopwatch());
  REQUIRE(limits.ok());
  std::vector<double> seen;
  for (const OperatorLine& line : LinesOfGpt2({.dtype = DType::kBf16, .batch = 1, .tokens = 32})) {
    if (line.name != "layer norm F" && line.name != "layer norm I") continue;
    const auto result = Measure(
        line, **limits, {.repeats = 0, .seconds = 1e-9, .limit_age = std::chrono::hours(1)});
    REQUIRE(result.ok());
    CHECK(std::isfinite(result->seconds));
    CHECK(result->rate > 0);
    seen.push_back(result->limit);
  }
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == seen[1]);
  CHECK((*limits)->RecentMemoryRate(std::chrono::hours(1)) == seen[0]);
  CHECK((*limits)->RecentMemoryRate(std::chrono::nanoseconds(0)) != seen[0]);
}

TEST_CASE("operator table: no such operator") {
  const auto limits = Limits::Create(1, Stopwatch());
  REQUIRE(limits.ok());
  TableOptions options;
  options.dtypes = {DType::kF32};
  options.only = "moon";
  const auto table = MeasureGpt2(options, **limits, [](size_t, size_t, const std::string&) {});
  REQUIRE_FALSE(table.ok());
  CHECK(absl::IsInvalidArgument(table.status()));
  CHECK(std::string(table.status().message()).find("no operator has \"moon\"") == 0);
}

TEST_CASE("other load: of the machine's line in /proc/stat") {
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  // user nice system idle iowait irq softirq steal guest guest_nice
  const auto times = ProcessorTimesOf("cpu  100 20 30 4000 500 6 7 8 90 9");
  REQUIRE(times.has_value());
  CHECK(times->used * per_second == Approx(100 + 20 + 30 + 6 + 7 + 8));
  CHECK(times->idle * per_second == Approx(4500));
  for (const char* line : {"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4", "cpu x"}) {
    CHECK_FALSE(ProcessorTimesOf(line).has_value());
  }
}

TEST_CASE("other load: another process's work counts") {
  const OtherLoad load;
  CHECK(load.Share() == 0);
  const pid_t test = getpid(), other = fork();
  REQUIRE(other >= 0);
  if (other == 0) {
    while (getppid() == test) {
    }
    _exit(0);
  }
  // Whoever takes its processor from it is another one as well.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (load.Share() == 0 && std::chrono::steady_clock::now() < end) usleep(50'000);
  CHECK(load.Share() > 0);
  CHECK(load.Share() <= 1);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

// A step of T tokens takes the attention of T tokens, and all other lines.
TEST_CASE("operator table: sums of a step, as text and as JSON") {
  OperatorTable table;
  table.threads = 2;
  table.memory_rate = 40e9;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    OperatorTable::Group group;
    group.dtype = dtype;
    group.product_rate = 1999.7e9;
    for (const int64_t tokens : {256, 1024}) {
      for (OperatorLine line :
           LinesOfGpt2({.dtype = dtype, .batch = 1024 / tokens, .tokens = tokens})) {
        const bool attention = line.name == "attention F";
        if (!attention && (line.name != "gelu F" || tokens != 256)) continue;
        line.per_step = attention ? 10 : 100;
        Measured row;
        row.line = line;
        row.seconds = attention ? 1e-6 * static_cast<double>(tokens) : 1e-3;
        row.limit = 100;
        row.rate = 50;
        group.rows.push_back(row);
      }
    }
    table.groups.push_back(group);
  }
  const auto json = nlohmann::json::parse(JsonOf(table));
  REQUIRE(json["groups"].size() == 2);
  const auto& bf16 = json["groups"][1];
  CHECK(bf16["dtype"] == "bf16");
  CHECK(bf16["operators"].size() == 3);
  CHECK(bf16["steps"][0]["ms"].get<double>() == Approx(100 + 2.56));
  CHECK(bf16["steps"][1]["ms"].get<double>() == Approx(100 + 10.24));
  CHECK(bf16["steps"][1]["ratio"].get<double>() == Approx(0.5));
  const std::string text = TextOf(table);
  CHECK(text.find("f32 product 2,000 GFLOP/s (square)") != std::string::npos);
  CHECK(text.find("a step, T=1024") != std::string::npos);
  table.whole = false;
  CHECK(TextOf(table).find("a step, T") == std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(JsonOf(table))["groups"][0].contains("steps"));
  CHECK(TextOf(table).find("limits: memory 40.0 GB/s (triad)\n        f32 product") !=
        std::string::npos);
  CHECK(TextOf(table).find("Other programs") == std::string::npos);
  table.other_load = 0.3;
  CHECK(TextOf(table).find("Other programs took 30 % of the processors") != std::string::npos);
  // Of what was not measured nothing is said.
  table.memory_rate = 0;
  CHECK(TextOf(table).find("triad)") == std::string::npos);
  CHECK(TextOf(table).find("limits: f32 product") != std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(JsonOf(table)).contains("memory_gbytes_per_second"));
  for (OperatorTable::Group& group : table.groups) group.product_rate = 0;
  CHECK(TextOf(table).find("limits") == std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(JsonOf(table))["groups"][0].contains("product_gflops"));
}

}  // namespace trireme::benchmark
