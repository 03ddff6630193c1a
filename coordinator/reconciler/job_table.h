// The JobTable: what readers see of jobs, events and nodes, published by the reconciler after each
// commit. Reads never wait for the reconciler, nor for the disk, but where they bring the store: a
// job that ended before this daemon was started may be there alone (coordinator/calls/store_reads.h
// asks for those).
#pragma once

#include <cstdint>
#include <deque>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/scheduler/queue.h"
#include "coordinator/scheduler/waits.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

// Why one waits before which so many others wait, where nothing more is said.
std::string QueueText(size_t before);
// NotFound, in words for whoever asks.
absl::Status NoSuchJob(uint64_t job_id);
// What a reader gets who has not brought the store where it alone can answer; NeedsStore knows it.
absl::Status AskTheStore();
bool NeedsStore(const absl::Status& status);
// What whoever asks a daemon is told of a store that could not say or change something:
// Unavailable, for its codes are about its file; but DataLoss stays, since a damaged store does not
// heal, and nobody is to try again by himself. `what` was to be done; a status that is OK stays so.
absl::Status OfStore(const absl::Status& status, std::string_view what);
inline constexpr std::string_view kRequestUnknown =
    "whether this request was made before is not known";

// Threads: any; one writer.
class JobTable {
 public:
  // Writer.
  // Jobs, and the events that tell of them, at once. Events ascend, following those before without
  // a hole. Subscribers are called afterwards.
  void Publish(const std::vector<v1::Job>& jobs, const std::vector<v1::Event>& events);
  // Until OlderAreHere jobs that have ended may be in the store alone.
  void OlderAreAway();
  // Jobs as they are stored, where they are not here already. All from the id `down_to` on are here
  // then; 0: that is not said.
  void PublishOlder(std::vector<v1::Job> jobs, uint64_t down_to);
  void OlderAreHere();
  // They are no more.
  void Drop(const std::vector<uint64_t>& job_ids);
  void PutProgress(uint64_t job_id, const v1::Progress& progress);
  // Waits for resources, in the line of that number; none: no longer.
  void PutInQueue(const QueueKey& job, std::optional<uint64_t> line);
  // Why those in the queue do, and what jobs that have an allocation wait for, by id.
  void PutWaits(std::shared_ptr<const Waits> waits, std::map<uint64_t, std::string> allocated);
  void PutCluster(v1::Cluster cluster);
  // Calls subscribers: progress has moved.
  void Announce();

  // Readers. With a store, here and below, what is not here is looked for there, which blocks;
  // null: NeedsStore of the status if that would have to be. Unavailable: the store cannot say.
  // With progress, queue position and what it waits for. Nothing: there is no such job.
  absl::StatusOr<std::optional<v1::Job>> Find(uint64_t job_id, JobStore* store = nullptr) const;
  // NotFound: no such job.
  absl::StatusOr<v1::Job> Get(uint64_t job_id, JobStore* store = nullptr) const;
  // Newest first, without specs. `page_token` is the smallest id that was looked at for the page
  // before. A page with a token for the next one may be short, even empty, where jobs had to be
  // looked for in the store. InvalidArgument: not a token of ours; else as the store's.
  absl::StatusOr<v1::ListResponse> List(const v1::ListRequest& request,
                                        JobStore* store = nullptr) const;
  // Ahead of such a one in the queue, which need not be in it.
  QueuePlace PlaceOf(const QueueKey& job) const;
  v1::Cluster cluster() const;
  std::optional<v1::Progress> ProgressOf(uint64_t job_id) const;
  // Those of jobs that have made progress since `version`, which is moved on.
  std::vector<v1::JobProgress> ProgressSince(uint64_t& version) const;
  uint64_t last_sequence() const;
  // False: of jobs that have ended some are in the store alone.
  bool OlderHaveCome() const;
  // Empty: no such job.
  absl::StatusOr<std::string> OwnerOf(uint64_t job_id, JobStore* store = nullptr) const;
  // Nothing: it has ended, or there is none; all others are here.
  std::optional<v1::JobStatus> StatusOf(uint64_t job_id) const;
  // All jobs that are here by id, as they are stored, and what their ranks last told (null:
  // nothing). `look` must be quick and not call back.
  void ForEach(
      const std::function<void(const v1::Job& job, const v1::Progress* progress)>& look) const;
  // Those alone whose attempts may have ranks, however many others there are.
  void ForEachLive(const std::function<void(const v1::Job& job)>& look) const;
  // At most `limit` events after `sequence`; nullopt: older than what is kept here, ask the store.
  std::optional<std::vector<v1::Event>> EventsAfter(uint64_t sequence, size_t limit) const;

  // `news` is called from the writer's thread after each change; it must not block nor call back.
  // Unsubscribe waits for a call under way.
  int Subscribe(std::function<void()> news);
  void Unsubscribe(int subscription);

 private:
  static constexpr size_t kEventsKept = 10000;

  struct Row {
    std::shared_ptr<const v1::Job> job;
    v1::Progress progress;
    uint64_t progress_version = 0;  // 0: none yet
  };
  // Its nodes know how many are below them: places are counted in logarithmic time.
  using Order = __gnu_pbds::tree<QueueKey, uint64_t, std::less<QueueKey>, __gnu_pbds::rb_tree_tag,
                                 __gnu_pbds::tree_order_statistics_node_update>;

  void Put(std::shared_ptr<const v1::Job> job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Job Whole(uint64_t id, const Row& row) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  QueuePlace Place(const QueueKey& job) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // `look` at the row of a job that is here, else at what the store has of it. Empty: no such job.
  template <typename Value>
  absl::StatusOr<std::optional<Value>> Look(
      uint64_t job_id, JobStore* store,
      const std::function<Value(const v1::Job& job, const Row* row)>& look) const;
  // These go on with a page of `size` at the jobs before `before`.
  // Those from `down_to` on, which are here. True: the page is full.
  bool ListRows(const v1::ListRequest& request, uint64_t before, uint64_t down_to, size_t size,
                v1::ListResponse& page) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status ListOlder(const v1::ListRequest& request, JobStore& store, uint64_t before,
                         size_t size, v1::ListResponse& page) const;

  mutable absl::Mutex mutex_;
  std::map<uint64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> live_ ABSL_GUARDED_BY(mutex_);  // of ForEachLive
  uint64_t here_from_ ABSL_GUARDED_BY(mutex_) = 0;   // all from this id on are; 0: all
  Order queue_ ABSL_GUARDED_BY(mutex_);              // with the lines' numbers
  std::shared_ptr<const Waits> waits_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> allocated_waits_ ABSL_GUARDED_BY(mutex_);
  v1::Cluster cluster_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::Event> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t progress_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, uint64_t> moved_ ABSL_GUARDED_BY(mutex_);  // progress version to job id

  absl::Mutex subscribers_mutex_;
  std::map<int, std::function<void()>> subscribers_ ABSL_GUARDED_BY(subscribers_mutex_);
  int next_subscription_ ABSL_GUARDED_BY(subscribers_mutex_) = 1;
};

}  // namespace trireme::coordinator
