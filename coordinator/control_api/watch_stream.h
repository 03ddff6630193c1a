// One watcher: events from a sequence number on, then as they happen, and the newest progress. What
// the JobTable has no more is asked of the store, a page at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// What a look into the store brings.
struct WatchPiece {
  std::vector<v1::Event> events;
  uint64_t first = 0;  // the oldest that was kept when they had been read
  uint64_t up_to = 0;  // where there are none, there are none up to here
  // Not empty: whose jobs are, and nothing else was asked for.
  std::map<uint64_t, std::string> owners;
};

class WatchStream : public FromDiskStream<v1::WatchResponse, WatchPiece> {
 public:
  // `look_again` is to call LookAgain soon, from another thread: there is much to look through, and
  // others wait.
  WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
              StreamSet& streams, std::function<void(LiveStream*)> look_again);

 private:
  void Ask() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Use(WatchPiece piece) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Goes on where it is: with an event, else progress, else the end.
  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: it waits, for the store or for its next turn.
  bool NextPage(int page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForPage(uint64_t up_to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForOwners() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NothingDropped(uint64_t first) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there is none.
  bool NextProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // NeedsStore: whose the job is.
  absl::StatusOr<bool> Mine(uint64_t job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiRooms& rooms_;
  const v1::WatchRequest request_;
  const Caller caller_;
  const std::function<void(LiveStream*)> look_again_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // what there is now is all that will be told
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_);
  uint64_t progress_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> owners_
      ABSL_GUARDED_BY(mutex_);  // as the store has told, of these
  std::deque<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
