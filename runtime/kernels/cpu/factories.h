// The kernels of this folder, one factory for each operator; each returns null for a spec or phase
// it does not take. T is what spec.dtype stores: float or tensor::BFloat16.
#pragma once

#include <memory>

#include "runtime/kernels/kernel.h"

namespace trireme::kernels::cpu {

template <typename T>
std::unique_ptr<Kernel> MakeLinear(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeNorm(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeActivation(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeResidualAdd(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeEmbedding(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeRope(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeAttention(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeLmHeadLoss(const graph::OpSpec& spec, const PrepareOptions& options);
template <typename T>
std::unique_ptr<Kernel> MakeLossCombine(const graph::OpSpec& spec, const PrepareOptions& options);

}  // namespace trireme::kernels::cpu
