// The reader: trusts nothing of the file, waits for nobody.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/base/utf8.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/recorder/mapped_page.h"

namespace trireme::recorder {
namespace {

absl::Status Bad(const std::string& path, std::string_view what) {
  return absl::DataLossError(fmt::format("flight recorder {}: {}", path, what));
}

absl::Status ReadHeader(const std::string& path, uint64_t* words, Recording& recording) {
  if (Word(words, kMagicWord).load(std::memory_order_acquire) != kMagic) {
    return Bad(path, "not a flight recorder's file (wrong first bytes)");
  }
  const uint64_t version = words[kVersionWord];
  if (Low(version) < kOldestVersion || Low(version) > kVersion || High(version) != kFileBytes) {
    return Bad(path,
               fmt::format("version {} of {} bytes; this program reads versions {} to {} of "
                           "{}; use the programs of one release together",
                           Low(version), High(version), kOldestVersion, kVersion, kFileBytes));
  }
  recording.rank = static_cast<int>(Low(words[kRankWord]));
  recording.ranks = static_cast<int>(High(words[kRankWord]));
  recording.pid = static_cast<int64_t>(words[kPidWord]);
  if (recording.rank < 0 || recording.rank >= recording.ranks || recording.pid <= 0) {
    return Bad(path, fmt::format("rank {} of {}, process {} cannot be", recording.rank,
                                 recording.ranks, recording.pid));
  }
  return absl::OkStatus();
}

absl::Status ReadState(const std::string& path, const MappedPage& page, Recording& recording) {
  uint64_t* words = page.words();
  const uint64_t state = Word(words, kStateWord).load(std::memory_order_acquire);
  if (state < 1 || state > 4) return Bad(path, fmt::format("unknown state {}", state));
  recording.state = static_cast<RankState>(state);
  recording.failed_ns =
      static_cast<int64_t>(Word(words, kFailedWord).load(std::memory_order_acquire));
  const uint64_t bytes = Word(words, kFailureBytesWord).load(std::memory_order_acquire);
  if (bytes > kFailureCapacity) {
    return Bad(path, fmt::format("a failure message of {} bytes, at most {} fit", bytes,
                                 kFailureCapacity));
  }
  const uint64_t blame = Word(words, kBlamesPeerWord).load(std::memory_order_acquire);
  if (blame > 1) return Bad(path, fmt::format("a failure that blames {}, not 0 or 1", blame));
  recording.blame = static_cast<Blame>(blame);
  recording.failure = base::ShowableUtf8(std::string_view(page.text(), bytes));
  return absl::OkStatus();
}

// Before version 2 all of it is zero.
bool ReadWaitAndTiming(uint64_t* words, Recording& recording) {
  Record wait, timing;
  if (!ReadRecord(words, kWaits, wait) || !ReadRecord(words, kTimings, timing)) return false;
  recording.wait.since_ns = static_cast<int64_t>(wait[0]);
  recording.wait.peer = wait[3] == 0 ? -1 : static_cast<int32_t>(Low(wait[1]));
  recording.wait.awaited = High(wait[1]);
  recording.wait.collective = Low(wait[2]) != 0;
  recording.waited_ns = static_cast<int64_t>(wait[3]);
  const auto* group = reinterpret_cast<const char*>(&wait[kGroupWord]);
  recording.wait.group = base::ShowableUtf8({group, strnlen(group, kGroupBytes)});
  recording.timing = {timing[0], std::bit_cast<double>(timing[1]), std::bit_cast<double>(timing[2]),
                      std::bit_cast<double>(timing[3])};
  return true;
}

}  // namespace

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, fmt::format("flight recorder {}: cannot open it", path));
  }
  struct stat about {};
  const bool whole = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
                     about.st_size == static_cast<off_t>(kFileBytes);
  if (!whole) {
    close(fd);
    return Bad(path, fmt::format("{} bytes, expected {}", about.st_size, kFileBytes));
  }
  const MappedPage page(fd, /*writable=*/false);
  close(fd);
  if (page.words() == nullptr) return Bad(path, "cannot map it");

  Recording recording;
  if (absl::Status header = ReadHeader(path, page.words(), recording); !header.ok()) return header;
  if (absl::Status state = ReadState(path, page, recording); !state.ok()) return state;
  Record at, progress;
  if (!ReadRecord(page.words(), kPositions, at) || !ReadRecord(page.words(), kProgress, progress) ||
      !ReadWaitAndTiming(page.words(), recording)) {
    return absl::UnavailableError(
        fmt::format("flight recorder {}: its rank writes faster than it can be read", path));
  }
  recording.position = {at[0],      Low(at[1]),  High(at[1]),
                        Low(at[2]), High(at[2]), static_cast<int32_t>(Low(at[3]))};
  recording.updated_ns = static_cast<int64_t>(at[4]);
  recording.progress = {progress[0],
                        progress[1],
                        std::bit_cast<double>(progress[2]),
                        std::bit_cast<double>(progress[3]),
                        std::bit_cast<double>(progress[4]),
                        std::bit_cast<double>(progress[5]),
                        progress[6]};
  return recording;
}

}  // namespace trireme::recorder
