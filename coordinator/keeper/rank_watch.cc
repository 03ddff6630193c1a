// A pid of a recording may be another process's by now: it counts while it carries the attempt's
// mark, and afterwards by its start time.
#include "coordinator/keeper/rank_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/launcher/process_identity.h"
#include "runtime/recorder/position_text.h"

namespace trireme::keeper {
namespace {

using recorder::RankState;
using recorder::Recording;

v1::Progress ToMessage(const recorder::Progress& progress) {
  v1::Progress message;
  message.set_steps_done(progress.steps_done);
  message.set_steps_total(progress.steps_total);
  message.set_loss(progress.loss);
  message.set_tokens_per_second(progress.tokens_per_second);
  message.set_utilisation(progress.utilisation);
  message.set_validation_loss(progress.validation_loss);
  message.set_validation_step(progress.validation_step);
  return message;
}

v1::StepTiming ToMessage(const recorder::StepTiming& timing) {
  v1::StepTiming message;
  message.set_step(timing.step);
  message.set_step_ms(timing.step_ms);
  message.set_compute_ms(timing.compute_ms);
  message.set_wait_ms(timing.wait_ms);
  return message;
}

// Of CLOCK_MONOTONIC; 0: never.
uint64_t MsSince(int64_t then_ns, int64_t now_ns) {
  if (then_ns == 0) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(0, now_ns - then_ns) / 1000000);
}

std::string PositionOf(const Recording& recording) {
  if (recording.state == RankState::kStopped) return "ended in order";
  return recording.updated_ns == 0 ? "" : recorder::DescribePosition(recording.position);
}

}  // namespace

RankWatch::RankWatch(const WatchedRanks& watched)
    : watched_(watched), processes_(watched.count), ranks_(watched.count) {
  for (uint32_t i = 0; i < watched.count; ++i) {
    ranks_[i].set_rank(watched.first + i);
    ranks_[i].set_life(v1::RANK_STARTING);
    ranks_[i].set_peer(-1);
  }
}

v1::RankLife RankWatch::LifeOf(const Recording& recording, Process& process) const {
  const int pid = static_cast<int>(recording.pid);
  const launcher::ProcessStat now = launcher::LookAtProcess(pid);
  if (process.pid != recording.pid) {
    process = {recording.pid, now.start_ticks, CarriesMark(pid, watched_.mark)};
  }
  const bool gone = now.parent < 0 || now.state == 'Z' || now.state == 'X' ||
                    now.start_ticks != process.start_ticks;
  if (gone || !process.ours) {
    return recording.state == RankState::kStopped ? v1::RANK_ENDED : v1::RANK_DEAD;
  }
  if (now.state == 'T' || now.state == 't') return v1::RANK_STOPPED;
  return recording.state == RankState::kStarting ? v1::RANK_STARTING : v1::RANK_ALIVE;
}

// Whether the rank is or has been at work.
bool RankWatch::LookAt(uint32_t index, int64_t now_ns) {
  v1::RankReport& report = ranks_[index];
  const auto recording = recorder::ReadRecording(
      fmt::format("{}/rank-{:03}.rec", watched_.recorder_folder, report.rank()));
  if (!recording.ok()) return false;
  report.set_life(LifeOf(*recording, processes_[index]));
  report.set_step(recording->position.step);
  report.set_position(PositionOf(*recording));
  const bool waits = recording->wait.since_ns != 0;
  report.set_peer(waits ? recording->wait.peer : recording->position.peer);
  report.set_waiting_ms(waits ? 1 + MsSince(recording->wait.since_ns, now_ns) : 0);
  // What it does after a long wait is another thing than before, whether or not it is an
  // instruction.
  const bool began = recording->updated_ns != 0;
  const int64_t moved_ns = std::max(recording->updated_ns, waits ? 0 : recording->waited_ns);
  report.set_still_ms(began ? MsSince(moved_ns, now_ns) : 0);
  if (recording->timing.step != 0) *report.mutable_timing() = ToMessage(recording->timing);
  report.set_failure(recording->failure);
  if (report.rank() == 0) progress_ = ToMessage(recording->progress);
  return recording->state == RankState::kRunning || recording->state == RankState::kStopped;
}

void RankWatch::NoteDeath(const std::vector<v1::RankReport>& before) {
  std::optional<uint32_t> dead;
  int count = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const bool died = ranks_[i].life() == v1::RANK_DEAD && before[i].life() != v1::RANK_DEAD;
    if (!died) continue;
    dead = ranks_[i].rank();
    ++count;
  }
  if (count == 1 && !any_death_) first_dead_ = dead;
  any_death_ = any_death_ || count > 0;
}

void RankWatch::Look(int64_t now_ns) {
  const std::vector<v1::RankReport> before = ranks_;
  uint32_t at_work = 0;
  for (uint32_t i = 0; i < watched_.count; ++i) at_work += LookAt(i, now_ns) ? 1 : 0;
  all_at_work_ = all_at_work_ || at_work == watched_.count;
  NoteDeath(before);
}

}  // namespace trireme::keeper
