// How the operators of this folder enter the registry. A reference kernel is a function of (OpSpec,
// OpCall); only those with tables or scratch (attention, rope, products) are classes.
#pragma once

#include <memory>

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/dtype.h"

namespace trireme::kernels::ref {

using RunFunction = void (*)(const graph::OpSpec& spec, const graph::OpCall& call);

// Registers one function per dtype.
void RegisterFunctions(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase,
                       RunFunction f64, RunFunction f32);

// Registers Type<double> and Type<float>, kernels made from the OpSpec alone.
template <template <typename> class Type>
void RegisterTypes(KernelRegistry& registry, graph::OpKind kind, graph::Phase phase) {
  registry.Register(kind, phase, tensor::DType::kF64, "reference",
                    [](const graph::OpSpec& spec, const PrepareOptions&) {
                      return std::make_unique<Type<double>>(spec);
                    });
  registry.Register(kind, phase, tensor::DType::kF32, "reference",
                    [](const graph::OpSpec& spec, const PrepareOptions&) {
                      return std::make_unique<Type<float>>(spec);
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
