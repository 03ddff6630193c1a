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
                      ProgramEnd(SinceAllMet())));
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
    RETURN_IF_ERROR(groups_.pipeline->WaitHost(ticket, ProgramEnd(SinceAllMet())));
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
  comm::Communicator& world = *groups_.world;
  if (measures_++ % kMeasuresPerClock == 0) {
    RETURN_IF_ERROR(clock_.Synchronize(world, ProgramEnd(SinceAllMet())));
  }
  for (int name = 0; name < kGroupNames; ++name) {
    RETURN_IF_ERROR(ShareTimesOfCollectives(static_cast<GroupName>(name)));
  }
  RETURN_IF_ERROR(ShareTimesOfMessages());
  const Exposure own = ExposureOf(trace_);
  // Of each rank: exposed, bubble, transfer.
  constexpr size_t kFields = 3;
  const auto size = static_cast<size_t>(world.size());
  std::vector<double> all(kFields * size);
  std::vector<int64_t> offsets;
  for (size_t rank = 0; rank <= size; ++rank) {
    offsets.push_back(static_cast<int64_t>(kFields * rank));
  }
  double* mine = all.data() + kFields * static_cast<size_t>(world.rank());
  mine[0] = static_cast<double>(own.exposed_ns) * 1e-9;
  mine[1] = static_cast<double>(own.bubble_ns) * 1e-9;
  mine[2] = static_cast<double>(own.transfer_ns()) * 1e-9;
  RETURN_IF_ERROR(
      world.WaitHost(world.AllGather({all.data(), offsets, tensor::DType::kF64}, *host_stream_),
                     ProgramEnd(SinceAllMet())));
  ExposureReport report;
  for (size_t rank = 0; rank < size; ++rank) {
    const double* of_rank = all.data() + kFields * rank;
    if (of_rank[0] > report.exposed.max_s) report.most_exposed_rank = static_cast<int>(rank);
    ExposureReport::Part* const parts[kFields] = {&report.exposed, &report.bubble,
                                                  &report.transfer};
    for (size_t field = 0; field < kFields; ++field) {
      parts[field]->mean_s += of_rank[field] / static_cast<double>(size);
      parts[field]->max_s = std::max(parts[field]->max_s, of_rank[field]);
    }
  }
  return report;
}

}  // namespace trireme::engine
