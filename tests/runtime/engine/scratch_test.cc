// The scratch that a plan sets aside is what the cpu kernels' attention and products ask for,
// though the planner links none of them.
#include <catch2/catch.hpp>
#include <initializer_list>
#include <string>

#include "runtime/kernels/kernel.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/tensor/dtype.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::engine {

namespace {

struct ScratchCase {
  int64_t tokens, head_dim;
  int threads;
  int64_t samples = 16, heads = 64, kv_heads = 64;
};

uint64_t Planned(const ScratchCase& of, int threads, tensor::DType dtype) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_head_dim(of.head_dim);
  config.set_num_attention_heads(of.heads);
  config.set_num_key_value_heads(of.kv_heads);
  job.mutable_data()->set_sequence_length(of.tokens);
  job.mutable_training()->set_micro_batch_size(of.samples);
  job.mutable_training()->set_dtype(std::string(tensor::NameOf(dtype)));
  job.mutable_parallelism()->set_tensor_parallel_size(1);
  job.mutable_runtime()->set_kernels("cpu");
  job.mutable_runtime()->set_threads(threads);
  return plan::ScratchBytes(job);
}

graph::OpSpec SpecOf(const ScratchCase& of, graph::Phase phase, tensor::DType dtype) {
  graph::OpSpec spec;
  spec.kind = graph::OpKind::kAttention;
  spec.phase = phase;
  spec.dtype = dtype;
  spec.tokens = of.tokens;
  spec.rows = of.samples * of.tokens;
  spec.heads = spec.global_heads = of.heads;
  spec.kv_heads = of.kv_heads;
  spec.head_dim = of.head_dim;
  spec.cols = spec.y_ld = spec.heads * spec.head_dim;
  spec.inner = spec.x_ld = (of.heads + 2 * of.kv_heads) * of.head_dim;
  return spec;
}

struct ProductCase {
  int64_t rows, inner, cols;
  bool head = false;
};

graph::OpSpec SpecOf(const ProductCase& of, graph::Phase phase, graph::WeightLayout layout,
                     tensor::DType dtype) {
  graph::OpSpec spec;
  spec.kind = of.head ? graph::OpKind::kLmHeadLoss : graph::OpKind::kLinear;
  spec.phase = phase;
  spec.dtype = dtype;
  spec.rows = of.rows;
  spec.inner = spec.x_ld = of.inner;
  spec.cols = spec.y_ld = of.cols;
  spec.vocab_rows = of.head ? of.cols : 0;
  spec.weight_layout = layout;
  return spec;
}

v1::JobSpec Gpt2Job(tensor::DType dtype) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_hidden_size(768);
  config.set_intermediate_size(3072);
  config.set_head_dim(64);
  config.set_num_attention_heads(12);
  config.set_num_key_value_heads(12);
  job.mutable_data()->set_sequence_length(256);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_training()->set_dtype(std::string(tensor::NameOf(dtype)));
  job.mutable_runtime()->set_kernels("cpu");
  job.mutable_runtime()->set_threads(2);
  return job;
}

}  // namespace

// Asked of a machine without end, it is what all its threads and shares take: so the plan's room
// changes neither the threads nor, by the parts of its sums, a bit.
TEST_CASE("scratch: attention runs on the threads that the job gives") {
  kernels::KernelRegistry registry;
  kernels::RegisterCpuKernels(registry);
  for (const ScratchCase& of : std::initializer_list<ScratchCase>{{1, 1, 1},
                                                                  {8192, 64, 8},
                                                                  {8192, 64, 48},
                                                                  {1000, 97, 200},
                                                                  {130, 16, 900},
                                                                  {200000, 128, 1},
                                                                  {4000000, 128, 1},
                                                                  {4096, 128, 8},
                                                                  {32768, 128, 1},
                                                                  {8192, 80, 8},
                                                                  {16384, 128, 3, 1, 4, 4},
                                                                  {8192, 128, 16, 1, 16, 2},
                                                                  {1024, 64, 2, 1, 1, 1},
                                                                  {1024, 64, 8, 1, 12, 3}}) {
    for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBf16}) {
      for (const graph::Phase phase : {graph::Phase::kForward, graph::Phase::kInputGrad}) {
        const graph::OpSpec spec = SpecOf(of, phase, dtype);
        const uint64_t planned = Planned(of, of.threads, dtype);
        const auto asked =
            registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 36, .threads = of.threads});
        REQUIRE(asked.ok());
        INFO(of.tokens << " tokens, " << of.head_dim << " wide, " << of.kv_heads << " groups, "
                       << of.threads << " threads, " << tensor::NameOf(dtype) << ": planned "
                       << planned << ", asked " << (*asked)->ScratchBytes());
        CHECK((*asked)->ScratchBytes() <= planned);
        // And where the job leaves the threads open, one at least finds room.
        const auto open =
            registry.Prepare(spec, {.scratch_limit_bytes = Planned(of, 0, dtype), .threads = 64});
        CHECK(open.ok());
      }
    }
  }
}

// Where the job gives no number of threads: a rank has the CPUs that the job asks for, or those of
// the machine where it is planned.
TEST_CASE("scratch: all CPUs of a rank that has many have room") {
  kernels::KernelRegistry registry;
  kernels::RegisterCpuKernels(registry);
  constexpr int kThreads = 64;
  v1::JobSpec asked = Gpt2Job(tensor::DType::kBf16);
  asked.mutable_model()->mutable_config()->set_head_dim(128);
  asked.mutable_data()->set_sequence_length(4096);
  asked.mutable_runtime()->clear_threads();
  const v1::JobSpec here = plan::ForThreads(asked, kThreads);
  CHECK(here.runtime().threads() == kThreads);
  CHECK(plan::ScratchBytes(plan::ForThreads(asked, 2)) == plan::ScratchBytes(asked));
  asked.mutable_resources()->set_cpus_per_rank(kThreads);
  const uint64_t planned = plan::ScratchBytes(asked);
  CHECK(plan::ScratchBytes(here) == planned);
  const ScratchCase attention{4096, 128, kThreads, 4, 12, 12};
  for (const graph::Phase phase : {graph::Phase::kForward, graph::Phase::kInputGrad}) {
    const graph::OpSpec spec = SpecOf(attention, phase, tensor::DType::kBf16);
    const auto given =
        registry.Prepare(spec, {.scratch_limit_bytes = planned, .threads = kThreads});
    const auto wanted =
        registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 36, .threads = kThreads});
    REQUIRE(given.ok());
    REQUIRE(wanted.ok());
    CHECK((*given)->ScratchBytes() == (*wanted)->ScratchBytes());
  }
  // Another number is the job's own word.
  asked.mutable_runtime()->set_threads(1);
  CHECK(plan::ScratchBytes(asked) < planned);
  CHECK(plan::ForThreads(asked, kThreads).runtime().threads() == 1);
}

// No product of GPT-2 124M takes a slower way for want of scratch, and what larger models need is
// not set aside for it. The head's weight-grad is left out: without instructions for bf16, oneDNN
// would copy the whole of it.
TEST_CASE("scratch: products of GPT-2 124M have the room of their fastest way") {
  kernels::KernelRegistry registry;
  kernels::RegisterCpuKernels(registry);
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBf16}) {
    const uint64_t planned = plan::ScratchBytes(Gpt2Job(dtype));
    CHECK(planned <= uint64_t{24} << 20);
    for (const ProductCase& of :
         std::initializer_list<ProductCase>{{1024, 768, 2304},
                                            {1024, 768, 768},
                                            {1024, 768, 3072},
                                            {1024, 3072, 768},
                                            {256, 768, 50257, /*head=*/true}}) {
      for (const auto layout : {graph::WeightLayout::kInOut, graph::WeightLayout::kOutIn}) {
        for (const graph::Phase phase :
             {graph::Phase::kForward, graph::Phase::kInputGrad, graph::Phase::kWeightGrad}) {
          if (of.head && phase == graph::Phase::kWeightGrad) continue;
          const graph::OpSpec spec = SpecOf(of, phase, layout, dtype);
          const auto given = registry.Prepare(spec, {.scratch_limit_bytes = planned, .threads = 2});
          const auto wanted =
              registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 36, .threads = 2});
          REQUIRE(given.ok());
          REQUIRE(wanted.ok());
          INFO(of.rows << " x " << of.inner << " x " << of.cols << ", phase "
                       << static_cast<int>(phase) << ", " << tensor::NameOf(dtype));
          CHECK((*given)->ScratchBytes() == (*wanted)->ScratchBytes());
        }
      }
    }
  }
}

}  // namespace trireme::engine
