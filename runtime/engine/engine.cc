#include "runtime/engine/engine.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/coded_fabric.h"
#include "runtime/comm/node_memory.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/offload.h"

namespace trireme::engine {

namespace {

// Tasks that the engine's thread may be ahead of an asynchronous stream; comm::FabricOptions counts
// on it.
constexpr size_t kStreamTasks = 1024;

}  // namespace

Engine::Impl::Impl(const v1::Plan& plan, const data::Dataset& dataset, const EngineOptions& options)
    : plan_(plan), dataset_(dataset), options_(options) {}

Engine::Impl::~Impl() {
  if (swapping_ != nullptr && swapping_->stuck()) {
    // With all that its thread may still work on.
    (void)swapping_.release();
    (void)stream_.release();
    (void)new Arena(std::move(arena_));
    (void)device_.release();
  }
  if (options_.agreement == nullptr) return;
  options_.agreement->set_patience(
      [patience = options_.deadline](std::chrono::nanoseconds) { return patience; });
}

void Engine::Impl::SetUpPatience(const plan::Coordinates& at) {
  const auto& own = plan_.stages(static_cast<int>(at.pipeline));
  const uint32_t stages = plan_.mesh().pipeline() * static_cast<uint32_t>(own.first_block_size());
  patience_.emplace(options_.deadline, Patience::Place{.stages = stages, .before = at.pipeline});
}

absl::Status Engine::Impl::SetUp(comm::Fabric& fabric) {
  const plan::Coordinates at = plan::CoordinatesOf(plan_.mesh(), fabric.rank());
  SetUpPatience(at);
  if (options_.recorder != nullptr) wait_notes_.emplace(fabric, *options_.recorder);
  ASSIGN_OR_RETURN(graph_, model::BuildModel(plan_.job().model().config()));
  agreement_ = options_.agreement;
  if (agreement_ == nullptr) {
    ASSIGN_OR_RETURN(own_agreement_, comm::Agreement::Make(fabric, options_.deadline));
    agreement_ = own_agreement_.get();
  }
  agreement_->set_patience([this](std::chrono::nanoseconds alone) { return ProgramEnd(alone); });
  ASSIGN_OR_RETURN(groups_, Groups::Make(plan_, fabric, *agreement_,
                                         {.tied_stages = graph_.tied != graph::kNone,
                                          .deadline = options_.deadline}));
  device_ = options_.make_device(options_.device);
  ASSIGN_OR_RETURN(auto gradients, SharedGradients(fabric));
  plan::LoweredStage lowered = plan::LowerForRank(plan_, graph_, groups_.at);
  state_ =
      std::make_unique<TrainingState>(plan_, graph_, groups_.at, std::move(lowered.state), arena_);
  Arena::Options arena{.prefault_threads = options_.prefault ? options_.threads : 0,
                       .gradients = std::move(gradients)};
  if (stage().host_bytes() > 0 || stage().file_bytes() > 0) {
    ASSIGN_OR_RETURN(swapping_, Swapping::Make(stage(), *device_,
                                               {.folder = options_.offload_folder,
                                                .deadline = options_.deadline,
                                                .while_waiting = [this] { groups_.Progress(); }}));
    arena.places = swapping_->TakePlaces();
    arena.let_go = [swapping = swapping_.get()](tensor::DevicePointer at, size_t bytes) {
      swapping->LetGo(at, bytes);
    };
  }
  if (options_.snapshots != nullptr && stage().snapshot_bytes() == 0) {
    return absl::FailedPreconditionError(
        "there is memory for snapshots, but the plan has no slots for them");
  }
  if (stage().snapshot_bytes() > 0) {
    ASSIGN_OR_RETURN(arena.places[v1::SNAPSHOT], SnapshotMemory(arena.prefault_threads));
  }
  ASSIGN_OR_RETURN(arena_, Arena::Map(stage(), *device_, std::move(arena)));
  RETURN_IF_ERROR(state_->CheckPlanned(plan_, groups_.at.pipeline));
  replicas_ = std::make_unique<ReplicaCheck>(plan_, graph_, *state_, groups_.at, arena_);
  // Whoever waits for the stream drives what is in flight: its own thread computes meanwhile.
  stream_ = device_->MakeStream(kStreamTasks, [this] {
    groups_.Progress();
    PollStop();
  });
  if (swapping_ != nullptr) swapping_->Follow(*stream_);
  SetUpMirrors();
  RETURN_IF_ERROR(SetUpStages(std::move(lowered.ops[0])));
  SetUpPrograms();
  return absl::OkStatus();
}

// Replicas of one machine sum gradients where they lie, if each reaches the others'. All ranks make
// the memory together; on a rank whose replicas are elsewhere it is empty, and null is returned.
absl::StatusOr<std::unique_ptr<tensor::DeviceMemory>> Engine::Impl::SharedGradients(
    comm::Fabric& fabric) {
  if (plan_.mesh().data() == 1) return nullptr;
  const size_t bytes = groups_.data->SumsInWindow() ? Arena::GradientBytes(stage()) : 0;
  ASSIGN_OR_RETURN(const std::shared_ptr<comm::NodeMemory> memory, fabric.Allocate(bytes));
  if (bytes == 0) return nullptr;
  return device_->Adopt({.bytes = memory->own(), .owner = memory});
}

absl::Status Engine::Impl::SetUpStages(std::vector<graph::StageOps> ops) {
  for (size_t index = 0; index < ops.size(); ++index) {
    const size_t key = index * plan_.mesh().tensor() + groups_.at.tensor;
    if (ops[index].Fingerprint() != stage().fingerprint(static_cast<int>(key))) {
      return absl::FailedPreconditionError(
          "the operators derived here differ from the plan's: planner and worker are of different "
          "versions");
    }
    ASSIGN_OR_RETURN(
        auto executor,
        StageExecutor::Prepare(std::move(ops[index]), state_->working_places(),
                               {.arena = &arena_,
                                .kernels = options_.kernels,
                                .prepare = {.scratch_limit_bytes = arena_.SlotBytes(v1::SCRATCH, 0),
                                            .threads = options_.threads},
                                .tensor_group = groups_.tensor.get(),
                                .world = groups_.world,
                                .limit = [this] { return TensorLimit(); },
                                .context = &context_,
                                .loss_scale = &block()->loss_scale,
                                .trace = &trace_,
                                .micro_batch = plan_.job().training().micro_batch_size(),
                                .dtype = plan::ComputeDType(plan_.job()),
                                .pipeline = groups_.at.pipeline,
                                .virtual_stage = static_cast<uint32_t>(index),
                                .tensor_index = groups_.at.tensor}));
    stages_.push_back(std::move(executor));
  }
  return absl::OkStatus();
}

// Ranks of a tensor group are level but for what each waits for its own disk.
std::chrono::milliseconds Engine::Impl::TensorLimit() const {
  return WaitsForSwaps(plan_) ? patience_->MeetingLimit(agreement_->SinceMet()) : options_.deadline;
}

void Engine::Impl::SetUpPrograms() {
  std::set<std::pair<uint32_t, v1::InstructionKind>> seen;
  uint32_t tickets = 0;
  for (const v1::Program* program : {&stage().step(), &stage().evaluate(), &stage().generate()}) {
    for (const v1::Instruction& instruction : program->instructions()) {
      tickets = std::max(tickets, instruction.ticket());
      const v1::InstructionKind kind = instruction.kind();
      if (kind != v1::B && kind != v1::I && kind != v1::W) continue;
      StageExecutor& stage = *stages_[instruction.virtual_stage()];
      if (seen.emplace(instruction.virtual_stage(), kind).second) {
        stage.set_first_micro_batch(kind, instruction.micro_batch());
      }
      stage.set_last_micro_batch(kind, instruction.micro_batch());
    }
  }
  pending_.resize(tickets + 1);
  SetUpCoding(tickets + 1);
  ReserveTrace();
  SetUpShares();
}

void Engine::Impl::SetUpMirrors() {
  const v1::Pool& tokens = plan::FindPool(stage(), v1::TOKENS, 0);
  tokens_.resize(tokens.slot_bytes() * tokens.slots() / sizeof(int32_t));
}

void Engine::Impl::SetUpShares() {
  for (const v1::Bucket& bucket : state_->buckets()) {
    std::vector<int64_t> offsets;
    const int64_t share = static_cast<int64_t>(bucket.count()) / plan_.mesh().data();
    for (uint32_t index = 0; index <= plan_.mesh().data(); ++index)
      offsets.push_back(share * index);
    share_offsets_.push_back(std::move(offsets));
  }
}

void Engine::Impl::SetUpCoding(size_t tickets) {
  coding_ = std::make_unique<TransferCoding>(
      plan_, groups_.at, *state_,
      TransferCounts{.tickets = tickets, .coded_messages = groups_.coded.messages});
  const v1::CompressionSpec& spec = plan_.job().compression();
  const auto decorate = [](std::unique_ptr<comm::Communicator>& group, const std::string& mode,
                           comm::CodingTotals* totals) {
    const bool chooses = mode == "auto";
    if (group == nullptr || (mode != "on" && !chooses)) return;
    // The plan has judged sizes.
    group = comm::MakeCodedCommunicator(
        std::move(group), {.mode = chooses ? comm::CodingMode::kAuto : comm::CodingMode::kOn,
                           .least_bytes = 0,
                           .totals = totals});
  };
  decorate(groups_.data, spec.data_parallel().mode(), coding_->data_totals());
  decorate(groups_.pipeline, spec.pipeline().mode(), coding_->pipeline_totals());
}

void Engine::Impl::ReserveTrace() {
  size_t instructions = 0, computes = 0, communications = 0;
  for (const v1::Program* program : {&stage().step(), &stage().evaluate(), &stage().generate()}) {
    size_t own_computes = 0, own_communications = 0;
    for (const v1::Instruction& instruction : program->instructions()) {
      // At most: LOAD a load and two sums, WAIT of a REDUCE two sums, NORM a norm and a reduction;
      // and every transfer is one.
      own_computes += 1;
      own_communications += 3;
      if (instruction.op_end() <= instruction.op_begin()) continue;
      const size_t operators = instruction.op_end() - instruction.op_begin();
      own_computes += operators;
      own_communications += operators;
    }
    instructions = std::max(instructions, static_cast<size_t>(program->instructions_size()));
    computes = std::max(computes, own_computes);
    communications = std::max(communications, own_communications);
  }
  trace_.Reserve(instructions, computes, communications);
}

absl::StatusOr<std::vector<RankCoding>> Engine::Impl::GatherCoding() {
  if (!groups_.coded.sums && groups_.coded.messages == 0) return std::vector<RankCoding>();
  return agreement_->Gather(RankCoding{coding_->data(), coding_->pipeline()});
}

// Between a step's last SWAP_OUT and the next one's first SWAP_IN nobody else would be told of what
// the disk has lost, and the mapping gives the state of the step before in its place.
absl::Status Engine::Impl::SyncState() {
  if (!plan::OffloadsState(plan_.job())) return absl::OkStatus();
  return agreement_->AllOk(swapping_ == nullptr ? absl::OkStatus() : swapping_->Sync(),
                           comm::kDiskDeadline);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const v1::Plan& plan, comm::Fabric& fabric,
                                                       const data::Dataset& dataset,
                                                       const EngineOptions& options) {
  if (!plan::IsPlanVersion(plan.version())) {
    return absl::FailedPreconditionError(absl::StrCat("the plan has version ", plan.version(),
                                                      ", this worker reads ", plan::kPlanVersion,
                                                      " and ", plan::kPlanVersionWithSlots));
  }
  auto impl = std::make_unique<Impl>(plan, dataset, options);
  RETURN_IF_ERROR(impl->SetUp(fabric));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

void Engine::InitializeState() {
  ClearSnapshots();
  OnDevice(
      [this] { impl_->state_->Initialize(impl_->plan_.job().seed(), impl_->options_.threads); });
}

void Engine::ClearSnapshots() {
  if (impl_->options_.snapshots == nullptr) return;
  OnDevice([this] {
    for (uint32_t slot = 0; slot < impl_->state_->slots().count(); ++slot) {
      impl_->options_.snapshots->Clear(slot);
    }
  });
}

absl::Status Engine::ResumeFrom(uint32_t slot) { return impl_->ResumeFrom(slot); }
void Engine::OnDevice(const std::function<void()>& work) { impl_->OnDevice(work); }
void Engine::Read(tensor::DevicePointer from, std::span<std::byte> to) { impl_->Read(from, to); }
void Engine::Write(std::span<const std::byte> from, tensor::DevicePointer to) {
  impl_->Write(from, to);
}

absl::StatusOr<StepReport> Engine::RunStep(uint64_t step, bool request_stop) {
  return impl_->RunStep(step, request_stop);
}

absl::StatusOr<ExposureReport> Engine::MeasureExposure() { return impl_->MeasureExposure(); }

absl::StatusOr<std::vector<RankCoding>> Engine::GatherCoding() { return impl_->GatherCoding(); }

absl::StatusOr<double> Engine::Evaluate(int64_t samples) { return impl_->Evaluate(samples); }

absl::StatusOr<int32_t> Engine::NextToken(std::span<const int32_t> context,
                                          const Sampling& sampling) {
  return impl_->NextToken(context, sampling);
}

void Engine::set_stop_poll(std::function<bool()> poll) { impl_->stop_poll_ = std::move(poll); }

comm::Agreement& Engine::agreement() { return *impl_->agreement_; }
absl::Status Engine::CheckReplicas() { return impl_->CheckReplicas(); }
absl::Status Engine::SyncState() { return impl_->SyncState(); }
TrainingState& Engine::state() { return *impl_->state_; }
int Engine::rank() const { return impl_->groups_.world->rank(); }
const Arena& Engine::arena() const { return impl_->arena_; }
const StepTrace& Engine::last_trace() const { return impl_->trace_; }
const JobClock& Engine::clock() const { return impl_->clock_; }

}  // namespace trireme::engine
