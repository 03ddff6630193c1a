// How the operators of this folder enter the registry. A reference kernel is a function of (OpSpec,
// OpCall); only those with tables or scratch (attention, rope, products) are classes.
#pragma once

#include <memory>

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/bf16.h"
#include "runtime/tensor/dtype.h"

namespace trireme::kernels::ref {

using RunFunction = void (*)(const graph::OpSpec& spec, const graph::OpCall& call);

// One function per dtype.
struct RunFunctions {
  RunFunction f64;
  RunFunction f32;
  RunFunction bf16;
};
void RegisterFunctions(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase,
                       const RunFunctions& functions);

// Registers Type<T> for each storage type, kernels made from the OpSpec alone.
template <template <typename> class Type>
void RegisterTypes(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase) {
  const auto add = [&](tensor::DType dtype, const KernelFactory& factory) {
    registry.Register(kind, phase, dtype, "reference", factory);
  };
  add(tensor::DType::kF64, [](const graph::OpSpec& spec, const PrepareOptions&) {
    return std::make_unique<Type<double>>(spec);
  });
  add(tensor::DType::kF32, [](const graph::OpSpec& spec, const PrepareOptions&) {
    return std::make_unique<Type<float>>(spec);
  });
  add(tensor::DType::kBf16, [](const graph::OpSpec& spec, const PrepareOptions&) {
    return std::make_unique<Type<tensor::BFloat16>>(spec);
  });
}

void RegisterEmbeddings(KernelRegistry& registry);
void RegisterNorms(KernelRegistry& registry);
void RegisterLinear(KernelRegistry& registry);
void RegisterRope(KernelRegistry& registry);
void RegisterAttention(KernelRegistry& registry);
void RegisterActivations(KernelRegistry& registry);
void RegisterResidualAdd(KernelRegistry& registry);
void RegisterLoss(KernelRegistry& registry);

}  // namespace trireme::kernels::ref
