// Jobs, events and nodes on disk: SQLite with a write-ahead log, synchronous FULL. What Commit has
// returned OK for is there after a kill -9 or a power cut; of the one commit such an end has
// interrupted, all or nothing. The schema is docs/formats/job_store.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/job_store/store_identity.h"
#include "trireme/v1/control.pb.h"
#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// One transaction.
struct Change {
  // Stored anew or over the job of the same id, but for the fields that v1::Job calls not stored.
  std::vector<v1::Job> jobs;
  // Of a new job in `jobs`: by which id its owner will find it again; "": by none. Parallel to
  // `jobs` or empty.
  std::vector<std::string> request_ids;
  // Appended in order; `sequence` is filled in.
  std::vector<v1::Event> events;
  // Who may use them, by name (fields name, drained, reason, gone, holder,
  // adopted_from).
  std::vector<v1::Node> nodes;
};

struct EventQuery {
  uint64_t after_sequence = 0;
  uint64_t job_id = 0;  // 0: all
  size_t limit = 1000;  // at least 1
};

// How many of its bytes are copied, a last time before it gets its name; any other answer than OK
// ends the backup.
using BackupProgress = std::function<absl::Status(uint64_t bytes_done, uint64_t bytes_total)>;

struct BackupReport {
  uint64_t bytes = 0;
  uint64_t jobs = 0;
  uint64_t events = 0;
};

// Of a file that is opened. What is read later is checked then, row by row.
enum class StoreCheck {
  kAll,         // every page and row, before it is used
  kWhatIsRead,  // what a daemon that starts reads; CheckAll follows
};

// Threads: any; calls are serialised inside, and one at a time blocks on the disk.
class JobStore {
 public:
  // Makes or opens the file `path`, or a store in memory for ":memory:". Older schemas are migrated
  // in one transaction; the whole file is read and checked, unless `check` says otherwise (an older
  // or a damaged one is in any case). FailedPrecondition: the file is of a
  // newer version, or held by another process (after a second of waiting); DataLoss: it is no store
  // or is damaged, and stays as it is; NotFound, PermissionDenied: of its folder. While a store is
  // open its process must not open and close the file by other means: that drops its lock.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path,
                                                        StoreCheck check = StoreCheck::kAll);
  virtual ~JobStore() = default;

  // Checks all of the file, as it is at the call, while others go on using the store; blocks for
  // seconds. DataLoss: it is damaged; the next opening checks all of it again, before it is used.
  // Cancelled: by StopCheck. Of one thread at a time.
  virtual absl::Status CheckAll() = 0;
  // None is made from now on; waits up to some seconds for the end of one that is.
  virtual void StopCheck() = 0;
  // `damage` was found: the next opening checks all of the file, whatever it is asked for. Gives
  // `damage`, and with it why that could not be noted, if it could not.
  virtual absl::Status NoteDamage(absl::Status damage) = 0;

  // Fills `sequence` of the events. Nothing is changed unless OK, here or on disk. AlreadyExists: a
  // request id of that owner is taken. Unavailable: the disk is full (where files are limited by
  // `ulimit -f`, only if SIGXFSZ is ignored) or failed, or its answer is not known.
  // InvalidArgument: no such ids or names can be stored.
  virtual absl::Status Commit(Change& change) = 0;

  // A daemon begins to use it. Without it identity() has no epoch. Errors: those of Commit.
  virtual absl::Status BeginEpoch() = 0;
  // As of the last BeginEpoch.
  virtual StoreIdentity identity() = 0;

  // Id for a new job, above `after` (0: from 1 on), ascending; another one at each call. Never that
  // of a job that was once stored; one that is not stored in the end may come again after a
  // restart, and `after` counts no longer then.
  virtual absl::StatusOr<uint64_t> NextJobId(uint64_t after) = 0;
  // All jobs, by id.
  virtual absl::StatusOr<std::vector<v1::Job>> Jobs() = 0;
  // Those that have not ended, or whose attempt may have ranks, by id.
  virtual absl::StatusOr<std::vector<v1::Job>> LiveJobs() = 0;
  // At most `limit` (at least 1) of the jobs with smaller ids, the largest first.
  virtual absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) = 0;
  virtual absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) = 0;
  // Folders in which run folders of jobs lie, or have lain.
  virtual absl::StatusOr<std::vector<std::string>> RunParents() = 0;
  virtual absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                              const std::string& request_id) = 0;
  // By sequence.
  virtual absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) = 0;
  // 0: there is no event.
  virtual absl::StatusOr<uint64_t> LastSequence() = 0;
  // Of the oldest event that is kept; 0: there is none.
  virtual absl::StatusOr<uint64_t> FirstSequence() = 0;
  // Drops the oldest events until the newest `keep` (at least 1, so that numbers go on ascending)
  // are left, at most `most` of them. Gives the sequence of the oldest that is left, 0: none.
  // Errors: those of Commit.
  virtual absl::StatusOr<uint64_t> DropEvents(uint64_t keep, uint64_t most) = 0;
  // Drops these jobs and their request ids; their events stay. Errors: those of Commit.
  virtual absl::Status DropJobs(const std::vector<uint64_t>& ids) = 0;
  // By name.
  virtual absl::StatusOr<std::vector<v1::Node>> Nodes() = 0;

  // A store with all that was committed before the call, as the new file `path` with mode 0600:
  // whole, flushed and opened once when this returns OK, else absent. Other calls go on meanwhile;
  // a slow disk behind `path` holds up none of them. AlreadyExists: something is there, and stays.
  // FailedPrecondition: another backup is being made, or the store is in memory. NotFound,
  // PermissionDenied: of the folder. Unavailable: a disk is full or failed. Others: `progress`'.
  virtual absl::StatusOr<BackupReport> Backup(const std::string& path,
                                              const BackupProgress& progress) = 0;
};

}  // namespace trireme::coordinator
