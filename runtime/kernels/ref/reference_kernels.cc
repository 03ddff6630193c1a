// Puts every operator of this folder into the registry.
#include "runtime/kernels/ref/reference_kernels.h"

#include "runtime/kernels/ref/matrix_product.h"

namespace trireme::kernels {
namespace ref {
namespace {

class FunctionKernel : public Kernel {
 public:
  FunctionKernel(const graph::OpSpec& spec, RunFunction run) : spec_(spec), run_(run) {}
  void Run(const graph::OpCall& call) override { run_(spec_, call); }

 private:
  graph::OpSpec spec_;
  RunFunction run_;
};

void RegisterFunction(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase,
                      tensor::DType dtype, RunFunction run) {
  registry.Register(kind, phase, dtype, "reference",
                    [run](const graph::OpSpec& spec, const PrepareOptions&) {
                      return std::make_unique<FunctionKernel>(spec, run);
                    });
}

}  // namespace

void RegisterFunctions(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase,
                       const RunFunctions& functions) {
  RegisterFunction(registry, kind, phase, tensor::DType::kF64, functions.f64);
  RegisterFunction(registry, kind, phase, tensor::DType::kF32, functions.f32);
  RegisterFunction(registry, kind, phase, tensor::DType::kBf16, functions.bf16);
}

}  // namespace ref

void RegisterReferenceKernels(KernelRegistry& registry) {
  ref::KeepProductsToOneThread();
  ref::RegisterEmbeddings(registry);
  ref::RegisterNorms(registry);
  ref::RegisterLinear(registry);
  ref::RegisterRope(registry);
  ref::RegisterAttention(registry);
  ref::RegisterActivations(registry);
  ref::RegisterResidualAdd(registry);
  ref::RegisterLoss(registry);
}

}  // namespace trireme::kernels
