// StageExecutor: prepared kernels of one virtual stage, and the resolving of an operator's operands
// to arena addresses at each run (nothing is cached, so regions may move between steps).
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/arena.h"
#include "runtime/engine/step_context.h"
#include "runtime/engine/step_trace.h"
#include "runtime/engine/training_state.h"
#include "runtime/graph/lowering.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan/state_layout.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/stream.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

struct StageExecutorOptions {
  const Arena* arena = nullptr;
  const kernels::KernelRegistry* kernels = nullptr;
  kernels::PrepareOptions prepare;
  comm::Communicator* tensor_group = nullptr;  // null: tensor size 1
  comm::Communicator* world = nullptr;         // driven between operators
  // Of a wait for the tensor group that is issued now.
  std::function<std::chrono::milliseconds()> limit;
  const StepContext* context = nullptr;
  double* loss_scale = nullptr;  // on the device
  StepTrace* trace = nullptr;
  int64_t micro_batch = 1;                    // samples
  tensor::DType dtype = tensor::DType::kF32;  // of the computation
  uint32_t pipeline = 0;
  uint32_t virtual_stage = 0;
  int64_t tensor_index = 0;
};

// Thread: Run is called by the engine's thread; the operators themselves run on the stream.
class StageExecutor {
 public:
  // Unimplemented names an operator without a kernel; Internal the pool of the arena that is too
  // small for the operators.
  static absl::StatusOr<std::unique_ptr<StageExecutor>> Prepare(
      graph::StageOps ops, WorkingPlaces places, const StageExecutorOptions& options);

  // Issues operators [op_begin, op_end) of the instruction's list on `stream`. The instruction must
  // outlive the work.
  void Run(const v1::Instruction& instruction, tensor::Stream& stream);

  const graph::StageOps& ops() const { return ops_; }
  // Address of a buffer of this stage as `instruction` sees it.
  tensor::DevicePointer BufferAddress(int32_t buffer, const v1::Instruction& instruction) const;
  // Micro-batch whose instruction of this kind comes first in the program: its weight-grads
  // overwrite. And the last one.
  void set_first_micro_batch(v1::InstructionKind kind, uint32_t micro_batch) {
    first_micro_batch_[kind] = micro_batch;
  }
  void set_last_micro_batch(v1::InstructionKind kind, uint32_t micro_batch) {
    last_micro_batch_[kind] = micro_batch;
  }

 private:
  struct Prepared {
    graph::LoweredOp op;
    kernels::Kernel* kernel = nullptr;  // null: collective
    bool overwrites = false;            // its gradient, in every micro-batch: PARTIAL
  };
  using List = std::vector<Prepared>;

  StageExecutor(graph::StageOps ops, WorkingPlaces places, const StageExecutorOptions& options);
  absl::Status CheckSlots() const;
  absl::Status PrepareList(const std::vector<graph::LoweredOp>& ops, List& list);
  const List& ListOf(v1::InstructionKind kind) const;
  void RunKernel(const Prepared& prepared, const v1::Instruction& instruction) const;
  void RunCollective(const Prepared& prepared, const v1::Instruction& instruction,
                     tensor::Stream& stream) const;
  tensor::DevicePointer Resolve(const graph::OperandRef& operand,
                                const v1::Instruction& instruction) const;

  const graph::StageOps ops_;
  const WorkingPlaces places_;
  const StageExecutorOptions options_;
  std::vector<std::pair<graph::OpSpec, std::unique_ptr<kernels::Kernel>>> kernels_;
  List forward_, backward_, input_grad_, weight_grad_;
  std::array<uint32_t, v1::InstructionKind_ARRAYSIZE> first_micro_batch_{}, last_micro_batch_{};
};

}  // namespace trireme::engine
