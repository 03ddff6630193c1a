// What adamw.cc and adamw_slots.cc share: the formula's constants, and the loops over spans for the
// best instruction set of the processor.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/checksum/lane_sums.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/adamw_slots.h"
#include "runtime/tensor/bf16.h"

namespace trireme::optim {

// By multiplications alone: the last bit of libm's pow is not the same on all processors, and
// replicas are compared to the bit.
inline double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent % 2 != 0) power *= base;
  }
  return power;
}

// The formula's scalars, folded in f64 and rounded once.
template <typename T>
struct AdamWConstants {
  explicit AdamWConstants(const AdamWOptions& o)
      : gradient_scale(static_cast<T>(o.gradient_scale)),
        beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1 - o.beta2)),
        epsilon(static_cast<T>(o.epsilon)),
        decay(static_cast<T>(1 - o.learning_rate * o.weight_decay)),
        step_size(static_cast<T>(o.learning_rate / (1 - Power(o.beta1, o.step)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - Power(o.beta2, o.step)))) {}

  T gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, decay, step_size,
      inverse_root_correction2;
};

// A page of f32: threads do not meet in one.
inline constexpr size_t kPieceElements = 1024;

// Elements of a row of 16 words, as the sums have them: a cache line.
template <typename T>
inline constexpr size_t kRowElements = checksum::LaneSums::kRowBytes / sizeof(T);

// A run of a piece in each array, with which a row begins or which is shorter than one.
template <typename T, typename Weight>
struct RunSpans {
  StateSpans<const T> from;
  std::span<const T> gradient;
  StateSpans<T> to;
  std::span<Weight> weight;
};
// Of parameters and both moments.
using RunSums = std::array<checksum::LaneSums, 3>;

// Stores past the caches, which the caller flushes. `sums`, 0 before, are those of this run alone.
void StepRun(const RunSpans<float, float>& run, const AdamWConstants<float>& constants,
             RunSums& sums);
void StepRun(const RunSpans<float, tensor::BFloat16>& run, const AdamWConstants<float>& constants,
             RunSums& sums);
void StepRun(const RunSpans<double, double>& run, const AdamWConstants<double>& constants,
             RunSums& sums);

}  // namespace trireme::optim
