#include "runtime/kernels/ref/reference.h"

namespace trireme::kernels {

void RegisterReferenceKernels(KernelRegistry& registry) {
  RegisterReferenceEmbeddings(registry);
  RegisterReferenceNorms(registry);
  RegisterReferenceLinear(registry);
  RegisterReferenceAttention(registry);
  RegisterReferenceElementwise(registry);
  RegisterReferenceLoss(registry);
}

}  // namespace trireme::kernels
