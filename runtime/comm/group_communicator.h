// GroupCommunicator: tickets, streams, order and deadlines over a Transport. An operation is a
// place in a pool fixed at creation; its ticket is (generation, place), so a place that has moved
// on to a later generation means "done, ok". Start order: messages of one (peer, direction,
// channel) are posted in the order of issue, collectives of a group start in the order of issue,
// everything else starts as soon as its stream is ready.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/coded_message.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/message_fabric.h"

namespace trireme::comm {

// Ranks for a message: each of a few ("0,2,5"), of many only their ends and number ("0,1 ... 3071,
// 3072 ranks").
std::string NameRanks(std::span<const int> ranks);
std::string_view NameOf(CollectiveKind kind);

class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(std::shared_ptr<FabricState> state, comm::Group group,
                    std::span<std::byte> window, const FabricOptions& options,
                    std::string_view name);
  ~GroupCommunicator() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }

  Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override;
  Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override;
  Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                   const OperationOptions& options) override;
  Ticket ReduceScatter(const Sharded& sharded, const OperationOptions& options) override;
  Ticket AllGather(const Sharded& sharded, const OperationOptions& options) override;
  Ticket Broadcast(std::span<std::byte> data, int root, const OperationOptions& options) override;
  bool SumsInWindow() const override { return window_ != nullptr && !leaves_window_; }
  void LeaveWindow() override {
    std::lock_guard<std::mutex> lock(state_->mutex);
    leaves_window_ = true;
    for (const auto& runner : runners_) runner->LeaveWindow();
  }

  bool Test(Ticket ticket) override;
  absl::Status WaitHost(Ticket ticket, std::chrono::milliseconds deadline) override;
  void WaitOn(Ticket ticket, tensor::Stream& stream, std::chrono::milliseconds deadline) override;
  void Progress() override;
  absl::Status status() const override;
  void Abort(absl::Status cause) override;

  // Moves this group's operations; true if any moved. Under the fabric's lock.
  bool AdvanceAll();
  // True while an operation waits for its stream or its turn. Under the fabric's lock.
  bool HasUnstarted() const;

 private:
  enum class Kind : uint8_t { kSend, kRecv, kCollective };
  struct Operation {
    uint64_t generation = 1;
    Kind kind = Kind::kSend;
    bool started = false;  // everything of it is posted, later ones of the lane may start
    tensor::Event ready;   // of the stream, recorded at issue
    tensor::MemoryGate* gate = nullptr;  // of the stream's device: open while it moves bytes there
    bool inside = false;                 // it is
    uint64_t number = 0;                 // of the group's collectives, or of its messages
    uint64_t moved = 0;                  // counts up when a piece has moved
    CollectiveCall call;                 // collectives
    CollectiveRunner* runner = nullptr;
    bool in_window = false;
    std::byte* data = nullptr;  // messages
    size_t bytes = 0;
    size_t posted_bytes = 0;
    int peer = 0;
    uint32_t channel = 0;
    Request request;
    int64_t* done_ns = nullptr;  // where the time of its end goes
    bool reports = false;        // `coding` was given
    Coding coding;
    int64_t start_ns = 0;    // of the transfer, if it reports
    double coded_bound = 0;  // of a coded message that comes, once it came
    bool bound_came = false;
    CodedSend* coded_send = nullptr;
    CodedRecv* coded_recv = nullptr;

    bool coded() const { return reports && coding.enabled; }
  };

  Ticket Issue(Operation& operation, const OperationOptions& options);
  Ticket IssueMessage(Kind kind, std::byte* data, size_t bytes, int peer, uint32_t channel,
                      const OperationOptions& options);
  Ticket IssueCollective(const CollectiveCall& call, const OperationOptions& options);
  Ticket IssueSharded(CollectiveKind kind, const Sharded& sharded, const OperationOptions& options);
  Ticket Refuse(const absl::Status& cause);

  bool Advance(Operation& operation);  // true once done
  void Finish(uint32_t place);
  bool AdvanceMessage(Operation& operation);
  bool AdvanceCodedSend(Operation& operation);
  bool AdvanceCodedRecv(Operation& operation);
  // Why the operation cannot be coded as asked, or ok.
  absl::Status CheckCoding(const Operation& operation) const;
  void FillReport(const Operation& operation, CodingReport report) const;
  // Damage from a peer ends everything.
  void FailBy(const Operation& operation, const absl::Status& fault);
  bool AdvanceCollective(Operation& operation);
  bool MayStart(const Operation& operation) const;
  void PostPiece(Operation& operation);

  // Null once the ticket's operation is done.
  const Operation* Find(Ticket ticket) const;
  // WaitHost without the word that a wait told of is over; `told`: there was one.
  absl::Status Await(Ticket ticket, std::chrono::milliseconds deadline, bool* told);
  // Ranks of the whole job that the operation itself waits for, ascending; until the next call.
  const std::vector<int>& Awaited(const Operation& operation);
  void TellVainWait(const Operation& operation, std::chrono::steady_clock::time_point since);
  absl::Status Overdue(const Operation& operation, std::chrono::milliseconds deadline);
  std::string Describe(const Operation& operation) const;

  std::shared_ptr<FabricState> state_;
  comm::Group group_;
  std::string name_;
  std::unique_ptr<Window> window_;
  bool leaves_window_ = false;  // of the thread that issues
  // Below: guarded by state_->mutex.
  std::vector<Operation> operations_;  // the pool
  std::vector<uint32_t> free_;         // places of it
  std::vector<uint32_t> active_;       // in order of issue
  std::vector<std::unique_ptr<CollectiveRunner>> runners_;
  std::vector<CollectiveRunner*> idle_runners_;
  bool window_busy_ = false;
  uint64_t collectives_ = 0;  // issued so far
  uint64_t messages_ = 0;
  std::vector<int> awaited_;  // of Awaited, which allocates nothing
  const size_t coding_bytes_;
  CodedMessages coded_messages_;
};

}  // namespace trireme::comm
