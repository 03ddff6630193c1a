#include "coordinator/keeper/claim_watch.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/monotonic.h"
#include "runtime/run_claim/run_claim.h"

namespace trireme::keeper {
namespace {

using Clock = std::chrono::steady_clock;

ClaimSight SightOf(const std::string& run_folder, uint32_t attempt) {
  const auto claim = run_claim::ReadRunClaim(run_folder);
  if (!claim.ok() || claim->attempt < attempt) return ClaimSight::kUnknown;
  return claim->attempt == attempt ? ClaimSight::kOurs : ClaimSight::kReplaced;
}

}  // namespace

// What the thread has, which may outlive the watch.
struct ClaimWatch::Shared {
  // absl's waits are by the time of day, which somebody may set; steady_clock's are not.
  std::mutex mutex;
  std::condition_variable changed;
  ClaimNews news;  // all with `mutex`
  bool stop = false;
  bool done = false;
};

class ClaimWatch::Looker {
 public:
  Looker(const std::string& run_folder, uint32_t attempt, std::chrono::milliseconds every)
      : thread_([shared = shared_, run_folder, attempt, every] {
          LookOn(*shared, run_folder, attempt, every);
        }) {}
  ~Looker() {
    bool done = false;
    {
      std::unique_lock lock(shared_->mutex);
      shared_->stop = true;
      shared_->changed.notify_all();
      // Whoever does not end now is held by a disk.
      done = shared_->changed.wait_until(lock, Clock::now() + std::chrono::milliseconds(50),
                                         [&] { return shared_->done; });
    }
    done ? thread_.join() : thread_.detach();
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;
  ClaimNews news() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->news;
  }

 private:
  static void LookOn(Shared& shared, const std::string& run_folder, uint32_t attempt,
                     std::chrono::milliseconds every) {
    while (true) {
      ClaimNews news;
      news.asked_ns = base::BoottimeNs();
      news.sight = SightOf(run_folder, attempt);
      std::unique_lock lock(shared.mutex);
      shared.news = news;
      shared.changed.wait_until(lock, Clock::now() + every, [&] { return shared.stop; });
      if (!shared.stop) continue;
      shared.done = true;
      shared.changed.notify_all();
      return;
    }
  }

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

ClaimWatch::ClaimWatch(std::chrono::milliseconds every) : every_(every) {}

ClaimWatch::~ClaimWatch() = default;

ClaimNews ClaimWatch::Of(const std::string& run_folder, uint32_t attempt) {
  Watched& watched = watched_[{run_folder, attempt}];
  watched.asked = true;
  if (!watched.looker) watched.looker = std::make_unique<Looker>(run_folder, attempt, every_);
  return watched.looker->news();
}

void ClaimWatch::DropOthers() {
  for (auto at = watched_.begin(); at != watched_.end();) {
    const bool asked = std::exchange(at->second.asked, false);
    at = asked ? std::next(at) : watched_.erase(at);
  }
}

}  // namespace trireme::keeper
