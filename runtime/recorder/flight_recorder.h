// Flight recorder: what a rank does, in a small shared file that outlives it, so that after a
// failure the launcher can say "rank 3 is at RECV_ACT of micro-batch 5". The format is
// docs/formats/flight_recorder.md. Writing is lock-free and costs a few stores; reading a file of a
// dead or living rank never blocks it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::recorder {

enum class RankState : uint32_t { kStarting = 1, kRunning = 2, kStopped = 3, kFailed = 4 };

// Whom a failure names: a rank that gave up on a silent or lost peer is a victim, not the cause.
enum class Blame : uint32_t { kItself = 0, kPeer = 1 };

struct Position {
  uint64_t step = 0;         // the one being run, the first is 1
  uint32_t instruction = 0;  // index in its program
  uint32_t kind = 0;         // trireme.v1.InstructionKind
  uint32_t virtual_stage = 0;
  uint32_t micro_batch = 0;
  int32_t peer = -1;  // rank of the job, -1: none
};

// What the step loop last reported.
struct Progress {
  uint64_t steps_done = 0;
  uint64_t steps_total = 0;
  double loss = 0;
  double tokens_per_second = 0;  // of the step alone
  double utilisation = 0;
  double validation_loss = 0;
  uint64_t validation_step = 0;  // 0: none yet
  // Over all the time since the attempt's first step, with saves, evaluation and measuring; 0: not
  // known.
  double overall_tokens_per_second = 0;
  // At which step the attempt went on in memory (snapshots); 0: it began elsewhere.
  uint64_t memory_step = 0;
};

// A wait for other ranks that has brought nothing for a while.
struct Wait {
  int64_t since_ns = 0;     // CLOCK_MONOTONIC; 0: the rank does not wait
  int32_t peer = -1;        // rank of the job, of several the lowest; -1: not known
  uint32_t awaited = 0;     // how many ranks are waited for
  bool collective = false;  // of `group`; else a message
  std::string group{};      // its name, of which 32 bytes are kept
};

// Where the time of the newest whole step went.
struct StepTiming {
  uint64_t step = 0;  // 0: none yet
  double step_ms = 0;
  double compute_ms = 0;
  double wait_ms = 0;
  double offload_ms = 0;
};

// One writer thread; NoteWait may be another thread's, one at a time.
class FlightRecorder {
 public:
  // Creates `path` (mode 0600) and maps it. The file is left behind by the destructor.
  static absl::StatusOr<std::unique_ptr<FlightRecorder>> Create(const std::string& path, int rank,
                                                                int ranks);
  virtual ~FlightRecorder() = default;
  virtual void At(const Position& position) = 0;
  virtual void Report(const Progress& progress) = 0;
  virtual void NoteWait(const Wait& wait) = 0;
  virtual void NoteTiming(const StepTiming& timing) = 0;
  virtual void SetState(RankState state) = 0;
  // Keeps the first failure (its message cut to what fits) and sets kFailed.
  virtual void Fail(std::string_view message, Blame blame) = 0;
};

struct Recording {
  int rank = 0;
  int ranks = 0;
  int64_t pid = 0;
  RankState state = RankState::kStarting;
  Position position;
  Progress progress;
  Wait wait;
  StepTiming timing;
  std::string failure;
  Blame blame = Blame::kItself;  // of the failure
  int64_t updated_ns = 0;        // CLOCK_MONOTONIC of the last At
  int64_t waited_ns = 0;         // CLOCK_MONOTONIC of the last NoteWait, 0: none
  int64_t failed_ns = 0;         // CLOCK_MONOTONIC of Fail, 0: none
};

// DataLoss if the file is not a recorder's or is cut short, also meanwhile; by errno where the disk
// does not give it.
absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace trireme::recorder
