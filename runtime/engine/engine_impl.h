// Engine::Impl: the interpreter's state. Its methods are in engine.cc (set-up), interpreter.cc (the
// instruction loop), reduction.cc (gradients, norm, update), replicas.cc (who differs),
// snapshots.cc (versions that outlive the rank) and forward_only.cc (evaluate, generate). Internal
// to runtime/engine.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/patience.h"
#include "runtime/engine/replicas.h"
#include "runtime/engine/step_block.h"
#include "runtime/engine/step_trace.h"
#include "runtime/engine/swapping.h"
#include "runtime/engine/transfer_coding.h"
#include "runtime/engine/wait_notes.h"
#include "runtime/optim/adamw.h"

namespace trireme::engine {

class Engine::Impl {
 public:
  Impl(const v1::Plan& plan, const data::Dataset& dataset, const EngineOptions& options);
  ~Impl();

  absl::Status SetUp(comm::Fabric& fabric);
  absl::StatusOr<StepReport> RunStep(uint64_t step, bool request_stop);
  absl::StatusOr<ExposureReport> MeasureExposure();
  absl::StatusOr<std::vector<RankCoding>> GatherCoding();
  absl::StatusOr<double> Evaluate(int64_t samples);
  absl::StatusOr<int32_t> NextToken(std::span<const int32_t> context, const Sampling& sampling);
  absl::Status CheckReplicas();
  absl::Status SyncState();
  absl::Status ResumeFrom(uint32_t slot);
  void OnDevice(const std::function<void()>& work);
  void Read(tensor::DevicePointer from, std::span<std::byte> to);
  void Write(std::span<const std::byte> from, tensor::DevicePointer to);

  const v1::Plan& plan_;
  const data::Dataset& dataset_;
  const EngineOptions options_;
  std::optional<WaitNotes> wait_notes_;
  // Before the groups: their operations write to it.
  StepTrace trace_;
  std::unique_ptr<TransferCoding> coding_;
  JobClock clock_{NowNs};
  std::unique_ptr<comm::Agreement> own_agreement_;  // where none was given
  comm::Agreement* agreement_ = nullptr;
  Groups groups_;
  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<Swapping> swapping_;  // null: all is in the arena
  Arena arena_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<ReplicaCheck> replicas_;
  std::function<bool()> stop_poll_;

 private:
  // Where the tokens of the program being run come from.
  struct Batch {
    data::Split split = data::Split::kTrain;
    int64_t first = 0;                      // sample index of this replica's first sample
    int64_t end = 0;                        // one past its last; later ones are padding
    std::span<const int32_t> context = {};  // generation: the one sample
  };

  // However it ends, nothing of the program is left on the stream.
  absl::Status Run(const v1::Program& program, const Batch& batch);
  absl::Status Walk(const v1::Program& program, const Batch& batch);
  void NoteDuration(const InstructionSpan& span);
  absl::Status Execute(const v1::Instruction& instruction, const Batch& batch);
  void Load(const Batch& batch);
  int64_t FillMicroBatch(const Batch& batch, uint32_t micro_batch);
  void Transfer(const v1::Instruction& instruction);
  void Wait(const v1::Instruction& instruction);
  absl::Status WaitForSwap(const tensor::Event& swap);
  absl::Status FinishSwaps();
  void RecordPosition(uint32_t index, const v1::Instruction& instruction);

  void BeginCoding();
  Traced ReduceOverData(const v1::Instruction& instruction);
  tensor::DevicePointer ShareOf(const v1::Bucket& bucket) const;
  void AddToShare(uint32_t bucket);
  void SumOtherAxes(uint32_t bucket);
  void Norm();
  // Of NORM, on the device: what this rank adds to the reduction, and what follows from it.
  void FillNorm();
  void JudgeNorm();
  absl::Status FinishStep();
  void BeginSnapshot();
  void StageSnapshot();
  absl::Status JudgeNonFinite();
  absl::Status NameDifferingReplicas(const std::string& when);
  void LookForBadLoss(const v1::Instruction& head, int64_t first_sample);
  void Update(const v1::Instruction& step);
  void Swap(const v1::Instruction& instruction);
  Traced Gather(const v1::Instruction& instruction);

  void PollStop();
  void SetUpPatience(const plan::Coordinates& at);
  void SetUpMirrors();
  absl::StatusOr<std::unique_ptr<tensor::DeviceMemory>> SharedGradients(comm::Fabric& fabric);
  absl::StatusOr<std::unique_ptr<tensor::DeviceMemory>> SnapshotMemory(int threads);
  absl::Status SetUpStages(std::vector<graph::StageOps> ops);
  void SetUpPrograms();
  void SetUpShares();
  void SetUpCoding(size_t tickets);
  void ReserveTrace();
  absl::Status ShareTimesOfCollectives(GroupName name);
  absl::Status ShareTimesOfMessages();

  absl::StatusOr<int32_t> SampleToken(const Sampling& sampling, uint64_t index);
  const v1::Instruction* LastForward(const v1::Program& program) const;
  const v1::StagePlan& stage() const { return plan_.stages(static_cast<int>(groups_.at.pipeline)); }
  // Virtual stage on this rank that holds the embedding or the loss; -1: not here.
  bool holds_first_stage() const { return groups_.at.pipeline == 0; }
  bool holds_last_stage() const { return groups_.at.pipeline + 1 == plan_.mesh().pipeline(); }
  // On the device; block_ is its mirror.
  StepBlock* block() const { return arena_.Slot(v1::SCALARS, 0, 0).as<StepBlock>(); }
  // Issues `call` on the group and the wait for it on the stream, and keeps both in the trace.
  template <typename Call>
  void RunTraced(GroupName name, v1::InstructionKind kind, const Call& call);
  // How long others may need after a program that this rank is done with, if it has not waited for
  // them since `alone`.
  std::chrono::milliseconds ProgramEnd(std::chrono::nanoseconds alone) const {
    return patience_->Knows() ? patience_->MeetingLimit(alone) : options_.deadline;
  }
  std::chrono::milliseconds TensorLimit() const;
  void WaitTraced(comm::Communicator& group, const Traced& traced,
                  std::chrono::milliseconds deadline);
  CommunicationSpan SpanOf(const v1::Instruction& instruction, GroupName group) const;

  graph::ModelGraph graph_;
  std::vector<std::unique_ptr<StageExecutor>> stages_;
  std::vector<std::vector<int64_t>> share_offsets_;  // per bucket: data shares in elements
  std::vector<bool> share_begun_;   // per bucket: its share holds a micro-batch of this step
  std::vector<bool> share_summed_;  // per bucket: the sum under way goes to its share by itself
  // What a ticket of the program stands for.
  struct Pending {
    Traced traced;
    comm::Communicator* group = nullptr;
    int32_t reduce_bucket = -1;
    const v1::Instruction* issued = nullptr;  // who made it, for the flight recorder
    tensor::Event swap;                       // its end
  };
  std::vector<Pending> pending_;
  std::optional<Patience> patience_;
  StepContext context_;
  StepReport report_;
  StepBlock block_;              // the mirror: set by LOAD, of the device from a program's end on
  std::vector<int32_t> tokens_;  // the mirror of TOKENS
  // Where the loss of this step first was NaN or Inf on this rank; written on the stream.
  struct BadLoss {
    int64_t first = -1;  // sample, counted over the whole run; -1: nowhere
    int64_t samples = 0;
  };
  BadLoss bad_loss_;
  std::vector<double> held_parts_;  // ReplicaCheck::Parts, where replicas differ
  std::atomic<bool> request_stop_{false};
  optim::AdamWOptions update_options_;   // of the step's STEPs; set and read on the stream
  std::vector<uint64_t> snapshot_sums_;  // of the pieces of a slot; written on the stream
  absl::Status staged_;                  // of the last version; likewise
  uint64_t step_ = 0;
  uint64_t measures_ = 0;  // calls of MeasureExposure
  // For what ranks agree on beside their programs: its memory is the host's.
  const std::unique_ptr<tensor::Stream> host_stream_ = tensor::MakeInlineStream();
  // The last member, so the first to go: what is still queued on it names all the others.
  std::unique_ptr<tensor::Stream> stream_;
};

template <typename Call>
void Engine::Impl::RunTraced(GroupName name, v1::InstructionKind kind, const Call& call) {
  comm::Communicator& group = *groups_.named(name);
  WaitTraced(group,
             trace_.Issue({.kind = static_cast<uint32_t>(kind), .group = name}, group, *stream_,
                          [&](const auto& options) { return call(group, options); }),
             patience_->MeetingLimit(agreement_->SinceMet()));
}

}  // namespace trireme::engine
