#include "coordinator/keeper/attempt_turns.h"

#include <fmt/format.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace trireme::keeper {
namespace {

coordinator::DiskCallsOptions CallOptions() {
  coordinator::DiskCallsOptions options;
  options.name = "attempt turns";
  return options;
}

// Calls it once, when the last copy of what holds it goes: a call that is never run is let go too.
std::shared_ptr<void> AtEnd(std::function<void()> over) {
  return {nullptr, [over = std::move(over)](void*) { over(); }};
}

}  // namespace

struct AttemptTurns::Round {
  explicit Round(absl::Time end) : until(end) {}
  const absl::Time until;
  absl::Mutex mutex;
  int under_way ABSL_GUARDED_BY(mutex) = 0;
};

AttemptTurns::AttemptTurns(std::chrono::milliseconds wait) : wait_(wait), calls_(CallOptions()) {
  BeginRound();
}

AttemptTurns::~AttemptTurns() = default;

void AttemptTurns::BeginRound() {
  round_ = std::make_shared<Round>(absl::Now() + absl::FromChrono(wait_));
}

void AttemptTurns::Begin(const std::string& path, const std::string& owner,
                         std::function<void()> turn, std::function<void()> over) {
  {
    const absl::MutexLock lock(&round_->mutex);
    ++round_->under_way;
  }
  const auto end = AtEnd([round = round_, over = std::move(over)] {
    over();
    const absl::MutexLock lock(&round->mutex);
    --round->under_way;
  });
  // One that cannot be begun, because all threads there hang, is over at once. A deadline says
  // nothing new: who has not come back is known by that.
  calls_
      .Begin(
          {path, owner},
          [turn = std::move(turn), end] {
            turn();
            return absl::OkStatus();
          },
          [](const absl::Status&) {})
      .IgnoreError();
}

void AttemptTurns::AwaitRound() {
  const absl::MutexLock lock(&round_->mutex);
  const auto over = +[](int* under_way) { return *under_way == 0; };
  round_->mutex.AwaitWithDeadline(absl::Condition(over, &round_->under_way), round_->until);
}

void AttemptTurns::BeginSweep(const std::string& owner, std::function<void()> sweep,
                              std::function<void()> over) {
  calls_
      .Begin(
          {"/proc", owner},
          [sweep = std::move(sweep), end = AtEnd(std::move(over))] {
            sweep();
            return absl::OkStatus();
          },
          [](const absl::Status&) {})
      .IgnoreError();
}

std::string AttemptTurns::MountOf(const std::string& path) {
  const coordinator::Mount mount = mounts_.Of(path);
  return mount.type.empty() ? "" : fmt::format("{} {}", mount.type, mount.source);
}

}  // namespace trireme::keeper
