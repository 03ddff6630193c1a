// A rank's groups: checked and made here, moved together, poisoned together.
#include "runtime/comm/message_fabric.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/coded_message.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/group_communicator.h"
#include "runtime/comm/window.h"

namespace trireme::comm {

using base::Text;
namespace {

// Bytes; with smaller ones, a rank that adds would read as much of counters as of pieces. With the
// window of ConnectMpi that is 512 ranks of a machine in one group.
constexpr size_t kSmallestPiece = 512;

absl::Status CheckRanks(std::span<const int> ranks, std::string_view name, int rank, int size) {
  const auto fault = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        Text("group '", name, "' of ranks ", NameRanks(ranks), ": ", what));
  };
  if (ranks.empty()) return fault("has no rank");
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size) return fault(Text("the job has ranks 0 to ", size - 1));
    if (i > 0 && ranks[i] <= ranks[i - 1]) return fault("ranks must ascend, each once");
  }
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
    return fault(Text("made on rank ", rank, ", which is not in it"));
  }
  return absl::OkStatus();
}

}  // namespace

void FabricState::Poison(const absl::Status& cause) {
  if (!failure.ok()) return;
  failure = cause;
  transport->Abort(cause);
  transport->Wake(transport->rank());
}

bool FabricState::Progress() {
  if (!failure.ok()) return false;
  if (absl::Status lost = transport->Poll(); !lost.ok()) {
    Poison(lost);
    return false;
  }
  bool moved = false;
  for (GroupCommunicator* group : groups) {
    if (failure.ok()) moved = group->AdvanceAll() || moved;
  }
  return moved;
}

MessageFabric::MessageFabric(std::unique_ptr<Transport> transport, FabricOptions options)
    : state_(std::make_shared<FabricState>(std::move(transport))), options_(options) {
  TRIREME_CHECK(options.operations > 0 && options.lanes > 0 && options.staging_bytes >= (64 << 10));
  // Collectives under way together have channels of their own.
  TRIREME_CHECK(options.lanes <= kCollectiveChannelCount);
}

MessageFabric::~MessageFabric() = default;

absl::StatusOr<std::unique_ptr<Communicator>> MessageFabric::Group(std::span<const int> ranks,
                                                                   std::string_view name,
                                                                   const CodingRoom& coding) {
  RETURN_IF_ERROR(CheckRanks(ranks, name, rank(), size()));
  TransportGroupSpec spec;
  spec.ranks = ranks;
  spec.name = name;
  const int group_size = static_cast<int>(ranks.size());
  FabricOptions options = options_;
  options.coding.collective_bytes =
      std::max(options.coding.collective_bytes, coding.collective_bytes);
  options.coding.messages = std::max(options.coding.messages, coding.messages);
  const size_t coding_bytes = options.coding.collective_bytes;
  const CodedRoom coded = CodedRoomFor(group_size, coding_bytes);
  if (coding_bytes > 0 && coded.piece_values == 0) {
    return absl::InvalidArgumentError(Text("group '", name, "' of ", group_size,
                                           " ranks: CodingRoom::collective_bytes is ", coding_bytes,
                                           "; expected at least ", LeastCodedBytes(group_size)));
  }
  spec.requests = options_.operations + options_.lanes * Lane::SlotsFor(group_size) +
                  (coding_bytes > 0 ? options_.lanes * coded.requests : 0) +
                  CodedMessages::requests(options.coding.messages);
  const size_t piece_bytes = options_.window_bytes / (Window::kDepth * ranks.size());
  if (ranks.size() > 1 && piece_bytes >= kSmallestPiece) {
    spec.window_bytes = Window::BytesFor(static_cast<int>(ranks.size()), piece_bytes);
  }
  absl::StatusOr<TransportGroup> made;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->failure.ok()) return state_->failure;
    made = state_->transport->AddGroup(spec);
    if (!made.ok()) return base::Annotate(made.status(), Text("group '", name, "'"));
  }
  comm::Group group;
  group.transport = state_->transport.get();
  group.memories = &state_->memories;
  group.id = made->id;
  group.ranks.assign(ranks.begin(), ranks.end());
  group.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  return std::make_unique<GroupCommunicator>(state_, std::move(group), made->window, options, name);
}

absl::StatusOr<std::shared_ptr<NodeMemory>> MessageFabric::Allocate(size_t bytes) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->failure.ok()) return state_->failure;
  auto memory = state_->transport->Allocate(bytes);
  // It has its number also where it failed: the others may have it.
  state_->memories.Add(memory.ok() ? *memory : nullptr);
  return memory;
}

void MessageFabric::WatchWaits(WaitWatcher* watcher) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->waits = watcher;
}

absl::Status MessageFabric::Close() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->failure.ok()) return state_->failure;
  if (!state_->groups.empty()) {
    return absl::FailedPreconditionError(Text("Close with ", state_->groups.size(),
                                              " groups alive; destroy the communicators first"));
  }
  return state_->transport->Close();
}

void MessageFabric::Abort(const absl::Status& cause) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->Poison(cause);
}

}  // namespace trireme::comm
