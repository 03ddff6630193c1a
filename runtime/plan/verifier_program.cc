// One coordinate's list by itself: tickets are issued and waited for once, each cell (virtual
// stage, micro-batch) has its compute and its transfers once and in order.
#include "runtime/plan/verifier_program.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/verifier.h"

namespace trireme::plan {

std::string NameInstruction(const ProgramScope& scope, uint32_t at, const ProgramIndex* index) {
  const v1::Instruction& instruction = scope.at(at);
  const std::string kind = v1::InstructionKind_Name(instruction.kind());
  switch (instruction.kind()) {
    case v1::LOAD:
    case v1::NORM:
      return kind;
    case v1::REDUCE:
    case v1::GATHER:
    case v1::STEP:
    case v1::SUM:
      return absl::StrCat(kind, " of bucket ", instruction.bucket());
    case v1::WAIT:
      if (index != nullptr && instruction.ticket() < index->issued_at.size() &&
          index->issued_at[instruction.ticket()] != kNowhere) {
        return absl::StrCat("WAIT of ",
                            NameInstruction(scope, index->issued_at[instruction.ticket()], index));
      }
      return absl::StrCat("WAIT of ticket ", instruction.ticket());
    case v1::SWAP_OUT:
    case v1::SWAP_IN:
      if (instruction.pool() == v1::UPDATE) {
        return absl::StrCat(kind, " of piece ", instruction.piece(), " of bucket ",
                            instruction.bucket());
      }
      return absl::StrCat(kind, ", virtual stage ", instruction.virtual_stage(), ", micro-batch ",
                          instruction.micro_batch());
    default:
      return absl::StrCat(kind, ", virtual stage ", instruction.virtual_stage(), ", micro-batch ",
                          instruction.micro_batch());
  }
}

std::string Locate(const ProgramScope& scope, uint32_t at, const ProgramIndex* index) {
  return absl::StrCat("stage ", scope.pipeline, ", ", scope.name, ", instruction ", at, " (",
                      NameInstruction(scope, at, index), ")");
}

absl::Status Fault(const ProgramScope& scope, uint32_t at, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(Locate(scope, at), ": ", what));
}

namespace {

bool IsTransfer(v1::InstructionKind kind) { return kind >= v1::SEND_ACT && kind <= v1::RECV_GRAD; }
bool IsCompute(v1::InstructionKind kind) { return kind >= v1::F && kind <= v1::B; }
bool IsSwap(v1::InstructionKind kind) { return kind == v1::SWAP_OUT || kind == v1::SWAP_IN; }
bool IsIssue(v1::InstructionKind kind) {
  return IsTransfer(kind) || IsSwap(kind) || kind == v1::REDUCE || kind == v1::GATHER;
}

class Indexer {
 public:
  explicit Indexer(const ProgramScope& scope) : scope_(scope) {
    index_.cells.resize(size_t{scope.virtual_stages()} * scope.micro_batches);
    index_.issued_at.assign(size_t{scope.size()} + 1, kNowhere);
    index_.waited_at.assign(size_t{scope.size()} + 1, kNowhere);
  }

  absl::StatusOr<ProgramIndex> Run() {
    for (uint32_t at = 0; at < scope_.size(); ++at) RETURN_IF_ERROR(Add(at));
    for (size_t ticket = 1; ticket < index_.issued_at.size(); ++ticket) {
      if (index_.issued_at[ticket] != kNowhere && index_.waited_at[ticket] == kNowhere) {
        return Fault(scope_, index_.issued_at[ticket],
                     absl::StrCat("no WAIT for its ticket ", ticket));
      }
    }
    RETURN_IF_ERROR(CheckInFlight());
    for (uint32_t v = 0; v < scope_.virtual_stages(); ++v) {
      for (uint32_t m = 0; m < scope_.micro_batches; ++m) RETURN_IF_ERROR(CheckCell(v, m));
    }
    return std::move(index_);
  }

 private:
  absl::Status Add(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    const v1::InstructionKind kind = instruction.kind();
    if (kind < v1::LOAD || kind > v1::SWAP_IN) return Fault(scope_, at, "unknown kind");
    const bool forward_only = kind == v1::LOAD || kind == v1::F || kind == v1::SEND_ACT ||
                              kind == v1::RECV_ACT || kind == v1::WAIT || kind == v1::NORM ||
                              (kind == v1::GATHER && ZeroStage(*scope_.plan) >= 3);
    if (!scope_.training && !forward_only) {
      return Fault(scope_, at, "has no place in a program without backward");
    }
    RETURN_IF_ERROR(AddTicket(at));
    // Those of pieces: CheckSwaps.
    const bool moves_cell = IsSwap(kind) && instruction.pool() != v1::UPDATE;
    if (!IsTransfer(kind) && !IsCompute(kind) && !moves_cell) return absl::OkStatus();
    if (instruction.virtual_stage() >= scope_.virtual_stages()) {
      return Fault(scope_, at,
                   absl::StrCat("the stage holds ", scope_.virtual_stages(),
                                " virtual stages, numbered from 0"));
    }
    if (instruction.micro_batch() >= scope_.micro_batches) {
      return Fault(scope_, at,
                   absl::StrCat("the program runs ", scope_.micro_batches,
                                " micro-batches, numbered from 0"));
    }
    RETURN_IF_ERROR(IsCompute(kind) ? AddCompute(at) : moves_cell ? AddSwap(at) : AddTransfer(at));
    return AddSlots(at);
  }

  absl::Status AddTicket(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    const uint32_t ticket = instruction.ticket();
    const bool wait = instruction.kind() == v1::WAIT;
    if (!wait && !IsIssue(instruction.kind())) {
      if (ticket == 0) return absl::OkStatus();
      return Fault(scope_, at, absl::StrCat("carries ticket ", ticket, " but issues nothing"));
    }
    if (ticket == 0 || ticket > scope_.size()) {
      return Fault(scope_, at,
                   absl::StrCat("ticket ", ticket, " is outside 1..", scope_.size(),
                                ", the length of the list"));
    }
    if (wait && index_.issued_at[ticket] == kNowhere) {
      return Fault(scope_, at, absl::StrCat("ticket ", ticket, " is not issued before it"));
    }
    uint32_t& place = wait ? index_.waited_at[ticket] : index_.issued_at[ticket];
    if (place != kNowhere) {
      return Fault(scope_, at,
                   absl::StrCat("ticket ", ticket, wait ? " was waited for" : " was issued",
                                " already, at instruction ", place));
    }
    place = at;
    return absl::OkStatus();
  }

  absl::Status CheckInFlight() const {
    uint32_t buckets = 0, transfers = 0;
    for (uint32_t at = 0; at < scope_.size(); ++at) {
      const v1::Instruction& instruction = scope_.at(at);
      const bool wait = instruction.kind() == v1::WAIT;
      if (!wait && !IsIssue(instruction.kind())) continue;
      const uint32_t issue = wait ? index_.issued_at[instruction.ticket()] : at;
      // Swaps are this rank's own.
      if (IsSwap(scope_.at(issue).kind())) continue;
      const bool transfer = IsTransfer(scope_.at(issue).kind());
      uint32_t& count = transfer ? transfers : buckets;
      const uint32_t most = transfer ? kMostTransfersInFlight : kMostBucketsInFlight;
      count += wait ? -1 : 1;
      if (count <= most) continue;
      return Fault(scope_, at,
                   absl::StrCat(most, transfer ? " transfers" : " buckets",
                                " are in flight already; some must be waited for first"));
    }
    return absl::OkStatus();
  }

  Cell& CellOf(const v1::Instruction& instruction) {
    return index_.cells[size_t{instruction.virtual_stage()} * scope_.micro_batches +
                        instruction.micro_batch()];
  }

  absl::Status AddCompute(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    Cell& cell = CellOf(instruction);
    ComputeSpan* span = &cell.forward;
    if (instruction.kind() == v1::I) span = &cell.input_grad;
    if (instruction.kind() == v1::W) span = &cell.weight_grad;
    if (instruction.kind() == v1::B) span = &cell.backward;
    // An empty list is one instruction of no operators; otherwise each part covers some.
    const bool repeats = span->present() && instruction.op_begin() == instruction.op_end();
    if (instruction.op_begin() != span->op_end || instruction.op_end() < span->op_end || repeats) {
      return Fault(scope_, at,
                   absl::StrCat("covers operators [", instruction.op_begin(), ", ",
                                instruction.op_end(), "), but [0, ", span->op_end,
                                ") are done: each operator must run exactly once"));
    }
    if (!span->present()) span->first = at;
    span->last = at;
    span->op_end = instruction.op_end();
    return absl::OkStatus();
  }

  absl::Status AddSwap(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    Cell& cell = CellOf(instruction);
    if (instruction.pool() != v1::ACTIVATION || !OffloadsActivations(scope_.plan->job())) {
      return Fault(scope_, at, "moves what the job does not offload");
    }
    uint32_t& place = instruction.kind() == v1::SWAP_OUT ? cell.swap_out : cell.swap_in;
    if (place != kNowhere) {
      return Fault(scope_, at, absl::StrCat("stands twice, first at instruction ", place));
    }
    place = at;
    return absl::OkStatus();
  }

  absl::Status AddTransfer(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    Cell& cell = CellOf(instruction);
    const bool act = instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::RECV_ACT;
    const bool send = instruction.kind() == v1::SEND_ACT || instruction.kind() == v1::SEND_GRAD;
    uint32_t& place =
        act ? (send ? cell.send_act : cell.recv_act) : (send ? cell.send_grad : cell.recv_grad);
    if (place != kNowhere) {
      return Fault(scope_, at, absl::StrCat("stands twice, first at instruction ", place));
    }
    place = at;
    // Activations go to the next stage and come from the previous one; gradients the other way
    // round.
    const bool next = act == send;
    const bool none = next ? scope_.IsLast(instruction.virtual_stage())
                           : scope_.IsFirst(instruction.virtual_stage());
    if (none) {
      return Fault(scope_, at,
                   absl::StrCat("it is the ", next ? "last" : "first",
                                " stage of the model and has no neighbour there"));
    }
    const int32_t ranks = static_cast<int32_t>(scope_.ranks());
    const int32_t own = static_cast<int32_t>(scope_.pipeline);
    const int32_t peer = (own + (next ? 1 : ranks - 1)) % ranks - own;
    if (instruction.peer() != peer) {
      return Fault(scope_, at, absl::StrCat("peer ", instruction.peer(), ", expected ", peer));
    }
    return absl::OkStatus();
  }

  bool HasBytes(v1::PoolKind kind, uint32_t v) const {
    for (const v1::Pool& pool : scope_.stage().pools()) {
      if (pool.kind() == kind && pool.virtual_stage() == v) return pool.slot_bytes() > 0;
    }
    return false;
  }

  // All instructions of a cell that use a pool name the same slot of it.
  absl::Status AddSlots(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    const v1::InstructionKind kind = instruction.kind();
    const auto& touched_by = scope_.facts->virtual_stages[instruction.virtual_stage()].touched_by;
    std::array<bool, kSlotFields> uses{};
    for (size_t field = 0; field < kSlotFields; ++field) {
      uses[field] = IsCompute(kind) && (touched_by[kPoolOfField[field]] & ListBit(kind)) != 0;
    }
    for (const SlotField field : {kActivation, kStash, kStored}) {
      uses[field] |= IsSwap(kind) && (field == kStored ||
                                      HasBytes(kPoolOfField[field], instruction.virtual_stage()));
    }
    uses[kInput] |= kind == v1::RECV_ACT;
    uses[kOutput] |= kind == v1::SEND_ACT;
    uses[kGradientIn] |= kind == v1::RECV_GRAD;
    uses[kGradientOut] |= kind == v1::SEND_GRAD;
    const std::array<uint32_t, kSlotFields> slots = {
        instruction.activation(),   instruction.stash(),  instruction.gradient_stash(),
        instruction.input(),        instruction.output(), instruction.gradient_in(),
        instruction.gradient_out(), instruction.stored()};
    static constexpr std::array<const char*, kSlotFields> kNames = {
        "activation", "stash",       "gradient_stash", "input",
        "output",     "gradient_in", "gradient_out",   "stored"};
    Cell& cell = CellOf(instruction);
    for (size_t field = 0; field < kSlotFields; ++field) {
      if (!uses[field]) continue;
      const bool is_back = cell.swap_in != kNowhere && (field == kActivation || field == kStash);
      uint32_t& slot = is_back ? cell.slot_back[field] : cell.slot[field];
      if (slot == kNowhere) slot = slots[field];
      if (slot == slots[field]) continue;
      return Fault(scope_, at,
                   absl::StrCat("uses slot ", slots[field], " of the pool ", kNames[field],
                                ", but earlier instructions of this "
                                "micro-batch use slot ",
                                slot));
    }
    return absl::OkStatus();
  }

  absl::Status Missing(uint32_t v, uint32_t m, const char* what) const {
    return absl::FailedPreconditionError(absl::StrCat("stage ", scope_.pipeline, ", ", scope_.name,
                                                      ": ", what, " of virtual stage ", v,
                                                      ", micro-batch ", m, " is missing"));
  }

  absl::Status CheckCell(uint32_t v, uint32_t m) {
    const Cell& cell = index_.cells[size_t{v} * scope_.micro_batches + m];
    if (!cell.forward.present()) return Missing(v, m, "F");
    RETURN_IF_ERROR(CheckLength(Facts(v).forward[static_cast<size_t>(scope_.use)], cell.forward));
    if (!scope_.IsFirst(v)) {
      RETURN_IF_ERROR(CheckReceive(v, m, "RECV_ACT", cell.recv_act, cell.forward));
    }
    if (!scope_.IsLast(v)) {
      RETURN_IF_ERROR(CheckSend(v, m, "SEND_ACT", cell.send_act, cell.forward));
    }
    return scope_.training ? CheckBackward(v, m, cell) : absl::OkStatus();
  }

  absl::Status CheckBackward(uint32_t v, uint32_t m, const Cell& cell) {
    const bool split = cell.input_grad.present() || cell.weight_grad.present();
    if (!cell.backward.present() && !split) return Missing(v, m, "B (or I and W)");
    if (cell.backward.present() && split) {
      return Fault(scope_, cell.backward.first, "stands beside an I or W of the same micro-batch");
    }
    if (split && !cell.input_grad.present()) return Missing(v, m, "I");
    if (split && !cell.weight_grad.present()) return Missing(v, m, "W");
    RETURN_IF_ERROR(CheckLength(Facts(v).input_grad, cell.input_grad));
    RETURN_IF_ERROR(CheckLength(Facts(v).weight_grad, cell.weight_grad));
    RETURN_IF_ERROR(CheckLength(Facts(v).backward, cell.backward));
    const ComputeSpan& gradient = cell.gradient();
    if (gradient.first < cell.forward.last) {
      return Fault(scope_, gradient.first, "stands before the end of its F");
    }
    if (split && cell.weight_grad.first < cell.input_grad.last) {
      return Fault(scope_, cell.weight_grad.first, "stands before the end of its I");
    }
    RETURN_IF_ERROR(CheckAway(v, m, cell));
    if (!scope_.IsLast(v)) {
      RETURN_IF_ERROR(CheckReceive(v, m, "RECV_GRAD", cell.recv_grad, gradient));
    }
    if (!scope_.IsFirst(v)) {
      RETURN_IF_ERROR(CheckSend(v, m, "SEND_GRAD", cell.send_grad, gradient));
    }
    return absl::OkStatus();
  }

  // What forward keeps leaves behind it, has arrived before it comes back, and is there again
  // before backward begins.
  absl::Status CheckAway(uint32_t v, uint32_t m, const Cell& cell) const {
    if (cell.swap_out == kNowhere && cell.swap_in == kNowhere) return absl::OkStatus();
    if (cell.swap_out == kNowhere) return Missing(v, m, "SWAP_OUT");
    if (cell.swap_in == kNowhere) return Missing(v, m, "SWAP_IN");
    if (cell.swap_out < cell.forward.last) {
      return Fault(scope_, cell.swap_out, "stands before the end of its F");
    }
    if (cell.swap_in < index_.WaitOf(scope_, cell.swap_out)) {
      return Fault(scope_, cell.swap_in, "stands before the WAIT of its SWAP_OUT");
    }
    if (cell.gradient().first > index_.WaitOf(scope_, cell.swap_in)) return absl::OkStatus();
    return Fault(scope_, cell.gradient().first,
                 "reads what its SWAP_IN brings before the WAIT for it");
  }

  const VirtualStageFacts& Facts(uint32_t v) const { return scope_.facts->virtual_stages[v]; }

  // Every micro-batch runs all operators of the program.
  absl::Status CheckLength(uint32_t expected, const ComputeSpan& span) {
    if (!span.present() || expected == span.op_end) return absl::OkStatus();
    return Fault(scope_, span.last,
                 absl::StrCat("ends the list at operator ", span.op_end, ", but the stage has ",
                              expected, " operators"));
  }

  absl::Status CheckReceive(uint32_t v, uint32_t m, const char* what, uint32_t at,
                            const ComputeSpan& reader) {
    if (at == kNowhere) return Missing(v, m, what);
    if (index_.WaitOf(scope_, at) < reader.first) return absl::OkStatus();
    return Fault(
        scope_, reader.first,
        absl::StrCat("reads what ", what, " (instruction ", at, ") brings before the WAIT for it"));
  }

  absl::Status CheckSend(uint32_t v, uint32_t m, const char* what, uint32_t at,
                         const ComputeSpan& writer) {
    if (at == kNowhere) return Missing(v, m, what);
    if (at > writer.last) return absl::OkStatus();
    return Fault(scope_, at,
                 absl::StrCat("sends what is computed only at instruction ", writer.last));
  }

  const ProgramScope& scope_;
  ProgramIndex index_;
};

}  // namespace

absl::StatusOr<ProgramIndex> IndexProgram(const ProgramScope& scope) {
  return Indexer(scope).Run();
}

}  // namespace trireme::plan
