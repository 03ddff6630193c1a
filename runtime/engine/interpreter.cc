// The instruction loop: load, compute, send, receive, wait.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/mutation.h"

namespace trireme::engine {

absl::Status Engine::Impl::Run(const v1::Program& program, const Batch& batch) {
  const int64_t start_ns = NowNs();
  patience_->ProgramBegins(context_.training ? Patience::Kind::kTraining
                                             : Patience::Kind::kForward);
  const absl::Status walked = Walk(program, batch);
  // Nothing else has told the others that the disk fails, nor ended what travels.
  if (swapping_ != nullptr && swapping_->failed()) groups_.Abort(swapping_->status());
  device_->CopyToHost(arena_.Slot(v1::SCALARS, 0, 0), std::as_writable_bytes(std::span(&block_, 1)),
                      *stream_);
  // After a failure too: the communicators are poisoned, so what is queued ends soon, and whoever
  // hears of the failure may destroy the engine.
  stream_->Synchronize();
  const absl::Status swapped = FinishSwaps();
  if (!swapped.ok()) groups_.Abort(swapped);
  for (const InstructionSpan& span : trace_.instructions()) NoteDuration(span);
  patience_->ProgramEnds(std::chrono::nanoseconds(NowNs() - start_ns));
  if (!swapped.ok()) return swapped;
  return walked.ok() ? groups_.status() : walked;
}

absl::Status Engine::Impl::Walk(const v1::Program& program, const Batch& batch) {
  trace_.Clear();
  // Nothing is known of the machine in the first program of a kind: no wait is issued long before
  // it begins.
  const bool in_step = !options_.device.asynchronous || !patience_->Knows();
  for (int index = 0; index < program.instructions_size(); ++index) {
    const v1::Instruction& instruction = program.instructions(index);
    RecordPosition(static_cast<uint32_t>(index), instruction);
    InstructionSpan* span =
        trace_.Add(InstructionSpan{.kind = static_cast<uint32_t>(instruction.kind()),
                                   .virtual_stage = instruction.virtual_stage(),
                                   .micro_batch = instruction.micro_batch()});
    StepTrace::Stamp(*stream_, &span->start_ns);
    RETURN_IF_ERROR(Execute(instruction, batch));
    StepTrace::Stamp(*stream_, &span->end_ns);
    if (!in_step) continue;
    stream_->Synchronize();
    NoteDuration(*span);
  }
  StageSnapshot();
  return absl::OkStatus();
}

void Engine::Impl::NoteDuration(const InstructionSpan& span) {
  if (span.kind < v1::F || span.kind > v1::B || span.end_ns <= span.start_ns) return;
  patience_->Ran(std::chrono::nanoseconds(span.end_ns - span.start_ns));
}

absl::Status Engine::Impl::Execute(const v1::Instruction& instruction, const Batch& batch) {
  switch (instruction.kind()) {
    case v1::LOAD:
      Load(batch);
      if (context_.training) BeginCoding();
      return groups_.status();
    case v1::F:
    case v1::I:
    case v1::W:
    case v1::B:
      stages_[instruction.virtual_stage()]->Run(instruction, *stream_);
      if (instruction.kind() == v1::I || instruction.kind() == v1::B) {
        LookForBadLoss(instruction, batch.first);
      }
      return groups_.status();
    case v1::SEND_ACT:
    case v1::RECV_ACT:
    case v1::SEND_GRAD:
    case v1::RECV_GRAD:
      Transfer(instruction);
      return absl::OkStatus();
    case v1::REDUCE:
      pending_[instruction.ticket()] = {.traced = ReduceOverData(instruction),
                                        .group = groups_.data.get(),
                                        .reduce_bucket = static_cast<int32_t>(instruction.bucket()),
                                        .issued = &instruction};
      return absl::OkStatus();
    case v1::GATHER:
      pending_[instruction.ticket()] = {
          .traced = Gather(instruction), .group = groups_.data.get(), .issued = &instruction};
      return absl::OkStatus();
    case v1::SWAP_OUT:
    case v1::SWAP_IN:
      if (swapping_ == nullptr) {
        return absl::InternalError("the plan swaps, but has no room for it");
      }
      Swap(instruction);
      return swapping_->status();
    case v1::WAIT:
      if (pending_[instruction.ticket()].swap.stream != nullptr) {
        return WaitForSwap(pending_[instruction.ticket()].swap);
      }
      Wait(instruction);
      return groups_.status();
    case v1::SUM:
      SumOtherAxes(instruction.bucket());
      return groups_.status();
    case v1::NORM:
      Norm();
      return groups_.status();
    case v1::STEP:
      Update(instruction);
      return absl::OkStatus();
    default:
      return absl::InternalError(
          absl::StrCat("the plan holds an instruction of unknown kind ", instruction.kind()));
  }
}

void Engine::Impl::RecordPosition(uint32_t index, const v1::Instruction& at) {
  if (options_.recorder == nullptr) return;
  // A rank in WAIT is told by what it waits for.
  const v1::Instruction* issued = at.kind() == v1::WAIT ? pending_[at.ticket()].issued : nullptr;
  const v1::Instruction& instruction = issued != nullptr ? *issued : at;
  // Steps have the numbers of metrics.jsonl: the first is 1.
  recorder::Position position{.step = step_ + 1,
                              .instruction = index,
                              .kind = static_cast<uint32_t>(instruction.kind()),
                              .virtual_stage = instruction.virtual_stage(),
                              .micro_batch = instruction.micro_batch()};
  if (instruction.peer() != 0) {
    plan::Coordinates peer = groups_.at;
    peer.pipeline = static_cast<uint32_t>(static_cast<int32_t>(peer.pipeline) + instruction.peer());
    position.peer = plan::RankOf(plan_.mesh(), peer);
  }
  options_.recorder->At(position);
}

// Tokens of every micro-batch, and the number of counted ones over all replicas: the loss is
// divided by it, so it must be known before the first forward. Nothing of an earlier program is on
// the stream, so the mirrors are the host's.
void Engine::Impl::Load(const Batch& batch) {
  const int64_t start_ns = NowNs();
  double counted = 0;
  const bool has_tokens = holds_first_stage() || holds_last_stage();
  const uint32_t micro_batches =
      context_.training ? plan_.micro_batches() : plan_.evaluation_micro_batches();
  for (uint32_t micro_batch = 0; micro_batch < micro_batches && has_tokens; ++micro_batch) {
    counted += static_cast<double>(FillMicroBatch(batch, micro_batch));
    if (!batch.context.empty()) break;
  }
  block_ = {.counted = counted};
  trace_.Add(ComputeSpan{start_ns, NowNs()});
  device_->CopyFromHost(std::as_bytes(std::span(&block_, 1)), arena_.Slot(v1::SCALARS, 0, 0),
                        *stream_);
  if (holds_last_stage() && groups_.data != nullptr && context_.training) {
    RunTraced(GroupName::kData, v1::LOAD, [&](auto& group, const auto& options) {
      return group.AllReduce(&block()->counted, 1, tensor::DType::kF64, comm::ReduceOp::kSum,
                             options);
    });
  }
  stream_->Issue(tensor::Task([this, counted] {
    block()->loss_scale = block()->counted > 0 ? 1.0 / block()->counted : 0;
    if (Mutated(Mutation::kSequenceRanksInMean)) block()->loss_scale /= plan_.mesh().tensor();
    if (Mutated(Mutation::kLocalTokenCount))
      block()->loss_scale = 1.0 / (counted * plan_.mesh().data());
  }));
}

// Returns the counted tokens of one micro-batch of this replica.
int64_t Engine::Impl::FillMicroBatch(const Batch& batch, uint32_t micro_batch) {
  const int64_t samples = plan_.job().training().micro_batch_size();
  const int64_t length = plan_.job().data().sequence_length();
  const size_t slot = arena_.SlotBytes(v1::TOKENS, 0) / sizeof(int32_t);
  int32_t* const tokens = tokens_.data() + slot * micro_batch;
  int32_t* const targets = tokens + slot / 2;
  int64_t counted = 0;
  for (int64_t index = 0; index < samples; ++index) {
    const std::span<int32_t> sample_tokens(tokens + index * length, static_cast<size_t>(length));
    const std::span<int32_t> sample_targets(targets + index * length, static_cast<size_t>(length));
    const int64_t sample = batch.first + micro_batch * samples + index;
    if (batch.context.empty() && sample < batch.end) {
      dataset_.Fill(batch.split, sample, sample_tokens, sample_targets);
      counted += std::count_if(sample_targets.begin(), sample_targets.end(),
                               [](int32_t target) { return target >= 0; });
      continue;
    }
    std::fill(sample_tokens.begin(), sample_tokens.end(), 0);
    std::fill(sample_targets.begin(), sample_targets.end(), -1);
    if (index == 0) std::copy(batch.context.begin(), batch.context.end(), sample_tokens.begin());
  }
  const auto rows = static_cast<size_t>(samples * length);
  const tensor::DevicePointer there = arena_.Slot(v1::TOKENS, 0, micro_batch);
  device_->CopyFromHost(std::as_bytes(std::span(tokens, rows)), there, *stream_);
  device_->CopyFromHost(std::as_bytes(std::span(targets, rows)),
                        there + arena_.SlotBytes(v1::TOKENS, 0) / 2, *stream_);
  return counted;
}

void Engine::Impl::Transfer(const v1::Instruction& instruction) {
  const bool send = instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::SEND_GRAD;
  v1::PoolKind pool = v1::INPUT;
  uint32_t slot = instruction.input();
  switch (instruction.kind()) {
    case v1::SEND_ACT:
      pool = v1::OUTPUT;
      slot = instruction.output();
      break;
    case v1::SEND_GRAD:
      pool = v1::GRADIENT_OUT;
      slot = instruction.gradient_out();
      break;
    case v1::RECV_GRAD:
      pool = v1::GRADIENT_IN;
      slot = instruction.gradient_in();
      break;
    default:
      break;
  }
  const graph::StageOps& ops = stages_[instruction.virtual_stage()]->ops();
  const std::span<std::byte> data(arena_.Slot(pool, instruction.virtual_stage(), slot).get(),
                                  static_cast<size_t>(ops.boundary_bytes));
  const int peer = static_cast<int>(groups_.at.pipeline) + instruction.peer();
  comm::Communicator& group = *groups_.pipeline;
  CommunicationSpan span = SpanOf(instruction, GroupName::kPipeline);
  span.peer = peer;
  span.channel = instruction.channel();
  span.sends = send;
  const Traced traced =
      trace_.Issue(span, group, {*stream_, coding_->Of(instruction)}, [&](const auto& options) {
        return send ? group.Send(data, peer, instruction.channel(), options)
                    : group.Recv(data, peer, instruction.channel(), options);
      });
  pending_[instruction.ticket()] = {.traced = traced, .group = &group, .issued = &instruction};
}

CommunicationSpan Engine::Impl::SpanOf(const v1::Instruction& instruction, GroupName group) const {
  return {.kind = static_cast<uint32_t>(instruction.kind()),
          .virtual_stage = instruction.virtual_stage(),
          .micro_batch = instruction.micro_batch(),
          .bucket = instruction.bucket(),
          .group = group};
}

void Engine::Impl::Wait(const v1::Instruction& instruction) {
  const Pending& pending = pending_[instruction.ticket()];
  // One replica sums and gathers nothing.
  if (pending.traced.span != nullptr) {
    WaitTraced(*pending.group, pending.traced,
               MeetsReplicas(plan_, pending.issued->kind())
                   ? patience_->MeetingLimit(agreement_->SinceMet())
                   : patience_->Limit());
  }
  if (pending.reduce_bucket < 0) return;
  const auto bucket = static_cast<uint32_t>(pending.reduce_bucket);
  if (plan::ZeroStage(plan_) >= 2) {
    AddToShare(bucket);
  } else {
    SumOtherAxes(bucket);
  }
}

// What did not come must not travel: where it fails nothing that this rank issues afterwards is
// sent or summed, also what is already queued on an asynchronous stream.
absl::Status Engine::Impl::WaitForSwap(const tensor::Event& swap) {
  OffloadSpan* span = trace_.Add(OffloadSpan{});
  StepTrace::Stamp(*stream_, &span->start_ns);
  swapping_->WaitOn(swap, *stream_);
  StepTrace::Stamp(*stream_, &span->end_ns);
  stream_->IssueAside(tensor::Task([this] {
    if (swapping_->failed()) groups_.Abort(swapping_->status());
  }));
  return swapping_->status();
}

// What a program moves out last is waited for at its end.
absl::Status Engine::Impl::FinishSwaps() {
  if (swapping_ == nullptr) return absl::OkStatus();
  OffloadSpan* span = trace_.Add(OffloadSpan{.start_ns = NowNs()});
  const absl::Status status = swapping_->Finish();
  span->end_ns = NowNs();
  return status;
}

void Engine::Impl::WaitTraced(comm::Communicator& group, const Traced& traced,
                              std::chrono::milliseconds deadline) {
  StepTrace::Stamp(*stream_, &traced.span->wait_start_ns);
  group.WaitOn(traced.ticket, *stream_, deadline);
  StepTrace::Stamp(*stream_, &traced.span->wait_end_ns);
}

void Engine::Impl::Swap(const v1::Instruction& instruction) {
  const bool out = instruction.kind() == v1::SWAP_OUT;
  const uint32_t stage = instruction.virtual_stage();
  if (instruction.pool() == v1::UPDATE) {
    SwapCopies copies = state_->SwapsOf(instruction);
    if (!out && Mutated(Mutation::kPieceOfAnother)) {
      v1::Instruction first = instruction;
      first.set_piece(0);
      const SwapCopies others = state_->SwapsOf(first);
      for (size_t i = 0; i < copies.size(); ++i) copies[i].home = others[i].home;
    }
    if (out && Mutated(Mutation::kPieceNotWrittenBack)) copies = {};
    for (const SwapCopy& copy : copies) swapping_->Copy(out, copy);
  } else {
    uint32_t stored = instruction.stored();
    if (!out && Mutated(Mutation::kSwappedFromAnother)) stored = stored > 0 ? stored - 1 : 1;
    tensor::DevicePointer home = arena_.Slot(v1::STORED, stage, stored);
    for (const auto& [pool, slot] : {std::pair(v1::ACTIVATION, instruction.activation()),
                                     std::pair(v1::STASH, instruction.stash())}) {
      const size_t bytes = arena_.SlotBytes(pool, stage);
      if (bytes == 0) continue;
      swapping_->Copy(out, {arena_.Slot(pool, stage, slot), home, bytes});
      home = home + bytes;
    }
  }
  pending_[instruction.ticket()] = {.issued = &instruction, .swap = swapping_->Record()};
}

void Engine::Impl::OnDevice(const std::function<void()>& work) {
  stream_->Issue(tensor::Task([&work] { work(); }));
  stream_->Synchronize();
}

void Engine::Impl::Read(tensor::DevicePointer from, std::span<std::byte> to) {
  device_->CopyToHost(from, to, *stream_);
  stream_->Synchronize();
  arena_.LetGo(from, to.size());
}

void Engine::Impl::Write(std::span<const std::byte> from, tensor::DevicePointer to) {
  device_->CopyFromHost(from, to, *stream_);
  stream_->Synchronize();
  arena_.LetGo(to, from.size());
}

}  // namespace trireme::engine
