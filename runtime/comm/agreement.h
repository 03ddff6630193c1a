// Agreement: how all ranks of a job come to one mind beside what they compute: on votes, failures,
// texts and small tables, in the host's memory. One group of all ranks serves every agreement from
// the start of a rank to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/communicator.h"
#include "runtime/tensor/stream.h"

namespace trireme::comm {

// Of waiting for ranks that read or write: a disk may stall for minutes, and that is no dead peer.
inline constexpr std::chrono::minutes kDiskDeadline{30};

// Thread: one. Every call is collective and blocks until all ranks have made it, for `deadline` at
// most, or for the patience where that is longer: ranks may rightly be late, as after writing to a
// disk.
class Agreement {
 public:
  using Milliseconds = std::chrono::milliseconds;
  // How long the others may need that this rank has last met so long ago.
  using Patience = std::function<Milliseconds(std::chrono::nanoseconds since_met)>;

  // A group of all ranks of `fabric`, which outlives it. Collective: call it while ranks are level,
  // since a group is made within the fabric's deadline.
  static absl::StatusOr<std::unique_ptr<Agreement>> Make(Fabric& fabric, Milliseconds patience);
  // `everyone`: a group of all ranks.
  Agreement(std::unique_ptr<Communicator> everyone, Milliseconds patience);
  virtual ~Agreement() = default;

  int rank() const { return everyone_->rank(); }
  int size() const { return everyone_->size(); }
  // For operations on other memory than the host's, issued in turn with the calls here.
  Communicator& group() { return *everyone_; }
  void set_patience(Patience patience) { patience_ = std::move(patience); }
  // All ranks have just met elsewhere.
  void Met();
  std::chrono::nanoseconds SinceMet() const;

  // Whether all of them say yes.
  virtual absl::StatusOr<bool> AllAgree(bool yes, Milliseconds deadline = {});
  // The same on every rank: OK, or the lowest failing rank's failure, its message led by "rank N:
  // ". What it says is cut to 2,000 bytes. For what ranks do alone, and must have done alike. Such
  // a failure is a verdict (IsVerdict), unlike one to reach the other ranks.
  absl::Status AllOk(const absl::Status& own, Milliseconds deadline = {});
  // Rank 0's text replaces the other ranks'.
  absl::Status Share(std::string& text, Milliseconds deadline = {});
  // Each value becomes that of all ranks.
  absl::Status Reduce(std::span<double> values, ReduceOp op, Milliseconds deadline = {});
  // `root`'s bytes replace the other ranks'. The root alone is waited for.
  absl::Status Broadcast(std::span<std::byte> bytes, int root, Milliseconds deadline = {});
  // Of every rank, by rank.
  template <typename T>
  absl::StatusOr<std::vector<T>> Gather(const T& own, Milliseconds deadline = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    all[static_cast<size_t>(rank())] = own;
    RETURN_IF_ERROR(GatherBytes(std::as_writable_bytes(std::span(all)), deadline));
    return all;
  }

 private:
  // `all` holds as many bytes of each rank, this rank's at their place.
  absl::Status GatherBytes(std::span<std::byte> all, Milliseconds deadline);
  absl::Status Wait(Ticket ticket, std::chrono::nanoseconds since_met, Milliseconds deadline);

  const std::unique_ptr<Communicator> everyone_;
  const std::unique_ptr<tensor::Stream> stream_ = tensor::MakeInlineStream();
  Patience patience_;
  std::atomic<int64_t> met_ns_;
};

// Whether a failure is what AllOk was told by the ranks, whatever its code says: of a disk it may
// be the code of a lost peer.
bool IsVerdict(const absl::Status& failure);
// The rank whose failure such a verdict is; -1: it is none.
int RankOfVerdict(const absl::Status& failure);

}  // namespace trireme::comm
