#include "runtime/engine/swapping.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"

namespace trireme::engine {

namespace {

// Tasks of one swap, at most: a wait and a copy for each pool that moves.
constexpr size_t kTasksOfSwap = 6;

// Between two looks at whether the disk has answered.
constexpr std::chrono::milliseconds kLook{50};
static_assert(2 * kLook < base::Silence::kLongestGap);

// Room for all that a program issues, so that whoever issues never waits for the disk.
size_t QueueOf(const v1::StagePlan& stage) {
  const auto& step = stage.step().instructions();
  const auto swaps = std::count_if(step.begin(), step.end(), [](const v1::Instruction& each) {
    return each.kind() == v1::SWAP_OUT || each.kind() == v1::SWAP_IN;
  });
  return (static_cast<size_t>(swaps) + 1) * kTasksOfSwap;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Swapping>> Swapping::Make(const v1::StagePlan& stage,
                                                         tensor::Device& device, Options options) {
  if (options.folder.path.empty()) {
    std::error_code error;
    options.folder.path = std::filesystem::temp_directory_path(error).string();
  }
  std::unique_ptr<Swapping> swapping(new Swapping(std::move(options)));
  if (stage.host_bytes() > 0) {
    ASSIGN_OR_RETURN(swapping->places_[v1::HOST],
                     device.Allocate(stage.host_bytes(), /*prefault_threads=*/0));
  }
  if (stage.file_bytes() > 0) {
    ASSIGN_OR_RETURN(swapping->file_,
                     tensor::SwapFile::Make(swapping->options_.folder, stage.file_bytes()));
    swapping->places_[v1::FILE] =
        device.Adopt({.bytes = swapping->file_->pages(), .owner = swapping->file_});
  }
  swapping->stream_ = device.MakeTransferStream(QueueOf(stage), swapping->options_.while_waiting);
  return swapping;
}

int64_t Swapping::InFile(tensor::DevicePointer at) const {
  if (file_ == nullptr) return -1;
  const std::span<std::byte> pages = file_->pages();
  if (at.get() < pages.data() || at.get() >= pages.data() + pages.size()) return -1;
  return at.get() - pages.data();
}

void Swapping::LetGo(tensor::DevicePointer at, size_t bytes) const {
  const int64_t offset = InFile(at);
  if (offset >= 0) file_->LetGo(static_cast<size_t>(offset), bytes);
}

void Swapping::Copy(bool out, const SwapCopy& copy) {
  if (copy.bytes == 0) return;
  if (work_ != nullptr) stream_->WaitFor(work_->Record());
  stream_->Issue(tensor::Task([this, out, copy] { Move(out, copy); }));
}

void Swapping::Move(bool out, const SwapCopy& copy) {
  if (failed_) return;
  const std::span<std::byte> here(copy.arena.get(), copy.bytes);
  if (const int64_t at = InFile(copy.home); at >= 0) {
    const auto offset = static_cast<size_t>(at);
    absl::Status moved = out ? file_->Write(offset, here) : file_->Read(offset, here);
    if (!moved.ok()) Fail(std::move(moved));
    return;
  }
  std::memcpy(out ? copy.home.get() : here.data(), out ? here.data() : copy.home.get(), copy.bytes);
}

void Swapping::WaitOn(const tensor::Event& event, tensor::Stream& stream) {
  if (event.Ready()) return;
  stream.IssueAside(tensor::Task([this, event] { Await(event); }));
}

void Swapping::Await(const tensor::Event& event) {
  const auto answers = [this] { return file_ == nullptr ? 0 : file_->answers(); };
  base::Silence silence(base::Silence::Clock::now());
  for (uint64_t before = answers(); !stuck_ && silence.length() < options_.deadline;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(options_.deadline - silence.length());
    if (event.stream->AwaitFor(event.sequence, std::min(left, kLook))) return;
    silence.Look(base::Silence::Clock::now());
    // Slow is not silent.
    if (std::exchange(before, answers()) != before) silence.Break();
  }
  if (stuck_.exchange(true)) return;
  Fail(
      absl::DataLossError(absl::StrCat("offload: the disk of ", options_.folder.path,
                                       " has not answered for ", options_.deadline.count() / 1000.0,
                                       " s (runtime.deadline_seconds); look at its mount, or "
                                       "give another folder in offload.directory")));
}

absl::Status Swapping::Finish() {
  Await(stream_->Record());
  return status();
}

absl::Status Swapping::Sync() {
  if (file_ != nullptr) {
    stream_->Issue(tensor::Task([this] {
      if (failed_) return;
      absl::Status synced = file_->Sync();
      if (!synced.ok()) Fail(std::move(synced));
    }));
  }
  return Finish();
}

absl::Status Swapping::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Swapping::Fail(absl::Status status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = std::move(status);
  failed_ = true;
}

}  // namespace trireme::engine
