// What the reference kernels share: the class that holds a spec, dropout, registration in both dtypes. Plain loops, one
// thread, sums over a row in f64; the semantics are those of runtime/graph/op_spec.h. Internal to runtime/kernels/ref.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/philox.h"
#include "runtime/graph/op_spec.h"
#include "runtime/kernels/kernel.h"

namespace trireme::kernels {

template <typename T>
class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(const graph::OpSpec& spec) : spec_(spec) {}

 protected:
  bool forward() const { return spec_.phase == graph::Phase::kForward; }
  bool input_grad() const { return spec_.phase == graph::Phase::kInputGrad; }

  // 0, or 1/(1-p) for an element that is kept; 1 without dropout.
  double DropoutFactor(const graph::OpCall& call, int64_t index) const {
    if (!call.training || spec_.dropout_p == 0) return 1;
    const base::RandomSite site{call.seed, spec_.site, call.step};
    const bool dropped =
        site.Uniform32(static_cast<uint64_t>(index)) < base::DropThreshold(spec_.dropout_p);
    return dropped ? 0 : 1 / (1 - spec_.dropout_p);
  }

  const graph::OpSpec spec_;
};

// Registers KernelOf<float> and KernelOf<double> for the phases forward and backward.
template <template <typename> typename KernelOf>
void RegisterReference(KernelRegistry& registry, graph::OpKind kind,
                       std::initializer_list<graph::Phase> phases) {
  for (graph::Phase phase : phases) {
    registry.Register(kind, phase, tensor::DType::kF64, "reference",
                      [](const graph::OpSpec& spec, const PrepareOptions&) {
                        return std::make_unique<KernelOf<double>>(spec);
                      });
    registry.Register(kind, phase, tensor::DType::kF32, "reference",
                      [](const graph::OpSpec& spec, const PrepareOptions&) {
                        return std::make_unique<KernelOf<float>>(spec);
                      });
  }
}

constexpr graph::Phase kForwardPhase = graph::Phase::kForward;
constexpr graph::Phase kInputGradPhase = graph::Phase::kInputGrad;
constexpr graph::Phase kWeightGradPhase = graph::Phase::kWeightGrad;

void RegisterReferenceEmbeddings(KernelRegistry& registry);
void RegisterReferenceNorms(KernelRegistry& registry);
void RegisterReferenceLinear(KernelRegistry& registry);
void RegisterReferenceAttention(KernelRegistry& registry);
void RegisterReferenceElementwise(KernelRegistry& registry);
void RegisterReferenceLoss(KernelRegistry& registry);

}  // namespace trireme::kernels
