// The list of this folder's kernels.
#include "runtime/kernels/cpu/factories.h"
#include "runtime/tensor/bf16.h"
#include "runtime/tensor/dtype.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::Phase;

using tensor::BFloat16;

void RegisterAllPhases(KernelRegistry& registry, OpKind kind, const KernelFactory& f32,
                       const KernelFactory& bf16) {
  for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
    registry.Register(kind, phase, tensor::DType::kF32, "cpu", f32);
    registry.Register(kind, phase, tensor::DType::kBf16, "cpu", bf16);
  }
}

}  // namespace

void RegisterCpuKernels(KernelRegistry& registry) {
  RegisterAllPhases(registry, OpKind::kEmbedding, cpu::MakeEmbedding<float>,
                    cpu::MakeEmbedding<BFloat16>);
  RegisterAllPhases(registry, OpKind::kPositionEmbedding, cpu::MakeEmbedding<float>,
                    cpu::MakeEmbedding<BFloat16>);
  RegisterAllPhases(registry, OpKind::kLayerNorm, cpu::MakeNorm<float>, cpu::MakeNorm<BFloat16>);
  RegisterAllPhases(registry, OpKind::kRmsNorm, cpu::MakeNorm<float>, cpu::MakeNorm<BFloat16>);
  RegisterAllPhases(registry, OpKind::kLinear, cpu::MakeLinear<float>, cpu::MakeLinear<BFloat16>);
  RegisterAllPhases(registry, OpKind::kRope, cpu::MakeRope<float>, cpu::MakeRope<BFloat16>);
  RegisterAllPhases(registry, OpKind::kAttention, cpu::MakeAttention<float>,
                    cpu::MakeAttention<BFloat16>);
  RegisterAllPhases(registry, OpKind::kGelu, cpu::MakeActivation<float>,
                    cpu::MakeActivation<BFloat16>);
  RegisterAllPhases(registry, OpKind::kSwiGlu, cpu::MakeActivation<float>,
                    cpu::MakeActivation<BFloat16>);
  RegisterAllPhases(registry, OpKind::kResidualAdd, cpu::MakeResidualAdd<float>,
                    cpu::MakeResidualAdd<BFloat16>);
  RegisterAllPhases(registry, OpKind::kLmHeadLoss, cpu::MakeLmHeadLoss<float>,
                    cpu::MakeLmHeadLoss<BFloat16>);
  RegisterAllPhases(registry, OpKind::kLossCombine, cpu::MakeLossCombine<float>,
                    cpu::MakeLossCombine<BFloat16>);
}

}  // namespace trireme::kernels
