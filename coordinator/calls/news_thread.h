// The thread on which the streams of a set look when there is news.
#pragma once

#include <atomic>
#include <string>

#include "coordinator/calls/stream_set.h"
#include "coordinator/process/task_thread.h"

namespace trireme::coordinator {

// Threads: any. After its end nothing looks any more.
class NewsThread {
 public:
  // `name` as in TaskThreadOptions. `streams` outlive it.
  NewsThread(const std::string& name, StreamSet& streams)
      : streams_(streams), thread_({.name = name, .between = {}}) {}

  // All streams look soon, once for whatever is told until they begin to. Never blocks.
  void Tell();
  // This one alone, if it is there by then.
  void LookAgain(LiveStream* stream);

 private:
  StreamSet& streams_;
  std::atomic<bool> told_{false};
  TaskThread thread_;
};

}  // namespace trireme::coordinator
