// The CPU kernels at the shapes of GPT-2 124M, each beside the machine's limit measured just before
// it: for products a square sgemm, in bf16 a product with weights in oneDNN's own layout, all of it
// in the cache; triad for what moves memory. Activations rotate through 128 MiB.
//   bench_kernels [--dtype f32|bf16] [--threads 2] [--batch 4] [--tokens 256] [--repeats 7]
//   [--only name] [--clock wall|cpu] [--heads 12] (of attention)
// Prints a table, an estimate of a training step (kernels times their number in a step), and one
// line of JSON.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/graph/op_schema.h"
#include "runtime/kernels/kernel.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/bf16.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/memory.h"

namespace trireme::kernels {
namespace {

using graph::OpCall;
using graph::OperandSchema;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

constexpr int64_t kWidth = 768, kHeads = 12, kLayers = 12, kVocabulary = 50257, kPositions = 1024;
constexpr size_t kRotatedBytes = size_t{128} << 20;

struct Options {
  tensor::DType dtype = tensor::DType::kF32;
  int threads = 2;
  int64_t batch = 4;
  int64_t tokens = 256;
  int repeats = 7;
  int64_t heads = kHeads;
  std::string only;
};

// The processor time of the process: on a loaded machine, with one thread, the only clock that
// counts this program.
clockid_t clock_id = CLOCK_MONOTONIC;

double Now() {
  timespec now = {};
  clock_gettime(clock_id, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Body>
double Seconds(const Body& body) {
  const double start = Now();
  body();
  return Now() - start;
}

tensor::HugeMemory MapFloats(size_t floats, int threads) {
  auto memory = tensor::HugeMemory::Map(floats * sizeof(float), {.prefault_threads = threads});
  TRIREME_CHECK(memory.ok());
  auto* values = reinterpret_cast<float*>(memory->data());
  std::minstd_rand generator(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float block[4096];
  for (float& value : block) value = uniform(generator);
  for (size_t i = 0; i < floats; i += 4096) {
    std::memcpy(values + i, block, std::min<size_t>(4096, floats - i) * sizeof(float));
  }
  return std::move(*memory);
}

float* Floats(tensor::HugeMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

// What this machine does at best, in the same minute.
class Limits {
 public:
  explicit Limits(int threads)
      : threads_(threads),
        product_(MapFloats(3 * kSide * kSide, threads)),
        triad_(MapFloats(3 * kTriad, threads)) {}

  double Gflops(tensor::DType dtype) {
    if (dtype == tensor::DType::kBf16) return Bf16Gflops();
    float* a = Floats(product_);
    const auto run = [&] {
      dnnl_sgemm('N', 'N', kSide, kSide, kSide, 1.0f, a, kSide, a + kSide * kSide, kSide, 0.0f,
                 a + 2 * kSide * kSide, kSide);
    };
    return 2e-9 * kSide * kSide * kSide / std::min(Seconds(run), Seconds(run));
  }

  double GigabytesPerSecond() {
    float* a = Floats(triad_);
    const float* b = a + kTriad;
    const float* c = b + kTriad;
    const auto run = [&] {
#pragma omp parallel for num_threads(threads_) schedule(static)
      for (size_t i = 0; i < kTriad; ++i) a[i] = b[i] + 0.5f * c[i];
    };
    return 1e-9 * 3 * sizeof(float) * kTriad / std::min(Seconds(run), Seconds(run));
  }

 private:
  double Bf16Gflops() {
    using Memory = dnnl::memory;
    constexpr int64_t kRows = 1024, kCols = 2304, kInner = 768;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const Memory::desc a({kRows, kInner}, Memory::data_type::bf16, Memory::format_tag::ab);
    const Memory::desc b({kInner, kCols}, Memory::data_type::bf16, Memory::format_tag::any);
    const Memory::desc c({kRows, kCols}, Memory::data_type::bf16, Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description({a, b, c}, engine);
    dnnl::matmul product(description);
    dnnl::stream stream(engine);
    std::byte* memory = product_.data();
    Memory a_memory(a, engine, memory), c_memory(c, engine, memory + (16 << 20));
    Memory b_memory(description.weights_desc(), engine, memory + (8 << 20));
    double best = 1e30;
    for (int i = 0; i < 10; ++i) {
      best = std::min(best, Seconds([&] {
                        product.execute(stream, {{DNNL_ARG_SRC, a_memory},
                                                 {DNNL_ARG_WEIGHTS, b_memory},
                                                 {DNNL_ARG_DST, c_memory}});
                      }));
    }
    return 2e-9 * kRows * kCols * kInner / best;
  }

  static constexpr size_t kSide = 1536;
  static constexpr size_t kTriad = size_t{16} << 20;
  int threads_;
  tensor::HugeMemory product_, triad_;
};

struct Line {
  std::string name;
  OpSpec spec;
  double per_step = 0;
  double gigabytes = 0;  // least traffic, of what is limited by memory
  bool base = false;
};

class Subject {
 public:
  Subject(const Line& line, const Options& options) : line_(line) {
    KernelRegistry registry;
    RegisterCpuKernels(registry);
    auto kernel = registry.Prepare(
        line.spec, {.scratch_limit_bytes = size_t{1} << 30, .threads = options.threads});
    TRIREME_CHECK(kernel.ok());
    kernel_ = std::move(*kernel);
    for (const OperandSchema& operand : Operands()) bytes_ += OperandBytes(operand);
    copies_ = std::clamp<size_t>(kRotatedBytes / bytes_, 1, 12);
    memory_ = MapFloats(copies_ * bytes_ / sizeof(float), options.threads);
    if (line.spec.dtype == tensor::DType::kBf16) MakeBf16();
    scratch_ = MapFloats(kernel_->ScratchBytes() / sizeof(float) + 64, options.threads);
    std::minstd_rand generator(3);
    tokens_.resize(static_cast<size_t>(line.spec.rows));
    for (int32_t& token : tokens_) token = static_cast<int32_t>(generator() % kVocabulary);
    lse_.assign(static_cast<size_t>(line.spec.rows), 12.0f);
  }

  double Run() {
    OpCall call;
    std::byte* next = memory_.data() + copy_ * bytes_;
    copy_ = (copy_ + 1) % copies_;
    for (const OperandSchema& operand : Operands()) {
      call.operand[operand.name] = next;
      next += OperandBytes(operand);
    }
    call.operand[graph::kTokens] = tokens_.data();
    call.operand[graph::kBase] = line_.base ? call.operand[graph::kDX] : nullptr;
    if (line_.spec.kind == OpKind::kLmHeadLoss) call.operand[graph::kBase] = lse_.data();
    call.loss_scale = 1e-3;
    call.scratch = {scratch_.data(), kernel_->ScratchBytes()};
    return Seconds([&] { kernel_->Run(call); });
  }

 private:
  std::span<const OperandSchema> Operands() const {
    return graph::SchemaOf(line_.spec.kind).Operands(line_.spec.phase);
  }
  // Whole pages and a line: operands do not begin at the same place of one.
  size_t OperandBytes(const OperandSchema& operand) const {
    const size_t bytes = static_cast<size_t>(operand.shape(line_.spec).Span()) *
                         tensor::SizeOf(operand.DTypeIn(line_.spec));
    return (bytes + 4095) / 4096 * 4096 + 256;
  }
  // Every half of the floats becomes a number in (-1, 1) too.
  void MakeBf16() {
    auto* halves = reinterpret_cast<uint16_t*>(memory_.data());
    for (size_t i = 0; i + 1 < memory_.size() / 2; i += 2) halves[i] = halves[i + 1];
  }

  Line line_;
  std::unique_ptr<Kernel> kernel_;
  size_t bytes_ = 0, copies_ = 1, copy_ = 0;
  tensor::HugeMemory memory_, scratch_;
  std::vector<int32_t> tokens_;
  std::vector<float> lse_;
};

class Lines {
 public:
  explicit Lines(const Options& options)
      : options_(options), rows_(options.batch * options.tokens) {}

  std::vector<Line> Make() {
    AddProducts();
    AddAttention();
    AddRowLoops();
    return std::move(lines_);
  }

 private:
  OpSpec Spec(OpKind kind, Phase phase, int64_t inner, int64_t cols) const {
    OpSpec s;
    s.kind = kind;
    s.phase = phase;
    s.dtype = options_.dtype;
    s.rows = rows_;
    s.cols = cols;
    s.inner = inner;
    s.x_ld = inner;
    s.y_ld = cols;
    s.tokens = options_.tokens;
    s.weight_rows = kPositions;
    s.vocab_rows = kVocabulary;
    s.epsilon = 1e-5;
    return s;
  }

  void AddProducts() {
    struct Shape {
      const char* name;
      int64_t inner, cols;
      bool residual;
    };
    for (auto layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      for (const Shape& shape : {Shape{"qkv", kWidth, 3 * kWidth, false},
                                 {"proj", kWidth, kWidth, true},
                                 {"fc", kWidth, 4 * kWidth, false},
                                 {"fc_proj", 4 * kWidth, kWidth, true}}) {
        for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
          OpSpec s = Spec(OpKind::kLinear, phase, shape.inner, shape.cols);
          s.weight_layout = layout;
          s.fused_residual = shape.residual && phase == Phase::kForward;
          const bool in_out = layout == WeightLayout::kInOut;
          lines_.push_back(
              {std::string(shape.name) + (in_out ? " in,out" : " out,in") + PhaseName(phase), s,
               in_out ? kLayers : 0.0});
        }
      }
    }
    for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      lines_.push_back({std::string("head out,in") + PhaseName(phase),
                        Spec(OpKind::kLmHeadLoss, phase, kWidth, kVocabulary), 1});
    }
  }

  void AddAttention() {
    for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      constexpr int64_t kHeadDim = kWidth / kHeads;
      const int64_t width = options_.heads * kHeadDim;
      OpSpec s = Spec(OpKind::kAttention, phase, 3 * width, width);
      s.heads = s.kv_heads = s.global_heads = options_.heads;
      s.head_dim = kHeadDim;
      lines_.push_back({std::string("attention") + PhaseName(phase), s, kLayers});
      s.dropout_p = 0.1;
      lines_.push_back({std::string("attention dropout") + PhaseName(phase), s, 0});
    }
  }

  // `passes`: matrices [rows, cols] read or written.
  void AddRows(const char* name, OpKind kind, Phase phase, int64_t cols, double passes,
               double per_step) {
    OpSpec s = Spec(kind, phase, cols, cols);
    if (kind == OpKind::kSwiGlu) s.x_ld = 2 * cols;
    Line line{std::string(name) + PhaseName(phase), s, per_step,
              1e-9 * static_cast<double>(tensor::SizeOf(s.dtype)) * passes *
                  static_cast<double>(rows_ * cols)};
    line.base = kind == OpKind::kLayerNorm && phase == Phase::kInputGrad;
    lines_.push_back(line);
  }

  void AddRowLoops() {
    AddRows("layer norm", OpKind::kLayerNorm, Phase::kForward, kWidth, 2, 2 * kLayers + 1);
    AddRows("layer norm", OpKind::kLayerNorm, Phase::kInputGrad, kWidth, 4, 2 * kLayers + 1);
    AddRows("layer norm", OpKind::kLayerNorm, Phase::kWeightGrad, kWidth, 2, 2 * kLayers + 1);
    AddRows("rms norm", OpKind::kRmsNorm, Phase::kForward, kWidth, 2, 0);
    AddRows("gelu", OpKind::kGelu, Phase::kForward, 4 * kWidth, 2, kLayers);
    AddRows("gelu", OpKind::kGelu, Phase::kInputGrad, 4 * kWidth, 3, kLayers);
    AddRows("swiglu", OpKind::kSwiGlu, Phase::kForward, 4 * kWidth, 3, 0);
    AddRows("swiglu", OpKind::kSwiGlu, Phase::kInputGrad, 4 * kWidth, 5, 0);
    AddRows("residual add", OpKind::kResidualAdd, Phase::kForward, kWidth, 3, 0);
    AddRows("embedding", OpKind::kEmbedding, Phase::kForward, kWidth, 2, 1);
    AddRows("position", OpKind::kPositionEmbedding, Phase::kForward, kWidth, 2, 1);
    lines_.push_back(lines_[lines_.size() - 3]);
    lines_.back().name = "residual add, dropout F";
    lines_.back().spec.dropout_p = 0.1;
  }

  static const char* PhaseName(Phase phase) {
    return phase == Phase::kForward ? " F" : phase == Phase::kInputGrad ? " I" : " W";
  }

  Options options_;
  int64_t rows_;
  std::vector<Line> lines_;
};

struct Result {
  double ms = 0, rate = 0, limit = 0, ratio = 0;
};

// The best of the repeats, against the best limit measured between them.
template <class Run, class Limit>
Result Measure(int repeats, double work, const Run& run, const Limit& limit) {
  Result result;
  double best = 1e30;
  run();
  for (int i = 0; i < repeats; ++i) {
    if (i % 3 == 0) result.limit = std::max(result.limit, limit());
    for (int k = 0; k < 3; ++k) best = std::min(best, run());
  }
  result.ms = best * 1e3;
  result.rate = work / best;
  result.ratio = result.rate / result.limit;
  return result;
}

class Table {
 public:
  void Add(const std::string& name, const char* unit, double per_step, const Result& r) {
    std::printf("%-26s %9.3f ms %8.1f %-8s limit %7.1f  ratio %.2f\n", name.c_str(), r.ms, r.rate,
                unit, r.limit, r.ratio);
    std::fflush(stdout);
    json_["lines"].push_back({{"name", name},
                              {"ms", r.ms},
                              {"rate", r.rate},
                              {"unit", unit},
                              {"limit", r.limit},
                              {"ratio", r.ratio},
                              {"per_step", per_step}});
    step_ms_ += per_step * r.ms;
  }
  void Finish(const Options& options) {
    const double tokens = static_cast<double>(options.batch * options.tokens);
    std::printf("sum of a training step: %.0f ms, %.0f tokens/s\n", step_ms_,
                tokens / step_ms_ * 1e3);
    json_["threads"] = options.threads;
    json_["dtype"] = tensor::NameOf(options.dtype);
    json_["step_ms"] = step_ms_;
    json_["tokens_per_s"] = tokens / step_ms_ * 1e3;
    std::printf("%s\n", json_.dump().c_str());
  }

 private:
  nlohmann::json json_ = {{"bench", "kernels"}};
  double step_ms_ = 0;
};

void MeasureOptimizer(const Options& options, Limits& limits, Table& table) {
  constexpr size_t kParameters = size_t{32} << 20;
  constexpr double kAllParameters = 124.4e6;
  const bool bf16 = options.dtype == tensor::DType::kBf16;
  tensor::HugeMemory memory = MapFloats(5 * kParameters, options.threads);
  float* p = Floats(memory);
  for (size_t i = 0; i < kParameters; ++i) p[3 * kParameters + i] = 1e-4f;
  const auto span = [&](size_t k) { return std::span<float>(p + k * kParameters, kParameters); };
  const std::span weight(reinterpret_cast<tensor::BFloat16*>(p + 4 * kParameters), kParameters);
  optim::AdamWOptions step;
  step.learning_rate = 1e-4;
  step.threads = options.threads;
  const auto adamw = [&] {
    if (bf16) return optim::AdamW(span(0), span(1), span(2), span(3), weight, step);
    optim::AdamW<float>(span(0), span(1), span(2), span(3), step);
  };
  const auto limit = [&] { return limits.GigabytesPerSecond(); };
  const double scale = kAllParameters / kParameters;
  table.Add("AdamW (32 Mi)", "GB/s", scale,
            Measure(
                options.repeats, (bf16 ? 30e-9 : 28e-9) * kParameters,
                [&] { return Seconds(adamw); }, limit));
  table.Add(
      "sum of squares (32 Mi)", "GB/s", scale,
      Measure(
          options.repeats, 4e-9 * kParameters,
          [&] { return Seconds([&] { optim::SumOfSquares<float>(span(1), options.threads); }); },
          limit));
}

int Main(const Options& options) {
  omp_set_num_threads(options.threads);
  Limits limits(options.threads);
  Table table;
  for (const Line& line : Lines(options).Make()) {
    if (line.name.find(options.only) == std::string::npos) continue;
    Subject subject(line, options);
    const auto flops = graph::SchemaOf(line.spec.kind).flops;
    const bool product = flops != nullptr;
    const Result result = Measure(
        options.repeats, product ? 1e-9 * flops(line.spec) : line.gigabytes,
        [&] { return subject.Run(); },
        [&] { return product ? limits.Gflops(options.dtype) : limits.GigabytesPerSecond(); });
    table.Add(line.name, product ? "GFLOP/s" : "GB/s", line.per_step, result);
  }
  if (options.only.empty() || options.only == "AdamW") MeasureOptimizer(options, limits, table);
  table.Finish(options);
  return 0;
}

}  // namespace
}  // namespace trireme::kernels

int main(int argc, char** argv) {
  trireme::kernels::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--dtype") {
      options.dtype = std::strcmp(value, "bf16") == 0 ? trireme::tensor::DType::kBf16
                                                      : trireme::tensor::DType::kF32;
    } else if (flag == "--threads") {
      options.threads = std::atoi(value);
    } else if (flag == "--batch") {
      options.batch = std::atoll(value);
    } else if (flag == "--tokens") {
      options.tokens = std::atoll(value);
    } else if (flag == "--repeats") {
      options.repeats = std::atoi(value);
    } else if (flag == "--heads") {
      options.heads = std::atoll(value);
    } else if (flag == "--clock") {
      if (std::strcmp(value, "cpu") == 0) trireme::kernels::clock_id = CLOCK_PROCESS_CPUTIME_ID;
    } else if (flag == "--only") {
      options.only = value;
    } else {
      std::fprintf(stderr, "bench_kernels: unknown option %s\n", flag.c_str());
      return 1;
    }
  }
  return trireme::kernels::Main(options);
}
