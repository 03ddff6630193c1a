#include "coordinator/keeper/claim_watch.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/monotonic.h"
#include "runtime/run_claim/run_claim.h"

namespace trireme::keeper {
namespace {

ClaimSight SightOf(const std::string& run_folder, uint32_t attempt) {
  const auto claim = run_claim::ReadRunClaim(run_folder);
  if (!claim.ok() || claim->attempt < attempt) return ClaimSight::kUnknown;
  return claim->attempt == attempt ? ClaimSight::kOurs : ClaimSight::kReplaced;
}

}  // namespace

// What the thread has, which may outlive the watch.
struct ClaimWatch::Shared {
  absl::Mutex mutex;
  ClaimNews news ABSL_GUARDED_BY(mutex);
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool done ABSL_GUARDED_BY(mutex) = false;
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
      const absl::MutexLock lock(&shared_->mutex);
      shared_->stop = true;
      // Whoever does not end now is held by a disk.
      done =
          shared_->mutex.AwaitWithTimeout(absl::Condition(&shared_->done), absl::Milliseconds(50));
    }
    done ? thread_.join() : thread_.detach();
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;
  ClaimNews news() const {
    const absl::MutexLock lock(&shared_->mutex);
    return shared_->news;
  }

 private:
  static void LookOn(Shared& shared, const std::string& run_folder, uint32_t attempt,
                     std::chrono::milliseconds every) {
    while (true) {
      ClaimNews news;
      news.asked_ns = base::BoottimeNs();
      news.sight = SightOf(run_folder, attempt);
      const absl::MutexLock lock(&shared.mutex);
      shared.news = news;
      shared.mutex.AwaitWithTimeout(absl::Condition(&shared.stop), absl::FromChrono(every));
      if (!shared.stop) continue;
      shared.done = true;
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
