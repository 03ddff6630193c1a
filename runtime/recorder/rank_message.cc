#include "runtime/recorder/rank_message.h"

#include <algorithm>

#include "runtime/recorder/position_text.h"

namespace trireme::recorder {

namespace {

v1::StepTiming TimingMessage(const StepTiming& timing) {
  v1::StepTiming message;
  message.set_step(timing.step);
  message.set_step_ms(timing.step_ms);
  message.set_compute_ms(timing.compute_ms);
  message.set_wait_ms(timing.wait_ms);
  message.set_offload_ms(timing.offload_ms);
  return message;
}

// Of CLOCK_MONOTONIC; 0: never.
uint64_t MsSince(int64_t then_ns, int64_t now_ns) {
  if (then_ns == 0) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(0, now_ns - then_ns) / 1000000);
}

std::string PositionOf(const Recording& recording) {
  if (recording.state == RankState::kStopped) return "ended in order";
  return recording.updated_ns == 0 ? "" : DescribePosition(recording.position);
}

}  // namespace

v1::RankReport RankMessage(const Recording& recording, int64_t now_ns) {
  v1::RankReport message;
  message.set_rank(static_cast<uint32_t>(recording.rank));
  message.set_step(recording.position.step);
  message.set_position(PositionOf(recording));
  const bool waits = recording.wait.since_ns != 0;
  message.set_peer(waits ? recording.wait.peer : recording.position.peer);
  message.set_waiting_ms(waits ? 1 + MsSince(recording.wait.since_ns, now_ns) : 0);
  // What it does after a long wait is another thing than before, whether or not it is an
  // instruction.
  const bool began = recording.updated_ns != 0;
  const int64_t moved_ns = std::max(recording.updated_ns, waits ? 0 : recording.waited_ns);
  message.set_still_ms(began ? MsSince(moved_ns, now_ns) : 0);
  if (recording.timing.step != 0) *message.mutable_timing() = TimingMessage(recording.timing);
  message.set_failure(recording.failure);
  return message;
}

v1::Progress ProgressMessage(const Recording& recording) {
  const Progress& progress = recording.progress;
  v1::Progress message;
  message.set_steps_done(progress.steps_done);
  message.set_steps_total(progress.steps_total);
  message.set_loss(progress.loss);
  message.set_tokens_per_second(progress.tokens_per_second);
  message.set_overall_tokens_per_second(progress.overall_tokens_per_second);
  message.set_utilisation(progress.utilisation);
  message.set_validation_loss(progress.validation_loss);
  message.set_validation_step(progress.validation_step);
  message.set_memory_step(progress.memory_step);
  return message;
}

}  // namespace trireme::recorder
