// A task that the reconciler's thread runs is the proof that it moves. One question is under way at
// a time, however many callers ask.
#include "coordinator/daemon/health.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {
namespace {

constexpr std::chrono::seconds kPatience(5);

class Question {
 public:
  explicit Question(TaskThread& thread) : thread_(thread) {}

  bool Answered() {
    std::shared_ptr<base::SteadyEvent> answer;
    {
      const absl::MutexLock lock(&mutex_);
      if (!asked_ || asked_->HasBeenNotified()) {
        auto fresh = std::make_shared<base::SteadyEvent>();
        if (!thread_.Post([fresh] { fresh->Notify(); }).ok()) return false;
        asked_ = std::move(fresh);
      }
      answer = asked_;
    }
    return answer->WaitFor(kPatience);
  }

 private:
  TaskThread& thread_;
  absl::Mutex mutex_;
  std::shared_ptr<base::SteadyEvent> asked_ ABSL_GUARDED_BY(mutex_);
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
