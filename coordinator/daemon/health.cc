// A task that the reconciler's thread runs is the proof that it moves. One question is under way at
// a time, however many callers ask.
#include "coordinator/daemon/health.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace trireme::coordinator {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);

class Question {
 public:
  explicit Question(TaskThread& thread) : thread_(thread) {}

  bool Answered() {
    std::shared_ptr<absl::Notification> answer;
    {
      const absl::MutexLock lock(&mutex_);
      if (!asked_ || asked_->HasBeenNotified()) {
        auto fresh = std::make_shared<absl::Notification>();
        if (!thread_.Post([fresh] { fresh->Notify(); }).ok()) return false;
        asked_ = std::move(fresh);
      }
      answer = asked_;
    }
    return answer->WaitForNotificationWithTimeout(kPatience);
  }

 private:
  TaskThread& thread_;
  absl::Mutex mutex_;
  std::shared_ptr<absl::Notification> asked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

HttpRoute HealthRoute(TaskThread& reconciler_thread) {
  auto question = std::make_shared<Question>(reconciler_thread);
  return {"GET", "/healthz", [question](const HttpRequest&) {
            HttpResponse response;
            response.body = "ok\n";
            if (!question->Answered()) {
              response.status = 503;
              response.body = "the reconciler has not answered within 5 s\n";
            }
            return response;
          }};
}

}  // namespace trireme::coordinator
