// What the operators of this folder are stored in, and what they compute in: every value is widened
// to f64 when read and rounded to its storage type when written.
#pragma once

#include <type_traits>

#include "runtime/tensor/bf16.h"

namespace trireme::kernels::ref {

// What statistics, log-sum-exps and gradients of weights of T are stored in
// (tensor::AccumulatorOf).
template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, tensor::BFloat16>, float, T>;

template <typename T>
double Wide(T value) {
  if constexpr (std::is_same_v<T, tensor::BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// A bf16 by way of f32: beside a tie the first rounding may decide, an error of 2^-16 of half a
// unit more.
template <typename T>
T Narrow(double value) {
  if constexpr (std::is_same_v<T, tensor::BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace trireme::kernels::ref
