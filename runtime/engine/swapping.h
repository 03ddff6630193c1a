// Swapping: what lies outside of the arena while it is not used, and the stream that moves it.
// Copies run beside the operators; events order the two.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/training_state.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/swap_file.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

// Threads: the engine's, but for what is said to run on streams.
class Swapping {
 public:
  struct Options {
    tensor::SwapFolder folder;  // of the file
    // Silence of the disk, where something waits for it.
    std::chrono::milliseconds deadline{60000};
    // As Device::MakeStream's.
    std::function<void()> while_waiting;
  };
  using Places = std::array<std::unique_ptr<tensor::DeviceMemory>, v1::PoolPlace_ARRAYSIZE>;

  // Takes the room that the stage wants of the machine and of the disk. ResourceExhausted with the
  // bytes where there is not so much. `device` outlives it.
  static absl::StatusOr<std::unique_ptr<Swapping>> Make(const v1::StagePlan& stage,
                                                        tensor::Device& device, Options options);
  // A thread that the disk holds cannot be ended, so whoever owns this must then let it be, with
  // the memory that is copied and the stream that is followed.
  bool stuck() const { return stuck_; }

  // The room, once.
  Places TakePlaces() { return std::move(places_); }
  // Of what was read or written where it lies and not by a copy: it need not stay in the machine's
  // memory. Nothing happens to what has no file. Any thread.
  void LetGo(tensor::DevicePointer at, size_t bytes) const;
  // Copies begin after what has been issued on `work` before them. It outlives what is copied.
  void Follow(tensor::Stream& work) { work_ = &work; }

  // Issues a copy: out of the arena, or back into it.
  void Copy(bool out, const SwapCopy& copy);
  // The point behind all copies so far.
  tensor::Event Record() { return stream_->Record(); }
  // What is issued on `stream` from now on runs after `event`. Where a copy has failed, or the disk
  // does not answer for the deadline meanwhile, status() says so by then, and what follows runs on
  // nothing that is of use.
  void WaitOn(const tensor::Event& event, tensor::Stream& stream);
  // Blocks until all copies have run; the status then. After a failure it stays so.
  absl::Status Finish();
  // Finish, and then until the disk has all that was copied out or written through the mapping.
  absl::Status Sync();
  // The first failure of a copy or of a wait. Any thread.
  absl::Status status() const;
  bool failed() const { return failed_; }

 private:
  explicit Swapping(Options options) : options_(std::move(options)) {}
  // Where it lies in the file; -1: elsewhere.
  int64_t InFile(tensor::DevicePointer at) const;
  // On the stream.
  void Move(bool out, const SwapCopy& copy);
  // On the stream that waits.
  void Await(const tensor::Event& event);
  void Fail(absl::Status status);

  const Options options_;
  std::shared_ptr<tensor::SwapFile> file_;
  Places places_;
  tensor::Stream* work_ = nullptr;
  mutable std::mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};  // status_ is not ok
  std::atomic<bool> stuck_{false};
  // The last member, so that it ends before what its tasks use.
  std::unique_ptr<tensor::Stream> stream_;
};

}  // namespace trireme::engine
