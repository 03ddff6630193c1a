// What GroupCommunicator does for coded operations: whether one may be coded, its messages, its
// report.
#include <algorithm>
#include <cmath>

#include "runtime/base/text.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/group_communicator.h"

namespace trireme::comm {

using base::Text;

absl::Status GroupCommunicator::CheckCoding(const Operation& operation) const {
  if (!operation.coded()) return absl::OkStatus();
  const auto fault = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        Text(operation.kind == Kind::kCollective ? NameOf(operation.call.kind) : "coded message",
             " on group '", name_, "': ", what));
  };
  const bool message = operation.kind != Kind::kCollective;
  if ((message ? coded_messages_.sends.size() : coding_bytes_) == 0) {
    return fault(Text("asked to be coded; make the group with CodingRoom::",
                      message ? "messages" : "collective_bytes"));
  }
  const double bound = operation.coding.message_bound.value;
  if (message && (operation.bytes % sizeof(float) != 0 || !std::isfinite(bound) || bound < 0)) {
    return fault(Text(operation.bytes, " bytes within ", bound,
                      " cannot be coded; expected f32 values and a finite bound from 0 up"));
  }
  if (message) return absl::OkStatus();
  const CollectiveCall& call = operation.call;
  if (call.kind == CollectiveKind::kBroadcast || call.dtype != tensor::DType::kF32 ||
      call.op != ReduceOp::kSum) {
    return fault("only sums and AllGather of f32 can be coded");
  }
  return absl::OkStatus();
}

void GroupCommunicator::FillReport(const Operation& operation, CodingReport report) const {
  report.total_ns = CodecTimer::NowNs() - operation.start_ns;
  if (operation.coding.report != nullptr) *operation.coding.report = report;
  if (operation.coding.totals != nullptr) operation.coding.totals->Add(report);
}

bool GroupCommunicator::AdvanceCodedSend(Operation& operation) {
  if (operation.coded_send == nullptr) {
    operation.coded_send = coded_messages_.idle_sends.back();
    coded_messages_.idle_sends.pop_back();
    operation.coded_send->Start(
        {operation.peer, operation.channel, operation.coding.piece_values},
        {reinterpret_cast<const float*>(operation.data), operation.bytes / sizeof(float)},
        operation.coding);
  }
  const bool done = operation.coded_send->Advance(&operation.moved);
  operation.started = operation.coded_send->AllPosted();
  if (!done) return false;
  FillReport(operation, operation.coded_send->report());
  coded_messages_.idle_sends.push_back(operation.coded_send);
  return true;
}

// Takes buffers only once the bound has come: then the sender is at it, and they come free again.
bool GroupCommunicator::AdvanceCodedRecv(Operation& operation) {
  if (operation.coded_recv == nullptr) {
    if (!operation.bound_came) {
      if (!operation.request.valid()) {
        Message message;
        message.direction = Direction::kRecv;
        message.data = &operation.coded_bound;
        message.bytes = sizeof(operation.coded_bound);
        message.peer = group_.ranks[static_cast<size_t>(operation.peer)];
        message.group = group_.id;
        message.channel = SizeChannelOf(operation.channel);
        operation.request = state_->transport->Post(message);
      }
      if (!state_->transport->Done(operation.request)) return false;
      operation.request = Request{};
      operation.bound_came = true;
      ++operation.moved;
    }
    if (coded_messages_.idle_recvs.empty()) return false;
    operation.coded_recv = coded_messages_.idle_recvs.back();
    coded_messages_.idle_recvs.pop_back();
    operation.coded_recv->Start(
        {operation.peer, operation.channel, operation.coding.piece_values}, operation.coded_bound,
        {reinterpret_cast<float*>(operation.data), operation.bytes / sizeof(float)});
  }
  const bool done = operation.coded_recv->Advance(&operation.moved);
  operation.started = operation.coded_recv->AllPosted();
  if (!operation.coded_recv->fault().ok()) FailBy(operation, operation.coded_recv->fault());
  if (!done) return false;
  FillReport(operation, operation.coded_recv->report());
  coded_messages_.idle_recvs.push_back(operation.coded_recv);
  return true;
}

}  // namespace trireme::comm
