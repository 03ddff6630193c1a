// Optimizer state that is not in the arena: the program is walked with what each slot of UPDATE
// holds. A piece comes, is updated once, goes, and has gone before its slot is used again. Of
// activations, whose slots are CheckSlots's, that the room they go to holds them.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/verifier_program.h"

namespace trireme::plan {

namespace {

class SwapCheck {
 public:
  SwapCheck(const ProgramScope& scope, const ProgramIndex& index) : scope_(scope), index_(index) {
    for (const v1::Pool& pool : scope.stage().pools()) {
      if (pool.kind() != v1::UPDATE) continue;
      elements_ = pool.slot_bytes() / UpdateBytes(scope.plan->job());
      slots_.resize(pool.slots());
    }
  }

  absl::Status Run() {
    RETURN_IF_ERROR(CheckStored());
    RETURN_IF_ERROR(CheckUpdate());
    for (uint32_t at = 0; at < scope_.size(); ++at) RETURN_IF_ERROR(Add(at));
    if (!scope_.training || !OffloadsState(scope_.plan->job())) return absl::OkStatus();
    for (uint32_t bucket = 0; bucket < Buckets(); ++bucket) {
      for (uint64_t piece = 0; piece < Pieces(bucket); ++piece) {
        if (updated_.contains({bucket, static_cast<uint32_t>(piece)})) continue;
        return absl::FailedPreconditionError(absl::StrCat("stage ", scope_.pipeline, ", ",
                                                          scope_.name, ": STEP of piece ", piece,
                                                          " of bucket ", bucket, " is missing"));
      }
    }
    for (const Slot& slot : slots_) {
      if (slot.state != State::kFree) return Fault(scope_, slot.since, "its piece never goes back");
    }
    return absl::OkStatus();
  }

 private:
  enum class State : uint8_t { kFree, kComes, kThere, kUpdated, kGoes };
  struct Slot {
    State state = State::kFree;
    uint32_t bucket = 0, piece = 0;
    uint32_t since = 0;  // the instruction that made it so
  };

  uint32_t Buckets() const { return static_cast<uint32_t>(scope_.stage().buckets_size()); }
  uint64_t Share(uint32_t bucket) const {
    const uint64_t replicas =
        scope_.plan->job().parallelism().zero_stage() >= 1 ? scope_.plan->mesh().data() : 1;
    return scope_.stage().buckets(static_cast<int>(bucket)).count() / replicas;
  }
  uint64_t Pieces(uint32_t bucket) const {
    return elements_ == 0 ? 0 : (Share(bucket) + elements_ - 1) / elements_;
  }

  // Workers cut the state anew, by what the operators ask for.
  absl::Status CheckUpdate() const {
    const v1::JobSpec& job = scope_.plan->job();
    if (!OffloadsState(job)) return absl::OkStatus();
    const auto elements = PieceElements(*scope_.plan, scope_.facts->buckets);
    const uint64_t meant = static_cast<uint64_t>(elements) * UpdateBytes(job);
    for (const v1::Pool& pool : scope_.stage().pools()) {
      if (pool.kind() != v1::UPDATE || pool.slot_bytes() == meant) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "stage ", scope_.pipeline, ": slots of the pool UPDATE are of ", pool.slot_bytes(),
          " bytes, but pieces of this job's optimizer state are of ", meant));
    }
    return absl::OkStatus();
  }

  // A micro-batch's ACTIVATION and STASH, one behind the other.
  absl::Status CheckStored() const {
    if (!OffloadsActivations(scope_.plan->job())) return absl::OkStatus();
    for (const v1::Pool& stored : scope_.stage().pools()) {
      if (stored.kind() != v1::STORED || stored.slots() == 0) continue;
      uint64_t moved = 0;
      for (const v1::Pool& pool : scope_.stage().pools()) {
        const bool moves = pool.kind() == v1::ACTIVATION || pool.kind() == v1::STASH;
        if (moves && pool.virtual_stage() == stored.virtual_stage()) moved += pool.slot_bytes();
      }
      if (stored.slot_bytes() == moved) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("stage ", scope_.pipeline, ": slots of the pool STORED of virtual stage ",
                       stored.virtual_stage(), " are of ", stored.slot_bytes(),
                       " bytes, but those of ACTIVATION and STASH that move there are of ", moved));
    }
    return absl::OkStatus();
  }

  absl::Status Add(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    switch (instruction.kind()) {
      case v1::SWAP_IN:
      case v1::SWAP_OUT:
        return instruction.pool() == v1::UPDATE ? AddSwap(at) : absl::OkStatus();
      case v1::WAIT:
        return EndOf(at);
      case v1::STEP:
        return AddStep(at);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status InRange(uint32_t at) const {
    const v1::Instruction& instruction = scope_.at(at);
    if (!OffloadsState(scope_.plan->job())) {
      return Fault(scope_, at, "moves what the job does not offload");
    }
    if (instruction.bucket() >= Buckets()) {
      return Fault(scope_, at, absl::StrCat("the stage has ", Buckets(), " buckets"));
    }
    if (instruction.piece() >= Pieces(instruction.bucket())) {
      return Fault(scope_, at,
                   absl::StrCat("bucket ", instruction.bucket(), " has ",
                                Pieces(instruction.bucket()), " pieces"));
    }
    if (instruction.update() < slots_.size()) return absl::OkStatus();
    return Fault(scope_, at,
                 absl::StrCat("slot ", instruction.update(), " of the pool UPDATE, which has ",
                              slots_.size()));
  }

  bool Holds(const Slot& slot, const v1::Instruction& instruction) const {
    return slot.bucket == instruction.bucket() && slot.piece == instruction.piece();
  }

  absl::Status AddSwap(uint32_t at) {
    RETURN_IF_ERROR(InRange(at));
    const v1::Instruction& instruction = scope_.at(at);
    Slot& slot = slots_[instruction.update()];
    if (instruction.kind() == v1::SWAP_IN) {
      if (slot.state != State::kFree) {
        return Fault(scope_, at,
                     absl::StrCat("takes a slot that piece ", slot.piece, " of bucket ",
                                  slot.bucket, " still holds"));
      }
      slot = {State::kComes, instruction.bucket(), instruction.piece(), at};
      return absl::OkStatus();
    }
    if (slot.state != State::kUpdated || !Holds(slot, instruction)) {
      return Fault(scope_, at, "its slot does not hold this piece, updated");
    }
    slot.state = State::kGoes;
    slot.since = at;
    return absl::OkStatus();
  }

  absl::Status EndOf(uint32_t at) {
    const v1::Instruction& issue = scope_.at(index_.issued_at[scope_.at(at).ticket()]);
    const bool swap = issue.kind() == v1::SWAP_IN || issue.kind() == v1::SWAP_OUT;
    if (!swap || issue.pool() != v1::UPDATE) return absl::OkStatus();
    slots_[issue.update()].state = issue.kind() == v1::SWAP_IN ? State::kThere : State::kFree;
    return absl::OkStatus();
  }

  absl::Status AddStep(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    if (!OffloadsState(scope_.plan->job())) {
      if (instruction.piece() == 0 && instruction.update() == 0) return absl::OkStatus();
      return Fault(scope_, at, "speaks of pieces, but the job offloads no optimizer state");
    }
    RETURN_IF_ERROR(InRange(at));
    Slot& slot = slots_[instruction.update()];
    if (slot.state != State::kThere || !Holds(slot, instruction)) {
      return Fault(scope_, at, "updates a piece that is not there: no SWAP_IN and its WAIT");
    }
    if (!updated_.emplace(instruction.bucket(), instruction.piece()).second) {
      return Fault(scope_, at, "updates the piece a second time");
    }
    slot.state = State::kUpdated;
    slot.since = at;
    return absl::OkStatus();
  }

  const ProgramScope& scope_;
  const ProgramIndex& index_;
  uint64_t elements_ = 0;  // of a piece
  std::vector<Slot> slots_;
  std::set<std::pair<uint32_t, uint32_t>> updated_;
};

}  // namespace

absl::Status CheckSwaps(const ProgramScope& scope, const ProgramIndex& index) {
  return SwapCheck(scope, index).Run();
}

}  // namespace trireme::plan
