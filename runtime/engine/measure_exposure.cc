// What the ranks tell each other about the step just run: when each came to its communications, so
// that a wait for a rank that was not there yet is told from a transfer; then everybody's figures.
#include <algorithm>
#include <map>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"

namespace trireme::engine {

namespace {

// Steps measured between two looks at the other ranks' clocks: quartz drifts by some microseconds a
// second, NTP holds it far below.
constexpr uint64_t kMeasuresPerClock = 64;

// Messages match first-in first-out per channel, in each direction: in this order the nth one here
// is the nth one there.
void SortForPeer(std::vector<CommunicationSpan*>& messages) {
  std::stable_sort(messages.begin(), messages.end(),
                   [](const CommunicationSpan* a, const CommunicationSpan* b) {
                     return a->channel < b->channel;
                   });
}

}  // namespace

// A collective has begun everywhere with the last rank's part: the largest of the times.
absl::Status Engine::Impl::ShareTimesOfCollectives(GroupName name) {
  comm::Communicator* group = groups_.named(name);
  if (group == nullptr) return absl::OkStatus();
  std::vector<double> times;
  for (const CommunicationSpan& span : trace_.communications()) {
    if (span.group == name && span.peer < 0) {
      times.push_back(static_cast<double>(clock_.ToJob(span.issued_ns)));
    }
  }
  if (times.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(
      group->WaitHost(group->AllReduce(times.data(), static_cast<int64_t>(times.size()),
                                       tensor::DType::kF64, comm::ReduceOp::kMax, *host_stream_),
                      ProgramEnd(agreement_->SinceMet())));
  size_t next = 0;
  for (CommunicationSpan& span : trace_.communications()) {
    if (span.group == name && span.peer < 0) {
      span.all_issued_ns = clock_.ToOwn(static_cast<int64_t>(times[next++]));
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::ShareTimesOfMessages() {
  struct Peer {
    std::vector<CommunicationSpan*> received, sent;
    std::vector<int64_t> own, other;
  };
  std::map<int, Peer> peers;
  for (CommunicationSpan& span : trace_.communications()) {
    if (span.peer < 0) continue;
    Peer& peer = peers[span.peer];
    (span.sends ? peer.sent : peer.received).push_back(&span);
  }
  std::vector<comm::Ticket> tickets;
  for (auto& [rank, peer] : peers) {
    SortForPeer(peer.received);
    SortForPeer(peer.sent);
    for (const auto* messages : {&peer.sent, &peer.received}) {
      for (const CommunicationSpan* span : *messages) {
        peer.own.push_back(clock_.ToJob(span->issued_ns));
      }
    }
    peer.other.resize(peer.own.size());
    comm::Communicator& group = *groups_.pipeline;
    tickets.push_back(
        group.Recv(std::as_writable_bytes(std::span(peer.other)), rank, 0, *host_stream_));
    tickets.push_back(group.Send(std::as_bytes(std::span(peer.own)), rank, 0, *host_stream_));
  }
  for (const comm::Ticket ticket : tickets) {
    RETURN_IF_ERROR(groups_.pipeline->WaitHost(ticket, ProgramEnd(agreement_->SinceMet())));
  }
  for (auto& [rank, peer] : peers) {
    // The peer's sends came first, and they are what is received here.
    size_t next = 0;
    for (const auto* messages : {&peer.received, &peer.sent}) {
      for (CommunicationSpan* span : *messages) {
        span->all_issued_ns = clock_.ToOwn(peer.other[next++]);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ExposureReport> Engine::Impl::MeasureExposure() {
  if (measures_++ % kMeasuresPerClock == 0) {
    RETURN_IF_ERROR(clock_.Synchronize(*groups_.world, ProgramEnd(agreement_->SinceMet())));
  }
  for (int name = 0; name < kGroupNames; ++name) {
    RETURN_IF_ERROR(ShareTimesOfCollectives(static_cast<GroupName>(name)));
  }
  RETURN_IF_ERROR(ShareTimesOfMessages());
  ASSIGN_OR_RETURN(const std::vector<Exposure> all, agreement_->Gather(ExposureOf(trace_)));
  ExposureReport report;
  const auto add = [&](ExposureReport::Part& part, int64_t nanoseconds) {
    const double seconds = static_cast<double>(nanoseconds) * 1e-9;
    part.mean_s += seconds / static_cast<double>(all.size());
    part.max_s = std::max(part.max_s, seconds);
  };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<double>(all[rank].exposed_ns) * 1e-9 > report.exposed.max_s) {
      report.most_exposed_rank = static_cast<int>(rank);
    }
    add(report.exposed, all[rank].exposed_ns);
    add(report.bubble, all[rank].bubble_ns);
    add(report.transfer, all[rank].transfer_ns());
    add(report.offload, all[rank].offload_ns);
  }
  return report;
}

}  // namespace trireme::engine
