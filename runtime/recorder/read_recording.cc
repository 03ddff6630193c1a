// The reader: trusts nothing of the file, waits for nobody. It maps nothing: of a file that is cut
// off meanwhile, or whose disk fails, a map ends the process by SIGBUS, a read says so.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/recorder/recording_format.h"

namespace trireme::recorder {
namespace {

constexpr int kTries = 1000;  // while the writer laps one of the rings

absl::Status Bad(const std::string& path, std::string_view what) {
  return absl::DataLossError(fmt::format("flight recorder {}: {}", path, what));
}

using Page = std::array<uint64_t, kFileBytes / sizeof(uint64_t)>;

// The file by three reads, one after another: of what the protocol loads one after the other, the
// earlier is taken from the earlier read. Within a read no order is promised; between two there is
// one, since the kernel takes a reference to the file's page each time, a full barrier.
struct Reads {
  Page first, second, third;
};

absl::Status ReadPage(const std::string& path, int fd, Page& page) {
  auto* bytes = reinterpret_cast<char*>(page.data());
  for (size_t done = 0; done < kFileBytes;) {
    const ssize_t got = pread(fd, bytes + done, kFileBytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, fmt::format("flight recorder {}: cannot read it", path));
    }
    if (got == 0) return Bad(path, "it got shorter while it was read");
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ReadPages(const std::string& path, int fd, Reads& reads) {
  RETURN_IF_ERROR(ReadPage(path, fd, reads.first));
  RETURN_IF_ERROR(ReadPage(path, fd, reads.second));
  return ReadPage(path, fd, reads.third);
}

// The newest whole record; all zero before the first. False if the writer lapped the ring.
bool TakeRecord(const Reads& reads, const Ring& ring, Record& record) {
  const uint64_t before = reads.first[ring.sequence_word];
  record.fill(0);
  if (before != 0) {
    std::copy_n(reads.second.begin() + ring.SlotOf(before), kRecordWords, record.begin());
  }
  // The slot is written again only once `before` + slots - 1 is published.
  return reads.third[ring.sequence_word] - before < ring.slots - 1;
}

absl::Status TakeHeader(const std::string& path, const Reads& reads, Recording& recording) {
  if (reads.first[kMagicWord] != kMagic) {
    return Bad(path, "not a flight recorder's file (wrong first bytes)");
  }
  const Page& page = reads.second;
  const uint64_t version = page[kVersionWord];
  if (Low(version) < kOldestVersion || Low(version) > kVersion || High(version) != kFileBytes) {
    return Bad(path,
               fmt::format("version {} of {} bytes; this program reads versions {} to {} of "
                           "{}; use the programs of one release together",
                           Low(version), High(version), kOldestVersion, kVersion, kFileBytes));
  }
  recording.rank = static_cast<int>(Low(page[kRankWord]));
  recording.ranks = static_cast<int>(High(page[kRankWord]));
  recording.pid = static_cast<int64_t>(page[kPidWord]);
  if (recording.rank < 0 || recording.rank >= recording.ranks || recording.pid <= 0) {
    return Bad(path, fmt::format("rank {} of {}, process {} cannot be", recording.rank,
                                 recording.ranks, recording.pid));
  }
  return absl::OkStatus();
}

absl::Status TakeState(const std::string& path, const Reads& reads, Recording& recording) {
  const uint64_t state = reads.first[kStateWord];
  if (state < 1 || state > 4) return Bad(path, fmt::format("unknown state {}", state));
  recording.state = static_cast<RankState>(state);
  recording.failed_ns = static_cast<int64_t>(reads.second[kFailedWord]);
  const uint64_t bytes = reads.second[kFailureBytesWord];
  if (bytes > kFailureCapacity) {
    return Bad(path, fmt::format("a failure message of {} bytes, at most {} fit", bytes,
                                 kFailureCapacity));
  }
  const uint64_t blame = reads.second[kBlamesPeerWord];
  if (blame > 1) return Bad(path, fmt::format("a failure that blames {}, not 0 or 1", blame));
  recording.blame = static_cast<Blame>(blame);
  const auto* text = reinterpret_cast<const char*>(reads.third.data()) + kFailureOffset;
  recording.failure = base::ShowableUtf8(std::string_view(text, bytes));
  return absl::OkStatus();
}

// Before version 2 all of it is zero.
bool TakeWaitAndTiming(const Reads& reads, Recording& recording) {
  Record wait, timing;
  if (!TakeRecord(reads, kWaits, wait) || !TakeRecord(reads, kTimings, timing)) return false;
  recording.wait.since_ns = static_cast<int64_t>(wait[0]);
  recording.wait.peer = wait[3] == 0 ? -1 : static_cast<int32_t>(Low(wait[1]));
  recording.wait.awaited = High(wait[1]);
  recording.wait.collective = Low(wait[2]) != 0;
  recording.waited_ns = static_cast<int64_t>(wait[3]);
  const auto* group = reinterpret_cast<const char*>(&wait[kGroupWord]);
  recording.wait.group = base::ShowableUtf8({group, strnlen(group, kGroupBytes)});
  recording.timing = {timing[0], std::bit_cast<double>(timing[1]), std::bit_cast<double>(timing[2]),
                      std::bit_cast<double>(timing[3]), std::bit_cast<double>(timing[4])};
  return true;
}

bool TakePositionAndProgress(const Reads& reads, Recording& recording) {
  Record at, progress;
  if (!TakeRecord(reads, kPositions, at) || !TakeRecord(reads, kProgress, progress)) return false;
  recording.position = {at[0],      Low(at[1]),  High(at[1]),
                        Low(at[2]), High(at[2]), static_cast<int32_t>(Low(at[3]))};
  recording.updated_ns = static_cast<int64_t>(at[4]);
  recording.progress = {progress[0],
                        progress[1],
                        std::bit_cast<double>(progress[2]),
                        std::bit_cast<double>(progress[3]),
                        std::bit_cast<double>(progress[4]),
                        std::bit_cast<double>(progress[5]),
                        progress[6],
                        std::bit_cast<double>(progress[7]),
                        reads.third[kMemoryStepWord]};
  return true;
}

absl::StatusOr<Recording> ReadOpened(const std::string& path, int fd) {
  struct stat about {};
  const bool whole = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
                     about.st_size == static_cast<off_t>(kFileBytes);
  if (!whole) return Bad(path, fmt::format("{} bytes, expected {}", about.st_size, kFileBytes));
  for (int tries = 0; tries < kTries; ++tries) {
    Reads reads;
    Recording recording;
    RETURN_IF_ERROR(ReadPages(path, fd, reads));
    RETURN_IF_ERROR(TakeHeader(path, reads, recording));
    RETURN_IF_ERROR(TakeState(path, reads, recording));
    if (TakePositionAndProgress(reads, recording) && TakeWaitAndTiming(reads, recording)) {
      return recording;
    }
  }
  return absl::UnavailableError(
      fmt::format("flight recorder {}: its rank writes faster than it can be read", path));
}

}  // namespace

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  // Of a pipe that somebody put there nobody waits for the other end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, fmt::format("flight recorder {}: cannot open it", path));
  }
  absl::StatusOr<Recording> recording = ReadOpened(path, fd);
  close(fd);
  return recording;
}

}  // namespace trireme::recorder
