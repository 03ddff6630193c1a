// AdamW in one pass, learning-rate schedules, and the sum of squares behind clipping by the global
// norm.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/tensor/bf16.h"

namespace trireme::optim {

enum class LearningRateSchedule : uint8_t { kCosine, kLinear, kConstant };

struct LearningRateOptions {
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  double peak = 1e-3;
  double minimum = 1e-4;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 1;
};

// Rate of `step` (from 0), nanoGPT's formula (train.py get_lr): peak*(step+1)/(warmup+1) while
// step < warmup; then from peak at warmup to minimum at decay_steps along half a cosine or a line;
// minimum afterwards. kConstant: peak after the warm-up.
double LearningRate(const LearningRateOptions& options, int64_t step);

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // already 0 for a span that is not decayed
  int64_t step = 1;           // of the bias correction, from 1
  double gradient_scale = 1;  // clipping factor, applied to the gradient on the way
  int threads = 1;
};

// One pass over equal-length spans (Loshchilov and Hutter, arXiv 1711.05101, as torch.optim.AdamW):
// p *= 1 - lr*decay; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
// Element-wise, so any cutting into spans gives the same bits. T: float or double.
template <typename T>
void AdamW(std::span<T> parameter, std::span<const T> gradient, std::span<T> moment1,
           std::span<T> moment2, const AdamWOptions& options);

// The same on f32 masters, and in the same pass weight[i] = the bf16 nearest to the new
// parameter[i]. weight is as long as the others.
void AdamW(std::span<float> parameter, std::span<const float> gradient, std::span<float> moment1,
           std::span<float> moment2, std::span<tensor::BFloat16> weight,
           const AdamWOptions& options);

// Sum of squares in f64. Deterministic for a given length, whatever the number of threads. A NaN or
// an infinity reaches the result.
template <typename T>
double SumOfSquares(std::span<const T> values, int threads);

// Adds every value to its column and returns their sum, both in f64; the same bits on every
// machine.
double AddRow(std::span<const float> row, std::span<double> columns);

}  // namespace trireme::optim
