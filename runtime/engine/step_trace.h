// What one rank did in the last program it ran, as spans on its own steady clock: instructions,
// operators computing, communications from issue to completion and the waits for them, waits for
// what is offloaded. The stamps are tasks of the stream, so with asynchronous streams they tell
// when the work ran and not when it was issued. All memory is reserved before the first
// step.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/communicator.h"
#include "runtime/tensor/stream.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

// Nanoseconds of the steady clock.
inline int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// One executed instruction.
struct InstructionSpan {
  uint32_t kind = 0;  // v1::InstructionKind
  uint32_t virtual_stage = 0;
  uint32_t micro_batch = 0;
  int64_t start_ns = 0;  // steady clock
  int64_t end_ns = 0;
};

// Time in which the rank computed: one operator, update, norm or load.
struct ComputeSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// Time in which the rank waited for what is offloaded to come or to be gone.
struct OffloadSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// The groups of engine::Groups.
enum class GroupName : uint8_t { kWorld, kTensor, kData, kPipeline, kTied };
inline constexpr int kGroupNames = 5;
std::string_view TextOf(GroupName name);

// One communication of this rank. A time of 0: did not come to it.
struct CommunicationSpan {
  uint32_t kind = 0;  // v1::InstructionKind of the instruction that issued it
  uint32_t virtual_stage = 0;
  uint32_t micro_batch = 0;
  uint32_t bucket = 0;  // of REDUCE, GATHER and of the sums in REDUCE's WAIT
  GroupName group = GroupName::kWorld;
  int32_t peer = -1;      // of a message: rank in the pipeline group; -1: a collective
  uint32_t channel = 0;   // of a message
  bool sends = false;     // of a message
  int64_t issued_ns = 0;  // the stream had come to it: what it carries, or its memory, was ready
  int64_t done_ns = 0;    // seen done on this rank
  int64_t wait_start_ns = 0;  // of the thread that could do nothing before it was done
  int64_t wait_end_ns = 0;
  // When the last of its ranks had issued its part, on this rank's clock; 0: not asked for. Set by
  // Engine::MeasureExposure.
  int64_t all_issued_ns = 0;
};

// A ticket and its span.
struct Traced {
  comm::Ticket ticket;
  CommunicationSpan* span = nullptr;
};

// Where the time of the last program went. What is left of it the rank spent between instructions.
struct TraceSums {
  double compute_ms = 0;
  double wait_ms = 0;     // for transfers and other ranks
  double offload_ms = 0;  // for what is offloaded
};

// Threads: spans are added by the engine's thread, compute spans by the stream's, or by the
// engine's after a Synchronize. Read after a Synchronize.
class StepTrace {
 public:
  // The most spans a program makes; more are a broken invariant.
  void Reserve(size_t instructions, size_t computes, size_t communications) {
    instructions_.reserve(instructions);
    computes_.reserve(computes);
    communications_.reserve(communications);
    offloads_.reserve(instructions + 1);  // each may be a wait; and the end
  }
  // Nothing of the last program is on the stream any more.
  void Clear() {
    instructions_.clear();
    computes_.clear();
    communications_.clear();
    offloads_.clear();
  }

  // Addresses stay until Clear.
  InstructionSpan* Add(const InstructionSpan& span) { return Keep(instructions_, span); }
  ComputeSpan* Add(const ComputeSpan& span) { return Keep(computes_, span); }
  CommunicationSpan* Add(const CommunicationSpan& span) { return Keep(communications_, span); }
  OffloadSpan* Add(const OffloadSpan& span) { return Keep(offloads_, span); }

  // Adds `span` and makes `call`, which issues one operation on `group` with the options it is
  // given. It begins as the stream comes to it, also where its thread goes on computing and nobody
  // waits.
  template <typename Call>
  Traced Issue(const CommunicationSpan& span, comm::Communicator& group,
               comm::OperationOptions options, const Call& call) {
    tensor::Stream& stream = *options.stream;
    CommunicationSpan* kept = Add(span);
    Stamp(stream, &kept->issued_ns);
    options.done_ns = &kept->done_ns;
    const comm::Ticket ticket = call(options);
    if (!stream.inline_execution()) stream.IssueAside(tensor::Task([&group] { group.Progress(); }));
    return {ticket, kept};
  }
  // `address` gets the time at which `stream` comes here.
  static void Stamp(tensor::Stream& stream, int64_t* address) {
    stream.IssueAside(tensor::Task([address] { *address = NowNs(); }));
  }

  TraceSums Sums() const;
  std::span<const InstructionSpan> instructions() const { return instructions_; }
  std::span<const ComputeSpan> computes() const { return computes_; }
  std::span<const CommunicationSpan> communications() const { return communications_; }
  std::span<const OffloadSpan> offloads() const { return offloads_; }
  std::span<CommunicationSpan> communications() { return communications_; }

 private:
  template <typename Span>
  static Span* Keep(std::vector<Span>& spans, const Span& span) {
    TRIREME_CHECK(spans.size() < spans.capacity());
    spans.push_back(span);
    return &spans.back();
  }

  std::vector<InstructionSpan> instructions_;
  std::vector<ComputeSpan> computes_;
  std::vector<CommunicationSpan> communications_;
  std::vector<OffloadSpan> offloads_;
};

}  // namespace trireme::engine
