// The scratch that a plan sets aside is what the cpu kernels' attention asks for, though the
// planner links none of them.
#include <catch2/catch.hpp>
#include <tuple>

#include "runtime/kernels/kernel.h"
#include "runtime/plan/memory_plan.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::engine {

namespace {

uint64_t Planned(int64_t tokens, int64_t head_dim, int threads) {
  v1::JobSpec job;
  job.mutable_model()->mutable_config()->set_head_dim(head_dim);
  job.mutable_data()->set_sequence_length(tokens);
  job.mutable_runtime()->set_kernels("cpu");
  job.mutable_runtime()->set_threads(threads);
  return plan::ScratchBytes(job);
}

}  // namespace

TEST_CASE("scratch: attention runs on the threads that the job gives") {
  kernels::KernelRegistry registry;
  kernels::RegisterCpuKernels(registry);
  for (const auto& [tokens, head_dim, threads] :
       {std::tuple(1, 1, 1), std::tuple(8192, 64, 8), std::tuple(8192, 64, 48),
        std::tuple(1000, 97, 200), std::tuple(130, 16, 900), std::tuple(200000, 128, 1),
        std::tuple(4000000, 128, 1)}) {
    for (const graph::Phase phase : {graph::Phase::kForward, graph::Phase::kInputGrad}) {
      graph::OpSpec spec;
      spec.kind = graph::OpKind::kAttention;
      spec.phase = phase;
      spec.dtype = tensor::DType::kF32;
      spec.tokens = tokens;
      spec.rows = 16 * spec.tokens;
      spec.heads = spec.kv_heads = spec.global_heads = 64;
      spec.head_dim = head_dim;
      spec.cols = spec.y_ld = spec.heads * spec.head_dim;
      spec.inner = spec.x_ld = 3 * spec.cols;
      const uint64_t planned = Planned(tokens, head_dim, threads);
      const auto asked =
          registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 36, .threads = threads});
      REQUIRE(asked.ok());
      INFO(tokens << " tokens, " << head_dim << " wide, " << threads << " threads: planned "
                  << planned << ", asked " << (*asked)->ScratchBytes());
      CHECK((*asked)->ScratchBytes() <= planned);
      // And where the job leaves the threads open, one at least finds room.
      const auto open = registry.Prepare(
          spec, {.scratch_limit_bytes = Planned(tokens, head_dim, 0), .threads = 64});
      CHECK(open.ok());
    }
  }
}

}  // namespace trireme::engine
