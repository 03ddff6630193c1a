// A pid of a recording may be another process's by now: it counts while it carries the attempt's
// mark, and afterwards by its start time.
#include "coordinator/keeper/rank_watch.h"

#include <fmt/format.h>

#include "coordinator/launcher/process_identity.h"
#include "runtime/recorder/rank_message.h"

namespace trireme::keeper {
namespace {

using recorder::RankState;
using recorder::Recording;

// Without a look at its process.
v1::RankLife LifeByRecording(RankState state) {
  switch (state) {
    case RankState::kStarting:
      return v1::RANK_STARTING;
    case RankState::kStopped:
      return v1::RANK_ENDED;
    case RankState::kFailed:
      return v1::RANK_DEAD;
    default:
      return v1::RANK_ALIVE;
  }
}

}  // namespace

RankWatch::RankWatch(const WatchedRanks& watched)
    : watched_(watched),
      processes_(watched.count),
      skews_ns_(watched.count, INT64_MAX),
      ranks_(watched.count) {
  for (uint32_t i = 0; i < watched.count; ++i) {
    ranks_[i].set_rank(watched.first + i);
    ranks_[i].set_life(v1::RANK_STARTING);
    ranks_[i].set_peer(-1);
  }
}

v1::RankLife RankWatch::LifeOf(const Recording& recording, Process& process) const {
  if (watched_.far) return LifeByRecording(recording.state);
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

// From its clock to ours: 0 on this machine. What was written last was written a moment ago at
// some look or other; until then the rank seems fresher than it is.
int64_t RankWatch::SkewNs(const Recording& recording, uint32_t index, int64_t now_ns) {
  if (!watched_.far) return 0;
  const int64_t newest =
      std::max({recording.updated_ns, recording.wait.since_ns, recording.waited_ns});
  skews_ns_[index] = std::min(skews_ns_[index], now_ns - newest);
  return skews_ns_[index];
}

// Whether the rank is or has been at work.
bool RankWatch::LookAt(uint32_t index, int64_t now_ns) {
  v1::RankReport& report = ranks_[index];
  const auto recording = recorder::ReadRecording(
      fmt::format("{}/rank-{:03}.rec", watched_.recorder_folder, report.rank()));
  if (!recording.ok()) return false;
  const uint32_t rank = report.rank();
  const v1::RankLife life = LifeOf(*recording, processes_[index]);
  report = recorder::RankMessage(*recording, now_ns - SkewNs(*recording, index, now_ns));
  report.set_rank(rank);
  report.set_life(life);
  if (rank == 0) progress_ = recorder::ProgressMessage(*recording);
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
