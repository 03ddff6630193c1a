// Streams of the daemon that have an end: read to it, or left by Ctrl-C, with how far it is on a
// terminal.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/client/client.h"
#include "coordinator/launcher/signal_latch.h"

namespace trireme::cli {

// Of a folder that the daemon is to write, which has another current folder than we; empty stays
// empty. `option` begins the message of an error.
absl::StatusOr<std::string> AbsoluteFolder(const std::string& option, const std::string& given);

// A line of stderr that is redrawn, if stderr is a terminal; nothing otherwise.
class TransferLine {
 public:
  explicit TransferLine(bool wanted);
  ~TransferLine();
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;
  // "metrics.jsonl: 1.20 MiB of 3.00 MiB (40 %)"; at most ten times a second.
  void Show(const std::string& what, uint64_t done, uint64_t total);

 private:
  const bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

// What `take` says of each message; true: to the end of the stream, false: Ctrl-C.
// DeadlineExceeded: nothing has come for two minutes.
template <typename Message, typename Take>
absl::StatusOr<bool> TakeAll(client::Stream<Message>& stream, const Take& take) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience{120};
  const launcher::SignalLatch signals;
  Clock::time_point heard = Clock::now();
  while (signals.count() == 0) {
    Message message;
    const auto pull = stream.Next(message, std::chrono::milliseconds(100));
    if (!pull.ok()) return pull.status();
    if (*pull == client::Pull::kEnd) return true;
    if (*pull == client::Pull::kNothing) {
      if (Clock::now() - heard < kPatience) continue;
      return absl::DeadlineExceededError(
          "the coordinator has sent nothing for two minutes; try again");
    }
    heard = Clock::now();
    if (absl::Status taken = take(message); !taken.ok()) return taken;
  }
  return false;
}

}  // namespace trireme::cli
