// Engine: the interpreter of one rank. It walks the instruction list of its plan, issues operators
// and transfers, and allocates nothing inside a step. Everything that could be decided is already
// in the plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/arena.h"
#include "runtime/engine/exposure.h"
#include "runtime/engine/groups.h"
#include "runtime/engine/job_clock.h"
#include "runtime/engine/snapshot_keeper.h"
#include "runtime/engine/stage_executor.h"
#include "runtime/engine/step_trace.h"
#include "runtime/engine/training_state.h"
#include "runtime/engine/transfer_coding.h"
#include "runtime/kernels/kernel.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/swap_file.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

struct EngineOptions {
  // Of all ranks; null: the engine makes its own. Outlives it.
  comm::Agreement* agreement = nullptr;
  const kernels::KernelRegistry* kernels = nullptr;
  recorder::FlightRecorder* recorder = nullptr;  // may be null
  int threads = 1;
  tensor::HostDeviceOptions device;  // that holds the arena and runs the operators
  // Silence of peers beyond what the pipeline needs to fill and to drain (patience.h).
  std::chrono::milliseconds deadline{60000};
  bool prefault = false;  // touch the arena before the first step
  // Folder of the files of offloaded state; empty: the system's for temporary files.
  tensor::SwapFolder offload_folder;
  // Of a plan with snapshot slots; null: they end with the engine, and nobody is told of them.
  // Outlives it.
  SnapshotKeeper* snapshots = nullptr;
  // Makes the device of `device`.
  std::function<std::unique_ptr<tensor::Device>(const tensor::HostDeviceOptions&)> make_device =
      tensor::MakeHostDevice;
};

struct StepReport {
  double loss = 0;           // mean over the counted tokens of the global batch, nats
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;           // counted tokens of the global batch
  bool skipped = false;         // not finite, left out by policy
  std::string nonfinite;        // then: in which tensor, on which rank, in which samples
  bool stop_requested = false;  // some rank asked for a stop at this step boundary
  double duration_s = 0;
  // Of rank 0's clock during the step, the same on every rank: what ranks do alike by time.
  double shared_time_s = 0;
  // Of all ranks, in a step in which errors of coded transfers were measured; else zeros.
  CodingErrors gradient_sums, messages;
};

// What compression did on one rank since the engine was made.
struct RankCoding {
  AxisCoding data, pipeline;
};

// How the next token is drawn.
struct Sampling {
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  // Ids from here on are never drawn: a model's vocabulary may be padded beyond its tokenizer's; 0:
  // all may be.
  int64_t vocabulary = 0;
  uint64_t seed = 0;
};

// Thread: one. All methods that talk to peers are collective over the job's ranks and block until
// done or until the deadline; after a failure the engine is unusable.
class Engine {
 public:
  // Maps the arena, makes the groups, prepares the kernels. `plan` may be this rank's slice
  // (runtime/plan/slice.h). `plan`, `fabric`, `dataset` and
  // options' pointers must outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const v1::Plan& plan, comm::Fabric& fabric,
                                                        const data::Dataset& dataset,
                                                        const EngineOptions& options);
  ~Engine();

  void InitializeState();
  // Before anybody but a step writes to state(), as a restore does: no slot holds a version then.
  // InitializeState begins with it.
  void ClearSnapshots();
  // In place of InitializeState: goes on from the version that is whole in `slot`, and makes what
  // follows from it. Steps that were left out are the caller's to set. Collective.
  // InvalidArgument: the plan has no such slot.
  absl::Status ResumeFrom(uint32_t slot);
  // Optimizer update number `step` (from 0). `request_stop` is this rank's vote to stop after it. A
  // step that is not finite: Aborted naming tensor, rank and samples under the policy `stop`, a
  // skipped report that names them under `skip`. Differing replicas: as CheckReplicas.
  absl::StatusOr<StepReport> RunStep(uint64_t step, bool request_stop = false);
  // What communication cost of the step just run, from the traces of all ranks. Call it on every
  // rank after the same RunStep, before anything else that runs a program. It exchanges a time for
  // each communication, so it costs a few small messages beside the step.
  absl::StatusOr<ExposureReport> MeasureExposure();
  // Of every rank, by rank; empty where the plan codes nothing. Collective; one small message.
  absl::StatusOr<std::vector<RankCoding>> GatherCoding();
  // Mean loss per token over the first `samples` validation samples (0: all). Cancelled on every
  // rank where some rank's stop poll voted so between two passes.
  absl::StatusOr<double> Evaluate(int64_t samples);
  // One more token after `context` (the last sequence_length of it count); the same on every rank,
  // and so is DataLoss where the weights give no finite logit.
  absl::StatusOr<int32_t> NextToken(std::span<const int32_t> context, const Sampling& sampling);
  // Asked just before a step's NORM and between the passes of Evaluate, on asynchronous streams
  // also whenever the engine waits for its work, on the engine's thread: a true is this rank's vote
  // to stop. All ranks set one, or none does.
  void set_stop_poll(std::function<bool()> poll);
  // What the ranks agree on beside programs; its patience knows how far behind others may be.
  comm::Agreement& agreement();
  // Compares what several ranks hold alike, as steps do every runtime.replica_check_steps (0: not
  // at all). Differing copies are a failure on every rank, with one message that names parameter
  // and ranks: DataLoss on those that are named, Unavailable on the others. Collective.
  absl::Status CheckReplicas();
  // Before the state is read for others: that the disk beneath what is offloaded has kept all of
  // it. A loss on some rank is DataLoss on all, led by that rank's number. Collective where the job
  // offloads state; waits for ranks that are at a disk.
  absl::Status SyncState();

  TrainingState& state();
  // Runs `work` as a task of the device, and waits: there it may follow the state's pointers.
  void OnDevice(const std::function<void()>& work);
  // Copies of the device's memory, from it and to it. Block.
  void Read(tensor::DevicePointer from, std::span<std::byte> to);
  void Write(std::span<const std::byte> from, tensor::DevicePointer to);
  int rank() const;
  const Arena& arena() const;
  // Of the last program run, on this rank's clock; earlier ones are overwritten.
  const StepTrace& last_trace() const;
  // This rank's clock against the other ranks'; set by MeasureExposure.
  const JobClock& clock() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::engine
