// Messages by MPI, kept in a dense array for one MPI_Testsome per look; set-up by small messages
// with a deadline on a communicator of its own.
#include "runtime/comm/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/node_memory.h"
#include "runtime/tensor/memory.h"

namespace trireme::comm {

using base::Text;
namespace {

// Of each rank what of it is mapped here; an empty mapping where that cannot be reached.
class MappedNodeMemory final : public NodeMemory {
 public:
  MappedNodeMemory(std::vector<SharedMemory> parts, tensor::HugeMemory alone, int rank)
      : parts_(std::move(parts)), alone_(std::move(alone)), rank_(rank) {}
  std::span<std::byte> own() const override {
    const std::span<std::byte> shared = parts_[static_cast<size_t>(rank_)].span();
    return shared.empty() ? alone_.span() : shared;
  }
  std::byte* Of(int rank) const override { return parts_[static_cast<size_t>(rank)].span().data(); }

 private:
  const std::vector<SharedMemory> parts_;
  const tensor::HugeMemory alone_;  // where the system gives no memory to share
  const int rank_;
};

using Clock = std::chrono::steady_clock;

constexpr int kControlTag = 1;
// A waiting rank looks this often without giving up its core, then yields it this often, then
// sleeps: the other rank's answer usually comes within microseconds, but with more ranks than cores
// it needs this core to come at all.
constexpr int kSpins = 64;
constexpr int kYields = 512;
constexpr std::chrono::microseconds kNap{50};
constexpr size_t kProbeBytes = 4096;

std::string ErrorText(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

absl::Status FromMpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(Text(call, ": ", ErrorText(code)));
}

// What the members of a group must agree on, in a few bytes.
uint64_t Fingerprint(const TransportGroupSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const char c : spec.name) add(static_cast<unsigned char>(c));
  for (const int rank : spec.ranks) add(static_cast<uint64_t>(rank) + 256);
  add(spec.window_bytes);
  return hash;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm control, std::chrono::milliseconds setup_deadline)
    : control_(control), setup_deadline_(setup_deadline) {
  MPI_Comm_rank(control_, &rank_);
  MPI_Comm_size(control_, &size_);
}

absl::Status MpiTransport::Finish(MPI_Request request, const std::string& what) {
  const Clock::time_point until = Clock::now() + setup_deadline_;
  for (int round = 0;; ++round) {
    int done = 0;
    RETURN_IF_ERROR(FromMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what));
    if (done != 0) return absl::OkStatus();
    if (Clock::now() >= until) {
      return absl::DeadlineExceededError(
          Text(what, ": no answer for ", setup_deadline_.count(), " ms"));
    }
    Sleep(0, round, kNap);
  }
}

absl::Status MpiTransport::Control(Direction direction, void* data, size_t bytes, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  const int code = direction == Direction::kSend
                       ? MPI_Isend(data, count, MPI_BYTE, peer, kControlTag, control_, &request)
                       : MPI_Irecv(data, count, MPI_BYTE, peer, kControlTag, control_, &request);
  RETURN_IF_ERROR(FromMpi(code, "MPI set-up message"));
  return Finish(request,
                Text(direction == Direction::kSend ? "telling" : "waiting for", " rank ", peer));
}

// The first rank collects everybody's idea of the group and tells them whether all are the same.
absl::Status MpiTransport::Assemble(const TransportGroupSpec& spec) {
  const uint64_t own = Fingerprint(spec);
  const int first = spec.ranks[0];
  int64_t stranger = -1;
  uint64_t theirs = own;
  if (rank_ == first) {
    for (const int peer : spec.ranks.subspan(1)) {
      RETURN_IF_ERROR(Control(Direction::kRecv, &theirs, sizeof(theirs), peer));
      if (theirs != own) stranger = peer;
    }
    for (const int peer : spec.ranks.subspan(1)) {
      RETURN_IF_ERROR(Control(Direction::kSend, &stranger, sizeof(stranger), peer));
    }
  } else {
    RETURN_IF_ERROR(Control(Direction::kSend, &theirs, sizeof(theirs), first));
    RETURN_IF_ERROR(Control(Direction::kRecv, &stranger, sizeof(stranger), first));
  }
  if (stranger < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(Text("rank ", stranger,
                                         " makes another group at this point than rank ", first,
                                         "; all ranks make their common groups in the same order"));
}

// Whether the ranks are on one machine is found with a page: what a window takes is not made to be
// thrown away.
absl::StatusOr<SharedMemory> MpiTransport::ShareWindow(const TransportGroupSpec& spec) {
  ASSIGN_OR_RETURN(SharedMemory page, Share(spec.ranks, kProbeBytes));
  if (page.span().empty()) return page;
  return Share(spec.ranks, spec.window_bytes);
}

// An empty memory where one of the ranks cannot map it: then messages serve alone.
absl::StatusOr<SharedMemory> MpiTransport::Share(std::span<const int> ranks, size_t bytes) {
  const int first = ranks[0];
  const std::span<const int> others = ranks.subspan(1);
  if (rank_ != first) {
    SharedMemoryAddress address;
    RETURN_IF_ERROR(Control(Direction::kRecv, &address, sizeof(address), first));
    absl::StatusOr<SharedMemory> opened = SharedMemory::Open(address);
    uint8_t usable = opened.ok() ? 1 : 0;
    RETURN_IF_ERROR(Control(Direction::kSend, &usable, sizeof(usable), first));
    RETURN_IF_ERROR(Control(Direction::kRecv, &usable, sizeof(usable), first));
    if (usable == 0) return SharedMemory();
    opened->Populate();  // messages go through all of it
    return opened;
  }
  absl::StatusOr<SharedMemory> made = SharedMemory::Make(bytes);
  SharedMemoryAddress address = made.ok() ? made->address() : SharedMemoryAddress{};
  uint8_t usable = made.ok() ? 1 : 0;
  for (const int peer : others)
    RETURN_IF_ERROR(Control(Direction::kSend, &address, sizeof(address), peer));
  for (const int peer : others) {
    uint8_t there = 0;
    RETURN_IF_ERROR(Control(Direction::kRecv, &there, sizeof(there), peer));
    usable = usable & there;
  }
  for (const int peer : others)
    RETURN_IF_ERROR(Control(Direction::kSend, &usable, sizeof(usable), peer));
  if (usable == 0) return SharedMemory();
  made->CloseFile();
  return made;
}

absl::StatusOr<TransportGroup> MpiTransport::AddGroup(const TransportGroupSpec& spec) {
  RETURN_IF_ERROR(Assemble(spec));
  GroupEntry entry;
  entry.ranks.assign(spec.ranks.begin(), spec.ranks.end());
  if (spec.window_bytes > 0) {
    ASSIGN_OR_RETURN(entry.window, ShareWindow(spec));
  }
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm_group(control_, &world);
  MPI_Group_incl(world, static_cast<int>(spec.ranks.size()), spec.ranks.data(), &members);
  // Blocks, but all members have just been here.
  const int code = MPI_Comm_create_group(control_, members, kControlTag, &entry.comm);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  RETURN_IF_ERROR(FromMpi(code, "MPI_Comm_create_group"));
  MPI_Comm_set_errhandler(entry.comm, MPI_ERRORS_RETURN);

  TransportGroup group;
  group.id = static_cast<int>(groups_.size());
  group.window = entry.window.span();
  groups_.push_back(std::move(entry));
  for (size_t i = 0; i < spec.requests; ++i)
    free_.push_back(static_cast<int32_t>(posted_.size() + i));
  posted_.resize(posted_.size() + spec.requests);
  requests_.reserve(posted_.size());
  owners_.reserve(posted_.size());
  finished_.resize(posted_.size());
  statuses_.resize(posted_.size());
  return group;
}

absl::StatusOr<std::shared_ptr<NodeMemory>> MpiTransport::Allocate(size_t bytes) {
  absl::StatusOr<SharedMemory> made = SharedMemory::Make(std::max<size_t>(bytes, 1));
  tensor::HugeMemory alone;
  absl::Status failed;
  if (!made.ok()) {
    absl::StatusOr<tensor::HugeMemory> mapped = tensor::HugeMemory::Map(bytes);
    failed = mapped.status();
    if (mapped.ok()) alone = *std::move(mapped);
    made = SharedMemory();
  }
  // Members: after a deadline MPI may still write there.
  std::vector<SharedMemoryAddress>& addresses = allocation_.addresses;
  addresses.assign(static_cast<size_t>(size_), {});
  allocation_.own = made->address();
  MPI_Request request = MPI_REQUEST_NULL;
  RETURN_IF_ERROR(FromMpi(
      MPI_Iallgather(&allocation_.own, sizeof(SharedMemoryAddress), MPI_BYTE, addresses.data(),
                     sizeof(SharedMemoryAddress), MPI_BYTE, control_, &request),
      "MPI_Iallgather"));
  RETURN_IF_ERROR(Finish(request, "waiting for all ranks to allocate"));
  std::vector<SharedMemory> parts(addresses.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    if (auto opened = SharedMemory::Open(addresses[rank]); opened.ok())
      parts[rank] = *std::move(opened);
  }
  RETURN_IF_ERROR(FromMpi(MPI_Ibarrier(control_, &request), "MPI_Ibarrier"));
  RETURN_IF_ERROR(Finish(request, "waiting for all ranks to map"));
  RETURN_IF_ERROR(failed);
  made->CloseFile();
  parts[static_cast<size_t>(rank_)] = *std::move(made);
  return std::make_shared<MappedNodeMemory>(std::move(parts), std::move(alone), rank_);
}

Request MpiTransport::Post(const Message& message) {
  TRIREME_CHECK(!free_.empty());
  const int32_t index = free_.back();
  free_.pop_back();
  posted_[static_cast<size_t>(index)] = Posted{message, false};
  const GroupEntry& group = groups_[static_cast<size_t>(message.group)];
  const int peer = static_cast<int>(
      std::lower_bound(group.ranks.begin(), group.ranks.end(), message.peer) - group.ranks.begin());
  const int count = static_cast<int>(message.bytes);
  const int tag = static_cast<int>(message.channel);
  MPI_Request request = MPI_REQUEST_NULL;
  const bool sends = message.direction == Direction::kSend;
  const int code = sends
                       ? MPI_Isend(message.data, count, MPI_BYTE, peer, tag, group.comm, &request)
                       : MPI_Irecv(message.data, count, MPI_BYTE, peer, tag, group.comm, &request);
  if (code != MPI_SUCCESS) {
    Fail(Text(sends ? "send to" : "receive from", " rank ", message.peer, ": ", ErrorText(code)));
    return Request{index};
  }
  requests_.push_back(request);
  owners_.push_back(index);
  return Request{index};
}

bool MpiTransport::Done(Request request) {
  Posted& posted = posted_[static_cast<size_t>(request.index)];
  if (!posted.done) return false;
  posted.done = false;
  free_.push_back(request.index);
  return true;
}

absl::Status MpiTransport::Poll() {
  if (!failure_.ok() || requests_.empty()) return failure_;
  int finished = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &finished,
                                finished_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    Fail(Text("MPI_Testsome: ", ErrorText(code)));
  if (finished == MPI_UNDEFINED || !failure_.ok()) return failure_;
  for (int i = 0; i < finished; ++i) {
    const size_t at = static_cast<size_t>(finished_[static_cast<size_t>(i)]);
    Posted& posted = posted_[static_cast<size_t>(owners_[at])];
    const Message& message = posted.message;
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    const bool receives = message.direction == Direction::kRecv;
    int bytes = 0;
    if (receives) MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS &&
        status.MPI_ERROR != MPI_ERR_PENDING) {
      Fail(Text(receives ? "receive of " : "send of ", message.bytes, " bytes, rank ", message.peer,
                ", channel ", message.channel, ": ", ErrorText(status.MPI_ERROR)));
    } else if (receives && static_cast<size_t>(bytes) != message.bytes) {
      Fail(Text("a message of ", bytes, " bytes from rank ", message.peer, " on channel ",
                message.channel, " meets a receive of ", message.bytes, " bytes"));
    } else {
      posted.done = true;
    }
  }
  // Finished requests are null now; the order of the rest is of no matter.
  for (size_t i = 0; i < requests_.size();) {
    if (requests_[i] != MPI_REQUEST_NULL) {
      ++i;
      continue;
    }
    requests_[i] = requests_.back();
    owners_[i] = owners_.back();
    requests_.pop_back();
    owners_.pop_back();
  }
  return failure_;
}

void MpiTransport::Sleep(uint64_t, int idle_rounds, std::chrono::microseconds at_most) {
  if (idle_rounds < kSpins) return;
  if (idle_rounds < kYields) {
    sched_yield();
    return;
  }
  std::this_thread::sleep_for(std::min(kNap, at_most));
}

void MpiTransport::Withdraw(int group) {
  for (size_t i = 0; i < requests_.size();) {
    const int32_t owner = owners_[i];
    const Message& message = posted_[static_cast<size_t>(owner)].message;
    if (group >= 0 && message.group != group) {
      ++i;
      continue;
    }
    if (message.direction == Direction::kRecv) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
    free_.push_back(owner);
    requests_[i] = requests_.back();
    owners_[i] = owners_.back();
    requests_.pop_back();
    owners_.pop_back();
  }
}

void MpiTransport::RemoveGroup(int group) {
  Withdraw(group);
  // The communicator is freed in Close: freeing is collective.
  groups_[static_cast<size_t>(group)].window = SharedMemory();
}

void MpiTransport::Fail(const std::string& what) {
  if (failure_.ok()) failure_ = absl::UnavailableError(what);
}

void MpiTransport::Abort(const absl::Status& cause) {
  if (failure_.ok()) failure_ = cause;
  Withdraw(-1);
}

absl::Status MpiTransport::Close() {
  RETURN_IF_ERROR(failure_);
  MPI_Request barrier = MPI_REQUEST_NULL;
  RETURN_IF_ERROR(FromMpi(MPI_Ibarrier(control_, &barrier), "MPI_Ibarrier"));
  RETURN_IF_ERROR(Finish(barrier, "waiting for all ranks to close"));
  for (GroupEntry& group : groups_) MPI_Comm_free(&group.comm);
  groups_.clear();
  MPI_Comm_free(&control_);
  return FromMpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace trireme::comm
