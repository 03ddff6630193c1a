// A stream of what a disk holds: each of its messages is looked for on a thread of that disk, one
// look at a time, so that neither a call's thread nor other streams wait for it.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/paced_stream.h"
#include "coordinator/calls/rates.h"
#include "coordinator/disk_calls/disk_calls.h"

namespace trireme::coordinator {

// `Piece` is what a look brings. Threads: any.
template <typename Response, typename Piece, typename Wire>
class DiskStream : public PacedStream<Response, Wire> {
 public:
  // Both outlive it.
  template <typename... ForWire>
  DiskStream(DiskCalls& disks, StreamSet& streams, ForWire&&... for_wire)
      : PacedStream<Response, Wire>(streams, std::forward<ForWire>(for_wire)...),
        disks_(disks),
        streams_(streams) {}

  // The look that it has asked for has been.
  void LookAgain() override {
    const absl::MutexLock lock(&this->mutex_);
    this->Resume();
  }

 protected:
  // Calls AskDisk, or what Use may: then no disk needs to be asked for what is next.
  virtual void Ask() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mutex_) = 0;
  // Puts it into response_ and calls Write, calls Close, or does neither: there is nothing yet.
  virtual void Use(Piece piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mutex_) = 0;

  // `look` gives a StatusOr<Piece> and owns all that it touches, as of DiskCalls::Begin.
  template <typename Look>
  void AskDisk(const DiskPath& where, Look look) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mutex_) {
    const absl::Status begun =
        disks_.Begin(where, std::move(look),
                     [this, found = found_, &streams = streams_](absl::StatusOr<Piece> piece) {
                       {
                         const absl::MutexLock lock(&found->mutex);
                         found->piece.emplace(std::move(piece));
                       }
                       // It is there still: who waits does not end.
                       streams.LookAgain(this);
                     });
    if (begun.ok()) return this->Wait();
    this->Close(NotAsked(begun));
  }

 private:
  struct Found {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<Piece>> piece ABSL_GUARDED_BY(mutex);
  };

  void SendNext() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mutex_) {
    std::optional<absl::StatusOr<Piece>> piece;
    {
      const absl::MutexLock lock(&found_->mutex);
      piece.swap(found_->piece);
    }
    if (!piece) return Ask();
    if (!piece->ok()) return this->Close(piece->status());
    Use(**std::move(piece));
  }

  DiskCalls& disks_;
  StreamSet& streams_;
  const std::shared_ptr<Found> found_ = std::make_shared<Found>();
};

}  // namespace trireme::coordinator
