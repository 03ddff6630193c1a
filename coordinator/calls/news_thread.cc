#include "coordinator/calls/news_thread.h"

namespace trireme::coordinator {

void NewsThread::Tell() {
  if (told_.exchange(true)) return;
  thread_.PostAnswer([this] {
    // Before the look: what is told while they look is seen by the look that follows.
    told_ = false;
    streams_.LookAll();
  });
}

void NewsThread::LookAgain(LiveStream* stream) {
  thread_.PostAnswer([this, stream] { streams_.LookAgain(stream); });
}

}  // namespace trireme::coordinator
