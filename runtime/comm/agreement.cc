#include "runtime/comm/agreement.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "runtime/base/text.h"

namespace trireme::comm {

namespace {

constexpr absl::string_view kVerdict = "trireme.verdict";  // payload of a status

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agreement>> Agreement::Make(Fabric& fabric, Milliseconds patience) {
  std::vector<int> all(static_cast<size_t>(fabric.size()));
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  ASSIGN_OR_RETURN(auto everyone, fabric.Group(all, "world"));
  return std::make_unique<Agreement>(std::move(everyone), patience);
}

Agreement::Agreement(std::unique_ptr<Communicator> everyone, Milliseconds patience)
    : everyone_(std::move(everyone)),
      patience_([patience](std::chrono::nanoseconds) { return patience; }),
      met_ns_(NowNs()) {}

void Agreement::Met() { met_ns_ = NowNs(); }

std::chrono::nanoseconds Agreement::SinceMet() const {
  return std::chrono::nanoseconds(NowNs() - met_ns_);
}

absl::Status Agreement::Wait(Ticket ticket, std::chrono::nanoseconds since_met,
                             Milliseconds deadline) {
  return everyone_->WaitHost(ticket, std::max(deadline, patience_(since_met)));
}

absl::Status Agreement::Reduce(std::span<double> values, ReduceOp op, Milliseconds deadline) {
  RETURN_IF_ERROR(Wait(
      everyone_->AllReduce(values.data(), std::ssize(values), tensor::DType::kF64, op, *stream_),
      SinceMet(), deadline));
  Met();
  return absl::OkStatus();
}

absl::Status Agreement::Broadcast(std::span<std::byte> bytes, int root, Milliseconds deadline) {
  // The root was heard of at the last broadcast.
  return Wait(everyone_->Broadcast(bytes, root, *stream_), {}, deadline);
}

absl::Status Agreement::GatherBytes(std::span<std::byte> all, Milliseconds deadline) {
  std::vector<int64_t> offsets;
  for (int rank = 0; rank <= size(); ++rank) {
    offsets.push_back(std::ssize(all) / size() * rank);
  }
  RETURN_IF_ERROR(Wait(everyone_->AllGather({all.data(), offsets, tensor::DType::kU8}, *stream_),
                       SinceMet(), deadline));
  Met();
  return absl::OkStatus();
}

absl::StatusOr<bool> Agreement::AllAgree(bool yes, Milliseconds deadline) {
  double against = yes ? 0 : 1;
  RETURN_IF_ERROR(Reduce({&against, 1}, ReduceOp::kSum, deadline));
  return against == 0;
}

absl::Status Agreement::AllOk(const absl::Status& own, Milliseconds deadline) {
  double key = own.ok() ? 0 : size() - rank();
  RETURN_IF_ERROR(Reduce({&key, 1}, ReduceOp::kMax, deadline));
  if (key == 0) return absl::OkStatus();
  const int failed = size() - static_cast<int>(key);
  struct {
    int32_t code = 0;
    std::array<char, 2000> text{};
  } said;
  said.code = static_cast<int32_t>(own.code());
  own.message().copy(said.text.data(), said.text.size() - 1);
  RETURN_IF_ERROR(Broadcast(std::as_writable_bytes(std::span(&said, 1)), failed));
  absl::Status verdict(static_cast<absl::StatusCode>(said.code),
                       base::Text("rank ", failed, ": ", said.text.data()));
  verdict.SetPayload(kVerdict, absl::Cord(base::Text(failed)));
  return verdict;
}

absl::Status Agreement::Share(std::string& text, Milliseconds deadline) {
  // A broadcast waits for its root alone; the others may be late too.
  if (deadline > Milliseconds(0)) RETURN_IF_ERROR(AllAgree(true, deadline).status());
  uint64_t bytes = text.size();
  RETURN_IF_ERROR(Broadcast(std::as_writable_bytes(std::span(&bytes, 1)), 0));
  text.resize(bytes);
  return Broadcast(std::as_writable_bytes(std::span(text)), 0);
}

bool IsVerdict(const absl::Status& failure) { return failure.GetPayload(kVerdict).has_value(); }

int RankOfVerdict(const absl::Status& failure) {
  const auto rank = failure.GetPayload(kVerdict);
  int number = -1;
  return rank && absl::SimpleAtoi(std::string(*rank), &number) ? number : -1;
}

}  // namespace trireme::comm
