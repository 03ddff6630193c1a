// The least time of a training step on a machine of given speed: what has flops takes them at the
// speed of a square product, everything else reads and writes each of its operands once, at the
// speed of a triad, and so does the optimizer. No time for what a step may do besides (NORM,
// collectives, transfers).
#pragma once

#include "runtime/graph/lowering.h"
#include "runtime/graph/op_spec.h"
#include "runtime/tensor/dtype.h"

namespace trireme::benchmark {

struct StepWork {
  double flops = 0;
  double bytes = 0;

  double Seconds(double flops_per_second, double bytes_per_second) const {
    return flops / flops_per_second + bytes / bytes_per_second;
  }
};

// Bytes that an operator reads and writes at least: each operand once, of a table the rows that are
// looked up, what is changed in place twice. with_base: its input-grad is added to another
// gradient.
double LeastBytes(const graph::OpSpec& spec, bool with_base);
double LeastBytes(const graph::LoweredOp& op);

// Of a parameter in one pass of AdamW: weight and moments read and written, gradient read; in bf16
// the weight is written in bf16 too.
constexpr double AdamWBytes(tensor::DType dtype) { return dtype == tensor::DType::kBf16 ? 30 : 28; }
// From slot to slot: masters, gradient and moments read, masters, moments and weight written.
constexpr double AdamWSlotBytes(tensor::DType dtype) {
  return dtype == tensor::DType::kBf16 ? 30 : 32;
}

// Of one micro-batch through a stage, forward and backward. Collectives of the tensor group count
// for nothing.
StepWork WorkOf(const graph::StageOps& stage);

}  // namespace trireme::benchmark
