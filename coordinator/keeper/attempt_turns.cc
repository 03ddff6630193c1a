#include "coordinator/keeper/attempt_turns.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/status/status.h"

namespace trireme::keeper {
namespace {

// A turn that merely waits, behind those of a thousand other attempts, is to be taken all the same:
// that a disk hangs is known by its threads.
constexpr std::chrono::hours kTurnLimit{24 * 365};

// Calls it once: when the turn is not to be run any more, or when the last copy of what holds it
// goes.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> over) : over_(std::move(over)) {}
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  ~AtEnd() { Call(); }
  void Call() {
    if (!called_.exchange(true)) over_();
  }

 private:
  const std::function<void()> over_;
  std::atomic<bool> called_{false};
};

}  // namespace

coordinator::DiskCallsOptions TurnOptions() {
  coordinator::DiskCallsOptions options;
  options.name = "attempt turns";
  // An attempt whose folder hangs holds one for good; those beside it on that file system, as on
  // another folder of a server that is half gone, need some too.
  options.threads = 16;
  return options;
}

struct AttemptTurns::Round {
  // Of a clock that nobody sets: absl's waits are by the time of day.
  using Clock = std::chrono::steady_clock;
  explicit Round(Clock::time_point end) : until(end) {}
  const Clock::time_point until;
  std::mutex mutex;
  std::condition_variable fewer;
  int under_way = 0;  // with `mutex`
};

AttemptTurns::AttemptTurns(std::chrono::milliseconds wait, coordinator::DiskCallsOptions options)
    : wait_(wait), calls_(std::move(options)) {
  BeginRound();
}

AttemptTurns::~AttemptTurns() = default;

void AttemptTurns::BeginRound() { round_ = std::make_shared<Round>(Round::Clock::now() + wait_); }

void AttemptTurns::Begin(const std::string& path, const std::string& owner,
                         std::function<void()> turn, std::function<void()> over) {
  {
    const std::lock_guard lock(round_->mutex);
    ++round_->under_way;
  }
  const auto end = std::make_shared<AtEnd>([round = round_, over = std::move(over)] {
    over();
    const std::lock_guard lock(round->mutex);
    --round->under_way;
    round->fewer.notify_all();
  });
  // One that cannot be begun, because all threads there hang, is over at once.
  calls_
      .Begin(
          {path, owner, kTurnLimit},
          [turn = std::move(turn), end] {
            turn();
            return absl::OkStatus();
          },
          // A call that waits when all threads hang is answered long before one of them is back to
          // let go what it owns.
          [end](const absl::Status& answer) {
            if (!answer.ok()) end->Call();
          })
      .IgnoreError();
}

void AttemptTurns::AwaitRound() {
  std::unique_lock lock(round_->mutex);
  round_->fewer.wait_until(lock, round_->until, [&] { return round_->under_way == 0; });
}

void AttemptTurns::BeginSweep(const std::string& owner, std::function<void()> sweep,
                              std::function<void()> over) {
  const auto end = std::make_shared<AtEnd>(std::move(over));
  calls_
      .Begin(
          {"/proc", owner, kTurnLimit},
          [sweep = std::move(sweep), end] {
            sweep();
            return absl::OkStatus();
          },
          [end](const absl::Status& answer) {
            if (!answer.ok()) end->Call();
          })
      .IgnoreError();
}

std::string AttemptTurns::MountOf(const std::string& path) {
  const coordinator::Mount mount = mounts_.Of(path);
  return mount.type.empty() ? "" : fmt::format("{} {}", mount.type, mount.source);
}

}  // namespace trireme::keeper
