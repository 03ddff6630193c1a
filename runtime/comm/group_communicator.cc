// Issue, start, advance and await the operations of one group; see the header for the order of
// starts.
#include "runtime/comm/group_communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/node_memory.h"
#include "runtime/comm/window.h"
#include "runtime/tensor/memory_gate.h"

namespace trireme::comm {

using base::Text;
namespace {

// A ticket is (generation << kPlaceBits) | place. Refused calls get the last place, which no pool
// reaches.
constexpr int kPlaceBits = 16;
constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;
constexpr uint64_t kRefused = kPlaceMask;

// While an operation waits for a stream nobody wakes us: look again after this long.
constexpr std::chrono::microseconds kStreamPoll{100};
// Bounds one sleep, should a wake-up be lost to a bug: a wait may be slow then, but it ends.
constexpr std::chrono::microseconds kLongestSleep{50000};
// At what is in flight, of a wait before it reads the clock.
constexpr int kLooks = 16;
// When a wait is told of at the earliest, and how often. One that may last for minutes, as for a
// disk, is given a fiftieth of its deadline.
constexpr std::chrono::milliseconds kVain{1000};
constexpr int kVainShare = 50;

constexpr size_t kNamedRanks = 16;  // each by its number

}  // namespace

std::string_view NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
  }
  return "?";
}

std::string NameRanks(std::span<const int> ranks) {
  if (ranks.size() <= kNamedRanks) return absl::StrJoin(ranks, ",");
  return Text(ranks[0], ",", ranks[1], " ... ", ranks.back(), ", ", ranks.size(), " ranks");
}

GroupCommunicator::GroupCommunicator(std::shared_ptr<FabricState> state, comm::Group group,
                                     std::span<std::byte> window, const FabricOptions& options,
                                     std::string_view name)
    : state_(std::move(state)),
      group_(std::move(group)),
      name_(name),
      operations_(options.operations),
      coding_bytes_(options.coding.collective_bytes),
      coded_messages_(&group_, options.coding.messages) {
  TRIREME_CHECK(options.operations < kRefused);
  if (!window.empty()) window_ = std::make_unique<Window>(window, group_.rank, group_.size());
  free_.reserve(options.operations);
  active_.reserve(options.operations);
  awaited_.reserve(Lane::SlotsFor(group_.size()) + static_cast<size_t>(group_.size()));
  for (size_t place = options.operations; place > 0; --place)
    free_.push_back(static_cast<uint32_t>(place - 1));
  for (size_t lane = 0; lane < options.lanes; ++lane) {
    runners_.push_back(std::make_unique<CollectiveRunner>(&group_, options.staging_bytes,
                                                          coding_bytes_, window_.get()));
    idle_runners_.push_back(runners_.back().get());
  }
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->groups.push_back(this);
}

GroupCommunicator::~GroupCommunicator() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  std::erase(state_->groups, this);
  state_->transport->RemoveGroup(group_.id);
}

Ticket GroupCommunicator::Refuse(const absl::Status& cause) {
  state_->Poison(cause);
  return Ticket{kRefused};
}

Ticket GroupCommunicator::Issue(Operation& operation, const OperationOptions& options) {
  operation.done_ns = options.done_ns;
  operation.reports = options.coding != nullptr;
  if (operation.reports) operation.coding = *options.coding;
  if (!state_->failure.ok()) return Ticket{kRefused};
  if (const absl::Status fault = CheckCoding(operation); !fault.ok()) return Refuse(fault);
  if (free_.empty()) {
    return Refuse(absl::ResourceExhaustedError(Text(
        "group '", name_, "': ", operations_.size(), " operations in flight, and one more issued; ",
        "wait for some first, or make the fabric with more FabricOptions::operations")));
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  operation.generation = operations_[place].generation;
  operation.number = operation.kind == Kind::kCollective ? ++collectives_ : ++messages_;
  operation.ready = options.stream->Record();
  operation.gate = options.stream->gate();
  operations_[place] = operation;
  if (operation.coded()) operations_[place].call.coding = &operations_[place].coding;
  active_.push_back(place);
  const Ticket ticket{operation.generation << kPlaceBits | place};
  if (Advance(operations_[place])) {
    Finish(place);
    active_.pop_back();
  }
  return ticket;
}

void GroupCommunicator::Finish(uint32_t place) {
  Operation& operation = operations_[place];
  // MayStart reads active_ up to the operation asked for: a finished one left in it counts as
  // started.
  operation.started = true;
  if (operation.inside) operation.gate->Leave();
  operation.generation++;
  if (operation.done_ns != nullptr) {
    *operation.done_ns =
        std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  free_.push_back(place);
}

void GroupCommunicator::FailBy(const Operation& operation, const absl::Status& fault) {
  state_->Poison(base::Annotate(fault, Describe(operation)));
}

Ticket GroupCommunicator::IssueMessage(Kind kind, std::byte* data, size_t bytes, int peer,
                                       uint32_t channel, const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (peer < 0 || peer >= size() || channel >= kCallerChannels) {
    return Refuse(absl::InvalidArgumentError(
        Text("group '", name_, "': message with rank ", peer, " on channel ", channel,
             "; ranks are 0 to ", size() - 1, ", channels below ", kCallerChannels)));
  }
  Operation operation;
  operation.kind = kind;
  operation.data = data;
  operation.bytes = bytes;
  operation.peer = peer;
  operation.channel = channel;
  return Issue(operation, options);
}

Ticket GroupCommunicator::Send(std::span<const std::byte> data, int peer, uint32_t channel,
                               const OperationOptions& options) {
  // Only read: a Transport takes one kind of pointer for both directions.
  return IssueMessage(Kind::kSend, const_cast<std::byte*>(data.data()), data.size(), peer, channel,
                      options);
}

Ticket GroupCommunicator::Recv(std::span<std::byte> data, int peer, uint32_t channel,
                               const OperationOptions& options) {
  return IssueMessage(Kind::kRecv, data.data(), data.size(), peer, channel, options);
}

Ticket GroupCommunicator::IssueCollective(const CollectiveCall& call,
                                          const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  const auto fault = [&](std::string_view what) {
    return Refuse(
        absl::InvalidArgumentError(Text(NameOf(call.kind), " on group '", name_, "': ", what)));
  };
  const bool adds =
      call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter;
  if (adds && call.dtype == tensor::DType::kU8)
    return fault("u8 cannot be summed; use f64, f32, bf16 or i32");
  if (call.count < 0) return fault(Text(call.count, " elements"));
  if (call.kind == CollectiveKind::kBroadcast && (call.root < 0 || call.root >= size())) {
    return fault(Text("root ", call.root, ", expected 0 to ", size() - 1));
  }
  if (!call.offsets.empty() && !std::is_sorted(call.offsets.begin(), call.offsets.end())) {
    return fault("offsets must not descend");
  }
  Operation operation;
  operation.kind = Kind::kCollective;
  operation.call = call;
  // Not when it starts: by then another rank may have made the first, and would choose otherwise.
  operation.call.node_memory = group_.memories->any();
  return Issue(operation, options);
}

Ticket GroupCommunicator::AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                                    const OperationOptions& options) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.data = static_cast<std::byte*>(data);
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  return IssueCollective(call, options);
}

Ticket GroupCommunicator::IssueSharded(CollectiveKind kind, const Sharded& sharded,
                                       const OperationOptions& options) {
  if (sharded.offsets.size() != static_cast<size_t>(size()) + 1) {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return Refuse(absl::InvalidArgumentError(
        Text(NameOf(kind), " on group '", name_, "': ", sharded.offsets.size(),
             " offsets, expected ", size() + 1, " (one per rank and the end)")));
  }
  CollectiveCall call;
  call.kind = kind;
  call.data = static_cast<std::byte*>(sharded.data);
  call.count = sharded.offsets.back() - sharded.offsets.front();
  call.dtype = sharded.dtype;
  call.offsets = sharded.offsets;
  call.share = static_cast<std::byte*>(sharded.share);
  return IssueCollective(call, options);
}

Ticket GroupCommunicator::ReduceScatter(const Sharded& sharded, const OperationOptions& options) {
  return IssueSharded(CollectiveKind::kReduceScatter, sharded, options);
}

Ticket GroupCommunicator::AllGather(const Sharded& sharded, const OperationOptions& options) {
  return IssueSharded(CollectiveKind::kAllGather, sharded, options);
}

Ticket GroupCommunicator::Broadcast(std::span<std::byte> data, int root,
                                    const OperationOptions& options) {
  CollectiveCall call;
  call.kind = CollectiveKind::kBroadcast;
  call.data = data.data();
  call.count = static_cast<int64_t>(data.size());
  call.dtype = tensor::DType::kU8;
  call.root = root;
  return IssueCollective(call, options);
}

// Ready, and nothing issued before it in the same order is still to start.
bool GroupCommunicator::MayStart(const Operation& operation) const {
  if (!operation.ready.Ready()) return false;
  for (const uint32_t place : active_) {
    const Operation& other = operations_[place];
    if (&other == &operation) break;
    if (other.started || other.kind != operation.kind) continue;
    if (operation.kind == Kind::kCollective) return false;
    if (other.peer == operation.peer && other.channel == operation.channel) return false;
  }
  if (operation.kind == Kind::kSend && operation.coded()) {
    return !coded_messages_.idle_sends.empty();
  }
  if (operation.kind != Kind::kCollective) return true;
  if (idle_runners_.empty()) return false;
  return !(window_busy_ && idle_runners_.back()->WantsWindow(operation.call));
}

void GroupCommunicator::PostPiece(Operation& operation) {
  Message message;
  message.direction = operation.kind == Kind::kSend ? Direction::kSend : Direction::kRecv;
  message.data = operation.data + operation.posted_bytes;
  message.bytes =
      std::min(operation.bytes - operation.posted_bytes, state_->transport->max_message_bytes());
  message.peer = group_.ranks[static_cast<size_t>(operation.peer)];
  message.group = group_.id;
  message.channel = operation.channel;
  operation.request = state_->transport->Post(message);
  operation.posted_bytes += message.bytes;
  operation.started = operation.posted_bytes == operation.bytes;
}

bool GroupCommunicator::AdvanceMessage(Operation& operation) {
  if (operation.reports && operation.start_ns == 0) operation.start_ns = CodecTimer::NowNs();
  if (operation.coded()) {
    return operation.kind == Kind::kSend ? AdvanceCodedSend(operation)
                                         : AdvanceCodedRecv(operation);
  }
  if (!operation.request.valid()) PostPiece(operation);
  while (state_->transport->Done(operation.request)) {
    ++operation.moved;
    operation.request = Request{};
    if (operation.posted_bytes == operation.bytes) {
      CodingReport report;
      if (operation.kind == Kind::kSend) {
        report.plain_bytes = report.coded_bytes = static_cast<int64_t>(operation.bytes);
      }
      if (operation.reports) FillReport(operation, report);
      return true;
    }
    PostPiece(operation);
  }
  return false;
}

bool GroupCommunicator::AdvanceCollective(Operation& operation) {
  if (operation.runner == nullptr) {
    // Not at issue: a task of the stream may write the scales until the operation starts.
    if (operation.coded()) {
      const absl::Status runs = CheckRuns(operation.coding.runs, operation.call.count);
      if (!runs.ok()) {
        FailBy(operation, runs);
        return false;
      }
    }
    operation.runner = idle_runners_.back();
    idle_runners_.pop_back();
    operation.in_window = operation.runner->WantsWindow(operation.call);
    window_busy_ = window_busy_ || operation.in_window;
    operation.started = true;
    if (operation.reports) operation.start_ns = CodecTimer::NowNs();
    // The number is in the channel, so that collectives under way together cannot take each other's
    // messages.
    operation.runner->Start(operation.call, CollectiveChannel(operation.number));
  }
  const bool done = operation.runner->Advance(&operation.moved);
  if (operation.in_window && (done || !operation.runner->in_window()))
    window_busy_ = operation.in_window = false;
  if (!done) {
    const absl::Status fault = operation.runner->fault();
    if (!fault.ok()) FailBy(operation, fault);
    return false;
  }
  if (operation.reports) FillReport(operation, operation.runner->report());
  idle_runners_.push_back(operation.runner);
  return true;
}

bool GroupCommunicator::Advance(Operation& operation) {
  const bool begun = operation.request.valid() || operation.runner != nullptr ||
                     operation.coded_send != nullptr || operation.bound_came;
  if (!begun && !MayStart(operation)) return false;
  if (operation.gate != nullptr && !std::exchange(operation.inside, true)) operation.gate->Enter();
  return operation.kind == Kind::kCollective ? AdvanceCollective(operation)
                                             : AdvanceMessage(operation);
}

bool GroupCommunicator::AdvanceAll() {
  bool any_done = false;
  bool any_moved = false;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    const uint32_t place = active_[i];
    const uint64_t moved_before = operations_[place].moved;
    if (!state_->failure.ok() || !Advance(operations_[place])) {
      any_moved = any_moved || operations_[place].moved != moved_before;
      active_[kept++] = place;
      continue;
    }
    Finish(place);
    any_done = true;
  }
  active_.resize(kept);
  if (any_done) state_->transport->Wake(state_->transport->rank());
  return any_done || any_moved;
}

const GroupCommunicator::Operation* GroupCommunicator::Find(Ticket ticket) const {
  if (ticket.id == 0 || ticket.id == kRefused) return nullptr;
  const Operation& operation = operations_[ticket.id & kPlaceMask];
  return operation.generation == ticket.id >> kPlaceBits ? &operation : nullptr;
}

bool GroupCommunicator::Test(Ticket ticket) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (Find(ticket) != nullptr) state_->Progress();
  return Find(ticket) == nullptr || !state_->failure.ok();
}

absl::Status GroupCommunicator::WaitHost(Ticket ticket, std::chrono::milliseconds deadline) {
  bool told = false;
  absl::Status status = Await(ticket, deadline, &told);
  if (told) {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->waits != nullptr) state_->waits->WaitIsOver();
  }
  return status;
}

absl::Status GroupCommunicator::Await(Ticket ticket, std::chrono::milliseconds deadline,
                                      bool* told) {
  using Clock = std::chrono::steady_clock;
  deadline = std::min<std::chrono::milliseconds>(
      deadline, std::chrono::hours(24 * 365));  // sums must not overflow
  base::Silence silence(Clock::time_point{});
  Clock::time_point tell;
  uint64_t seen = 0;
  int idle_rounds = 0;
  for (bool first = true;; first = false) {
    const uint64_t epoch = state_->transport->Epoch();
    bool on_stream = false;
    bool moved = false;
    Clock::time_point now;
    {
      std::lock_guard<std::mutex> lock(state_->mutex);
      if (ticket.id == kRefused) return state_->failure;
      // Several looks at a time: an answer that comes at once is not kept by locks and clocks.
      for (int look = 0; look < kLooks && !moved && Find(ticket) != nullptr; ++look)
        moved = state_->Progress();
      const Operation* operation = Find(ticket);
      if (operation == nullptr) return absl::OkStatus();
      if (!state_->failure.ok()) return state_->failure;
      now = Clock::now();
      if (first) {
        silence = base::Silence(now);
        tell = now + std::max(kVain, deadline / kVainShare);
      }
      tell += silence.Look(now);
      if (operation->moved != seen) {
        seen = operation->moved;
        silence.Break();
        tell = now + std::max(kVain, deadline / kVainShare);
        idle_rounds = 0;
        if (*told && state_->waits != nullptr) state_->waits->WaitIsOver();
        *told = false;
      } else if (silence.length() >= deadline) {
        state_->Poison(Overdue(*operation, deadline));
        return state_->failure;
      } else if (now >= tell && state_->waits != nullptr && operation->ready.Ready()) {
        TellVainWait(*operation, silence.since());
        *told = true;
        tell = now + kVain;
      }
      for (const GroupCommunicator* group : state_->groups)
        on_stream = on_stream || group->HasUnstarted();
    }
    if (moved) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(deadline - silence.length());
    const auto at_most =
        std::min(left + std::chrono::microseconds(1), on_stream ? kStreamPoll : kLongestSleep);
    state_->transport->Sleep(epoch, idle_rounds++, at_most);
  }
}

bool GroupCommunicator::HasUnstarted() const {
  return std::any_of(active_.begin(), active_.end(),
                     [this](uint32_t place) { return !operations_[place].started; });
}

void GroupCommunicator::WaitOn(Ticket ticket, tensor::Stream& stream,
                               std::chrono::milliseconds deadline) {
  if (ticket.id == 0) return;
  // WaitHost keeps a failure: it poisons, and status() returns the cause.
  stream.IssueAside(tensor::Task([this, ticket, deadline] { (void)WaitHost(ticket, deadline); }));
}

void GroupCommunicator::Progress() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->Progress();
}

absl::Status GroupCommunicator::status() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->failure;
}

void GroupCommunicator::Abort(absl::Status cause) {
  TRIREME_CHECK(!cause.ok());
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->Poison(cause);
}

std::string GroupCommunicator::Describe(const Operation& operation) const {
  const std::string group = Text("group '", name_, "' (ranks ", NameRanks(group_.ranks), ")");
  if (operation.kind == Kind::kCollective) {
    return Text(NameOf(operation.call.kind), " #", operation.number, " on ", group);
  }
  return Text(operation.kind == Kind::kSend ? "Send" : "Recv", " #", operation.number, " of ",
              operation.bytes, " bytes on channel ", operation.channel, " of ", group);
}

const std::vector<int>& GroupCommunicator::Awaited(const Operation& operation) {
  std::vector<int>& ranks = awaited_;
  ranks.clear();
  if (operation.kind == Kind::kCollective && operation.runner != nullptr)
    operation.runner->AddAwaited(&ranks);
  const bool message_under_way = operation.request.valid() || operation.coded_send != nullptr ||
                                 operation.coded_recv != nullptr;
  if (operation.kind != Kind::kCollective && message_under_way) ranks.push_back(operation.peer);
  for (int& rank : ranks) rank = group_.ranks[static_cast<size_t>(rank)];
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// One that has not begun waits for those that the first operation before it waits for.
void GroupCommunicator::TellVainWait(const Operation& operation,
                                     std::chrono::steady_clock::time_point since) {
  const std::vector<int>& ranks = Awaited(operation);
  for (size_t i = 0; i < active_.size() && ranks.empty(); ++i) {
    if (&operations_[active_[i]] == &operation) break;
    Awaited(operations_[active_[i]]);
  }
  state_->waits->WaitsInVain({.since = since,
                              .peer = ranks.empty() ? -1 : ranks.front(),
                              .awaited = static_cast<int>(ranks.size()),
                              .collective = operation.kind == Kind::kCollective,
                              .group = name_});
}

absl::Status GroupCommunicator::Overdue(const Operation& operation,
                                        std::chrono::milliseconds deadline) {
  std::string awaited = "its own stream";
  const std::vector<int>& ranks = Awaited(operation);
  if (!ranks.empty()) {
    awaited = Text(ranks.size() == 1 ? "rank " : "ranks ", NameRanks(ranks));
  } else if (operation.ready.Ready()) {
    awaited = "operations issued before it";
  }
  return absl::DeadlineExceededError(Text(Describe(operation), ": no progress for ",
                                          deadline.count(), " ms, waiting for ", awaited));
}

}  // namespace trireme::comm
