// The writer: stores into a mapped page; the kernel keeps the page when the process dies.
#include "runtime/recorder/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/durable.h"
#include "runtime/base/monotonic.h"
#include "runtime/recorder/mapped_page.h"

namespace trireme::recorder {
namespace {

class MappedRecorder final : public FlightRecorder {
 public:
  explicit MappedRecorder(MappedPage page) : page_(std::move(page)) {}

  void At(const Position& at) override {
    PublishRecord(page_.words(), kPositions, positions_,
                  {at.step, Pack(at.instruction, at.kind), Pack(at.virtual_stage, at.micro_batch),
                   Pack(static_cast<uint32_t>(at.peer), 0),
                   static_cast<uint64_t>(base::MonotonicNs()), 0, 0, 0});
  }

  void Report(const Progress& progress) override {
    Word(page_.words(), kMemoryStepWord).store(progress.memory_step, std::memory_order_release);
    PublishRecord(
        page_.words(), kProgress, reports_,
        {progress.steps_done, progress.steps_total, std::bit_cast<uint64_t>(progress.loss),
         std::bit_cast<uint64_t>(progress.tokens_per_second),
         std::bit_cast<uint64_t>(progress.utilisation),
         std::bit_cast<uint64_t>(progress.validation_loss), progress.validation_step,
         std::bit_cast<uint64_t>(progress.overall_tokens_per_second)});
  }

  void NoteWait(const Wait& wait) override {
    Record record{static_cast<uint64_t>(wait.since_ns),
                  Pack(static_cast<uint32_t>(wait.peer), wait.awaited), wait.collective ? 1U : 0U,
                  static_cast<uint64_t>(base::MonotonicNs())};
    std::memcpy(&record[kGroupWord], wait.group.data(), std::min(wait.group.size(), kGroupBytes));
    PublishRecord(page_.words(), kWaits, waits_, record);
  }

  void NoteTiming(const StepTiming& timing) override {
    PublishRecord(
        page_.words(), kTimings, timings_,
        {timing.step, std::bit_cast<uint64_t>(timing.step_ms),
         std::bit_cast<uint64_t>(timing.compute_ms), std::bit_cast<uint64_t>(timing.wait_ms),
         std::bit_cast<uint64_t>(timing.offload_ms), 0, 0, 0});
  }

  void SetState(RankState state) override {
    if (failed_) return;
    if (state == RankState::kFailed) {
      failed_ = true;
      Word(page_.words(), kFailedWord)
          .store(static_cast<uint64_t>(base::MonotonicNs()), std::memory_order_release);
    }
    Word(page_.words(), kStateWord).store(static_cast<uint64_t>(state), std::memory_order_release);
  }

  void Fail(std::string_view message, Blame blame) override {
    if (failed_) return;
    if (message.size() > kFailureCapacity) {
      size_t end = kFailureCapacity;
      while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xC0) == 0x80) --end;
      message = message.substr(0, end);
    }
    if (!message.empty()) std::memcpy(page_.text(), message.data(), message.size());
    Word(page_.words(), kFailureBytesWord).store(message.size(), std::memory_order_release);
    Word(page_.words(), kBlamesPeerWord)
        .store(static_cast<uint64_t>(blame), std::memory_order_release);
    SetState(RankState::kFailed);
  }

 private:
  MappedPage page_;
  uint64_t positions_ = 0;
  uint64_t reports_ = 0;
  uint64_t waits_ = 0;
  uint64_t timings_ = 0;
  bool failed_ = false;
};

absl::Status FileError(const std::string& path, const char* what) {
  return base::ErrnoStatus(errno, fmt::format("flight recorder {}: {}", path, what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlightRecorder>> FlightRecorder::Create(const std::string& path,
                                                                       int rank, int ranks) {
  TRIREME_CHECK(rank >= 0 && rank < ranks);
  // Made aside and renamed, so that a reader sees a whole recording or none, and the map of an
  // older attempt's file stays with its reader.
  const std::string aside = fmt::format("{}.{}", path, getpid());
  const int fd = open(aside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return FileError(path, "cannot create it");
  const auto fail = [&](const char* what) {
    const absl::Status status = FileError(path, what);
    close(fd);
    unlink(aside.c_str());
    return status;
  };
  // A hole would turn a full disk into SIGBUS at the first store.
  if (const int error = posix_fallocate(fd, 0, kFileBytes); error != 0) {
    errno = error;
    return fail("cannot reserve its page");
  }
  MappedPage page(fd);
  if (page.words() == nullptr) return fail("cannot map it");
  uint64_t* words = page.words();
  words[kVersionWord] = Pack(kVersion, kFileBytes);
  words[kRankWord] = Pack(static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks));
  words[kPidWord] = static_cast<uint64_t>(getpid());
  words[kStateWord] = static_cast<uint64_t>(RankState::kStarting);
  Word(words, kMagicWord).store(kMagic, std::memory_order_release);
  if (std::rename(aside.c_str(), path.c_str()) != 0) return fail("cannot rename it into place");
  close(fd);
  return std::make_unique<MappedRecorder>(std::move(page));
}

}  // namespace trireme::recorder
