// The list of this folder's kernels.
#include "runtime/kernels/cpu/factories.h"
#include "runtime/tensor/dtype.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::Phase;

void RegisterAllPhases(KernelRegistry& registry, OpKind kind, const KernelFactory& factory) {
  for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
    registry.Register(kind, phase, tensor::DType::kF32, "cpu", factory);
  }
}

}  // namespace

void RegisterCpuKernels(KernelRegistry& registry) {
  RegisterAllPhases(registry, OpKind::kEmbedding, cpu::MakeEmbedding);
  RegisterAllPhases(registry, OpKind::kPositionEmbedding, cpu::MakeEmbedding);
  RegisterAllPhases(registry, OpKind::kLayerNorm, cpu::MakeNorm);
  RegisterAllPhases(registry, OpKind::kRmsNorm, cpu::MakeNorm);
  RegisterAllPhases(registry, OpKind::kLinear, cpu::MakeLinear);
  RegisterAllPhases(registry, OpKind::kRope, cpu::MakeRope);
  RegisterAllPhases(registry, OpKind::kAttention, cpu::MakeAttention);
  RegisterAllPhases(registry, OpKind::kGelu, cpu::MakeActivation);
  RegisterAllPhases(registry, OpKind::kSwiGlu, cpu::MakeActivation);
  RegisterAllPhases(registry, OpKind::kResidualAdd, cpu::MakeResidualAdd);
  RegisterAllPhases(registry, OpKind::kLmHeadLoss, cpu::MakeLmHeadLoss);
  RegisterAllPhases(registry, OpKind::kLossCombine, cpu::MakeLossCombine);
}

}  // namespace trireme::kernels
