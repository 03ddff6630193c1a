#include "coordinator/job_store/sqlite_job_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "coordinator/job_store/backup_file.h"
#include "coordinator/job_store/job_facts.h"
#include "coordinator/job_store/page_copy.h"
#include "coordinator/job_store/statement.h"
#include "coordinator/job_store/store_file.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// Starts of a daemon that agents may have slept through.
constexpr int64_t kEpochsKept = 10000;
constexpr const char* kScratchSuffix = "-backup";
constexpr const char* kAutoCheckpoint = "PRAGMA wal_autocheckpoint = 1000";  // SQLite's own
// Between two steps of a backup.
constexpr std::chrono::milliseconds kLeastPause{1};
// Of a check that is to stop: for two seconds at most.
constexpr int kMostInterrupts = 200;
constexpr std::chrono::milliseconds kInterruptPause{10};
constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();

struct Statements {
  Statement last_job_id, raise_last_job_id, put_job, drop_job, jobs;
  Statement live_jobs, jobs_before, find_job, is_live, count_live, put_run_parent, run_parents;
  Statement put_request, find_request;
  Statement first_sequence, last_sequence, put_event, drop_events, events, events_of_job;
  Statement put_node, nodes;
  Statement store, epochs, put_epoch, drop_epochs;
};

struct Query {
  Statement Statements::*statement;
  const char* sql;
};

// An UPSERT, not a REPLACE: that would delete the row first, and its request id with it.
constexpr Query kQueries[] = {
    {&Statements::last_job_id, "SELECT value FROM meta WHERE name = 'last_job_id'"},
    {&Statements::raise_last_job_id,
     "UPDATE meta SET value = ?1, sum = row_sum(name, ?1)"
     " WHERE name = 'last_job_id' AND value < ?1"},
    {&Statements::put_job,
     "INSERT INTO jobs (id, live, job, sum) VALUES (?1, ?2, ?3, row_sum('job', ?1, ?2, ?3))"
     " ON CONFLICT (id) DO UPDATE"
     " SET live = excluded.live, job = excluded.job, sum = excluded.sum"},
    {&Statements::drop_job, "DELETE FROM jobs WHERE id = ?1"},
    {&Statements::jobs,
     "SELECT job, sum = row_sum('job', id, live, job), id FROM jobs ORDER BY id"},
    {&Statements::live_jobs,
     "SELECT job, sum = row_sum('job', id, live, job), id FROM jobs INDEXED BY live_jobs"
     " WHERE live = 1 ORDER BY id"},
    {&Statements::jobs_before,
     "SELECT job, sum = row_sum('job', id, live, job), id FROM jobs WHERE id < ?1"
     " ORDER BY id DESC LIMIT ?2"},
    {&Statements::find_job,
     "SELECT job, sum = row_sum('job', id, live, job), id FROM jobs WHERE id = ?1"},
    {&Statements::is_live, "SELECT live FROM jobs WHERE id = ?1"},
    {&Statements::count_live,
     "UPDATE meta SET value = value + ?1, sum = row_sum(name, value + ?1)"
     " WHERE name = 'live_jobs'"},
    {&Statements::put_run_parent,
     "INSERT INTO run_parents (folder, sum) VALUES (?1, row_sum(?1)) ON CONFLICT DO NOTHING"},
    {&Statements::run_parents, "SELECT folder FROM run_parents"},
    {&Statements::put_request,
     "INSERT INTO requests (owner, request_id, job_id, sum)"
     " VALUES (?1, ?2, ?3, row_sum(?1, ?2, ?3))"},
    {&Statements::find_request, "SELECT job_id FROM requests WHERE owner = ?1 AND request_id = ?2"},
    {&Statements::first_sequence, "SELECT ifnull(min(sequence), 0) FROM events"},
    {&Statements::drop_events, "DELETE FROM events WHERE sequence < ?1"},
    {&Statements::last_sequence, "SELECT ifnull(max(sequence), 0) FROM events"},
    {&Statements::put_event,
     "INSERT INTO events (sequence, job_id, event, sum)"
     " VALUES (?1, ?2, ?3, row_sum(?1, ?2, ?3))"},
    {&Statements::events, kEventsSql},
    {&Statements::events_of_job, kEventsOfJobSql},
    {&Statements::put_node,
     "INSERT INTO nodes (name, node, sum) VALUES (?1, ?2, row_sum(?1, ?2))"
     " ON CONFLICT (name) DO UPDATE SET node = excluded.node, sum = excluded.sum"},
    {&Statements::nodes, "SELECT node, sum = row_sum(name, node), name FROM nodes ORDER BY name"},
    {&Statements::store, "SELECT store FROM identity"},
    {&Statements::epochs, "SELECT epoch, opening, after_sequence FROM epochs ORDER BY epoch"},
    {&Statements::put_epoch,
     "INSERT INTO epochs (epoch, opening, after_sequence, sum)"
     " VALUES (?1, ?2, ?3, row_sum(?1, ?2, ?3))"},
    {&Statements::drop_epochs, "DELETE FROM epochs WHERE epoch <= ?1"},
};

int64_t Signed(uint64_t number) { return static_cast<int64_t>(std::min(number, kLargest)); }

v1::Job StoredPart(const v1::Job& job) {
  v1::Job stored = job;
  stored.clear_queue_position();
  stored.clear_waits_for();
  return stored;
}

v1::Node StoredPart(const v1::Node& node) {
  v1::Node stored;
  stored.set_name(node.name());
  stored.set_drained(node.drained());
  stored.set_reason(node.reason());
  stored.set_gone(node.gone());
  stored.set_holder(node.holder());
  stored.set_drained_by(node.drained_by());
  stored.set_drained_unix_ns(node.drained_unix_ns());
  if (node.has_adopted_from()) *stored.mutable_adopted_from() = node.adopted_from();
  return stored;
}

absl::Status CheckShape(const Change& change) {
  if (!change.request_ids.empty() && change.request_ids.size() != change.jobs.size()) {
    return absl::InvalidArgumentError(
        base::Text("a change of ", base::Counted(change.jobs.size(), "job"), " has ",
                   base::Counted(change.request_ids.size(), "request id")));
  }
  for (const v1::Job& job : change.jobs) {
    if (job.id() == 0 || job.id() > kLargest) {
      return absl::InvalidArgumentError(base::Text("a job cannot have the id ", job.id()));
    }
  }
  for (const v1::Event& event : change.events) {
    if (event.job_id() > kLargest) {
      return absl::InvalidArgumentError(
          base::Text("an event cannot be of the job ", event.job_id()));
    }
  }
  for (const v1::Node& node : change.nodes) {
    if (node.name().empty()) return absl::InvalidArgumentError("a node has no name");
  }
  return absl::OkStatus();
}

template <typename Message>
absl::StatusOr<std::string> Serialised(const Message& message) {
  std::string bytes;
  if (!message.SerializeToString(&bytes)) {
    return absl::InvalidArgumentError("a message is larger than 2 GiB");
  }
  // Written all the same, but nobody could read it again.
  if (Message().ParseFromString(bytes)) return bytes;
  return absl::InvalidArgumentError(
      "a name, path or text that is to be stored is not UTF-8; write it in UTF-8");
}

// Threads: any; every public function holds the mutex to its end, so also while the disk works.
class SqliteJobStore final : public JobStore {
 public:
  SqliteJobStore(std::unique_ptr<Connection> connection, std::span<const Migration> migrations)
      : path_(connection->path()), migrations_(migrations), connection_(std::move(connection)) {}

  absl::Status Prepare() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Query& query : kQueries) {
      ASSIGN_OR_RETURN(statements_.*query.statement, connection_->Prepare(query.sql));
    }
    ASSIGN_OR_RETURN(last_job_id_, NumberOf(statements_.last_job_id));
    ASSIGN_OR_RETURN(identity_, ReadIdentity());
    return absl::OkStatus();
  }

  absl::Status BeginEpoch() override;
  StoreIdentity identity() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return identity_;
  }

  absl::Status Commit(Change& change) override;

  absl::StatusOr<uint64_t> NextJobId(uint64_t after) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t last = std::max(last_job_id_, after);
    if (last >= kLargest) return absl::ResourceExhaustedError("all job ids are used up");
    return last_job_id_ = last + 1;
  }

  absl::StatusOr<std::vector<v1::Job>> Jobs() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Execution query(statements_.jobs);
    return Messages<v1::Job>(query, "job");
  }

  absl::StatusOr<std::vector<v1::Job>> LiveJobs() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Execution query(statements_.live_jobs);
    return Messages<v1::Job>(query, "job");
  }

  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Execution query(statements_.jobs_before, Signed(id), Signed(limit));
    return Messages<v1::Job>(query, "job");
  }

  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    if (id > kLargest) return std::nullopt;
    const std::lock_guard<std::mutex> lock(mutex_);
    Execution query(statements_.find_job, Signed(id));
    ASSIGN_OR_RETURN(std::vector<v1::Job> found, Messages<v1::Job>(query, "job"));
    if (found.empty()) return std::nullopt;
    return std::move(found.front());
  }

  absl::StatusOr<std::vector<std::string>> RunParents() override;
  absl::Status CheckAll() override;
  void StopCheck() override;
  absl::Status NoteDamage(absl::Status damage) override {
    return path_ == ":memory:" ? damage : coordinator::NoteDamage(path_, damage);
  }

  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                      const std::string& request_id) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Find(owner, request_id);
  }

  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) override {
    if (query.limit == 0) return absl::InvalidArgumentError("the limit of events is 0");
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t after = Signed(query.after_sequence), limit = Signed(query.limit);
    if (query.job_id == 0) {
      Execution all(statements_.events, after, limit);
      return Messages<v1::Event>(all, "event");
    }
    if (query.job_id > kLargest) return std::vector<v1::Event>();
    Execution of_job(statements_.events_of_job, after, limit, Signed(query.job_id));
    return Messages<v1::Event>(of_job, "event");
  }

  absl::StatusOr<uint64_t> LastSequence() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return NumberOf(statements_.last_sequence);
  }

  absl::StatusOr<uint64_t> FirstSequence() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return NumberOf(statements_.first_sequence);
  }

  absl::StatusOr<uint64_t> DropEvents(uint64_t keep, uint64_t most) override;
  absl::Status DropJobs(const std::vector<uint64_t>& ids) override;

  absl::StatusOr<std::vector<v1::Node>> Nodes() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Execution query(statements_.nodes);
    return Messages<v1::Node>(query, "node");
  }

  absl::StatusOr<BackupReport> Backup(const std::string& path,
                                      const BackupProgress& progress) override;

 private:
  template <typename... Values>
  absl::StatusOr<uint64_t> NumberOf(Statement& statement, const Values&... values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Execution query(statement, values...);
    ASSIGN_OR_RETURN(const bool found, query.Step());
    return found ? static_cast<uint64_t>(query.Integer(0)) : 0;
  }

  // Of rows of (message, whether its sum is right, key).
  template <typename Message>
  absl::StatusOr<std::vector<Message>> Messages(Execution& query, const char* what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Message> messages;
    while (true) {
      ASSIGN_OR_RETURN(const bool found, query.Step());
      if (!found) return messages;
      const std::string_view bytes = query.Bytes(0);
      Message message;
      if (query.Integer(1) == 0 ||
          !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        return Damaged(*connection_, base::Text(what, " ", query.Bytes(2)));
      }
      messages.push_back(std::move(message));
    }
  }

  absl::StatusOr<StoreIdentity> ReadIdentity() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<uint64_t>> Find(const std::string& owner,
                                               const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutRequest(const v1::Job& job, const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> WasLive(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutJob(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginCheck();
  absl::Status PutJobs(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutEvents(const Change& change, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutNodes(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> Bytes();
  absl::Status CopyPages(const std::string& scratch, const BackupProgress& progress);

  const std::string path_;
  const std::span<const Migration> migrations_;
  std::mutex backup_mutex_;  // whose the scratch file is; taken before mutex_
  std::mutex mutex_;
  std::atomic<bool> check_stopped_{false};
  std::unique_ptr<Connection> still_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  Statements statements_ ABSL_GUARDED_BY(mutex_);
  // Stored or given out since the store was opened.
  uint64_t last_job_id_ ABSL_GUARDED_BY(mutex_) = 0;
  StoreIdentity identity_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<StoreIdentity> SqliteJobStore::ReadIdentity() {
  std::string store;
  {
    Execution query(statements_.store);
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (found) store = query.Bytes(0);
  }
  std::vector<Epoch> epochs;
  Execution query(statements_.epochs);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return StoreIdentity(std::move(store), std::move(epochs));
    epochs.push_back({static_cast<uint64_t>(query.Integer(0)),
                      static_cast<uint64_t>(query.Integer(1)),
                      static_cast<uint64_t>(query.Integer(2))});
  }
}

absl::Status SqliteJobStore::BeginEpoch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Transaction transaction(*connection_);
  RETURN_IF_ERROR(transaction.Begin());
  std::random_device device;
  const uint64_t opening = uint64_t{device()} << 32 | device();
  const int64_t number = Signed(identity_.At(0).epoch()) + 1;
  ASSIGN_OR_RETURN(const uint64_t sequence, NumberOf(statements_.last_sequence));
  RETURN_IF_ERROR(
      Execution(statements_.put_epoch, number, static_cast<int64_t>(opening), Signed(sequence))
          .Finish());
  RETURN_IF_ERROR(Execution(statements_.drop_epochs, number - kEpochsKept).Finish());
  ASSIGN_OR_RETURN(StoreIdentity identity, ReadIdentity());
  RETURN_IF_ERROR(transaction.Commit());
  identity_ = std::move(identity);
  return absl::OkStatus();
}

absl::Status SqliteJobStore::Commit(Change& change) {
  RETURN_IF_ERROR(CheckShape(change));
  const std::lock_guard<std::mutex> lock(mutex_);
  Transaction transaction(*connection_);
  RETURN_IF_ERROR(transaction.Begin());
  ASSIGN_OR_RETURN(uint64_t sequence, NumberOf(statements_.last_sequence));
  RETURN_IF_ERROR(PutJobs(change));
  RETURN_IF_ERROR(PutEvents(change, sequence));
  RETURN_IF_ERROR(PutNodes(change));
  RETURN_IF_ERROR(transaction.Commit());
  for (const v1::Job& job : change.jobs) last_job_id_ = std::max(last_job_id_, job.id());
  for (v1::Event& event : change.events) event.set_sequence(++sequence);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SqliteJobStore::DropEvents(uint64_t keep, uint64_t most) {
  if (keep == 0) return absl::InvalidArgumentError("the newest event is always kept");
  const std::lock_guard<std::mutex> lock(mutex_);
  Transaction transaction(*connection_);
  RETURN_IF_ERROR(transaction.Begin());
  ASSIGN_OR_RETURN(const uint64_t first, NumberOf(statements_.first_sequence));
  ASSIGN_OR_RETURN(const uint64_t last, NumberOf(statements_.last_sequence));
  // Without holes: the sequences are the count.
  if (first == 0 || last - first < keep) return first;
  const uint64_t dropped = std::min(last - first + 1 - keep, most);
  RETURN_IF_ERROR(Execution(statements_.drop_events, Signed(first + dropped)).Finish());
  RETURN_IF_ERROR(transaction.Commit());
  return first + dropped;
}

absl::Status SqliteJobStore::DropJobs(const std::vector<uint64_t>& ids) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Transaction transaction(*connection_);
  RETURN_IF_ERROR(transaction.Begin());
  for (const uint64_t id : ids) {
    ASSIGN_OR_RETURN(const bool was_live, WasLive(id));
    RETURN_IF_ERROR(Execution(statements_.drop_job, Signed(id)).Finish());
    if (was_live) RETURN_IF_ERROR(Execution(statements_.count_live, int64_t{-1}).Finish());
  }
  return transaction.Commit();
}

absl::StatusOr<std::optional<uint64_t>> SqliteJobStore::Find(const std::string& owner,
                                                             const std::string& request_id) {
  Execution query(statements_.find_request, std::string_view(owner), std::string_view(request_id));
  ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return std::nullopt;
  return static_cast<uint64_t>(query.Integer(0));
}

absl::Status SqliteJobStore::PutRequest(const v1::Job& job, const std::string& request_id) {
  ASSIGN_OR_RETURN(const std::optional<uint64_t> taken, Find(job.owner(), request_id));
  if (taken.has_value()) {
    return absl::AlreadyExistsError(
        base::Text("request id '", request_id, "' of '", job.owner(), "' is that of job ", *taken));
  }
  return Execution(statements_.put_request, std::string_view(job.owner()),
                   std::string_view(request_id), Signed(job.id()))
      .Finish();
}

absl::StatusOr<bool> SqliteJobStore::WasLive(uint64_t id) {
  ASSIGN_OR_RETURN(const uint64_t live, NumberOf(statements_.is_live, Signed(id)));
  return live != 0;
}

absl::Status SqliteJobStore::PutJob(const v1::Job& job) {
  ASSIGN_OR_RETURN(const std::string bytes, Serialised(StoredPart(job)));
  const int64_t live = IsLive(job) ? 1 : 0;
  ASSIGN_OR_RETURN(const bool was_live, WasLive(job.id()));
  RETURN_IF_ERROR(Execution(statements_.put_job, Signed(job.id()), live, Blob{bytes}).Finish());
  const int64_t more = live - (was_live ? 1 : 0);
  if (more != 0) RETURN_IF_ERROR(Execution(statements_.count_live, more).Finish());
  const std::string parent = RunParentOf(job);
  if (parent.empty()) return absl::OkStatus();
  return Execution(statements_.put_run_parent, std::string_view(parent)).Finish();
}

absl::Status SqliteJobStore::PutJobs(const Change& change) {
  for (size_t i = 0; i < change.jobs.size(); ++i) {
    const v1::Job& job = change.jobs[i];
    RETURN_IF_ERROR(PutJob(job));
    RETURN_IF_ERROR(Execution(statements_.raise_last_job_id, Signed(job.id())).Finish());
    if (change.request_ids.empty() || change.request_ids[i].empty()) continue;
    RETURN_IF_ERROR(PutRequest(job, change.request_ids[i]));
  }
  return absl::OkStatus();
}

absl::Status SqliteJobStore::PutEvents(const Change& change, uint64_t sequence) {
  for (const v1::Event& event : change.events) {
    v1::Event stored = event;
    stored.set_sequence(++sequence);
    ASSIGN_OR_RETURN(const std::string bytes, Serialised(stored));
    RETURN_IF_ERROR(
        Execution(statements_.put_event, Signed(sequence), Signed(event.job_id()), Blob{bytes})
            .Finish());
  }
  return absl::OkStatus();
}

absl::Status SqliteJobStore::PutNodes(const Change& change) {
  for (const v1::Node& node : change.nodes) {
    ASSIGN_OR_RETURN(const std::string bytes, Serialised(StoredPart(node)));
    RETURN_IF_ERROR(
        Execution(statements_.put_node, std::string_view(node.name()), Blob{bytes}).Finish());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SqliteJobStore::RunParents() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Execution query(statements_.run_parents);
  std::vector<std::string> folders;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return folders;
    folders.emplace_back(query.Bytes(0));
  }
}

// From here until the end of the check all that is committed goes to the log alone, so that the
// file itself stands still and can be read without the mutex.
absl::Status SqliteJobStore::BeginCheck() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(connection_->Execute("PRAGMA wal_autocheckpoint = 0"));
  ASSIGN_OR_RETURN(const int64_t busy, connection_->Integer("PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy != 0) return absl::UnavailableError(path_ + ": its log could not be taken in");
  ASSIGN_OR_RETURN(still_, Connection::OpenStill(path_, check_stopped_));
  return absl::OkStatus();
}

absl::Status SqliteJobStore::CheckAll() {
  if (path_ == ":memory:") return absl::OkStatus();
  absl::Status status = BeginCheck();
  Connection* still = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    still = still_.get();
  }
  if (status.ok() && check_stopped_) status = absl::CancelledError("the check was stopped");
  if (status.ok()) status = CheckPages(*still);
  if (status.ok()) status = CheckRows(*still);
  const std::lock_guard<std::mutex> lock(mutex_);
  still_ = nullptr;
  const absl::Status as_before = connection_->Execute(kAutoCheckpoint);
  if (absl::IsDataLoss(status)) return NoteDamage(status);
  return status.ok() ? as_before : status;
}

void SqliteJobStore::StopCheck() {
  check_stopped_ = true;
  // Again, since what begins just now misses it.
  for (int i = 0; i < kMostInterrupts; ++i) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (still_ == nullptr) return;
      still_->Interrupt();
    }
    std::this_thread::sleep_for(kInterruptPause);
  }
}

absl::StatusOr<uint64_t> SqliteJobStore::Bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ASSIGN_OR_RETURN(const int64_t bytes,
                   connection_->Integer("SELECT page_count * page_size"
                                        " FROM pragma_page_count, pragma_page_size"));
  return static_cast<uint64_t>(bytes);
}

absl::Status SqliteJobStore::CopyPages(const std::string& scratch, const BackupProgress& progress) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex_);
  ASSIGN_OR_RETURN(std::unique_ptr<PageCopy> copy, PageCopy::Begin(*connection_, scratch));
  absl::Status told;
  while (told.ok()) {
    const Clock::time_point begin = Clock::now();
    ASSIGN_OR_RETURN(const bool done, copy->Step());
    if (done) return absl::OkStatus();
    const uint64_t bytes_done = copy->done(), bytes_total = copy->total();
    lock.unlock();
    told = progress(bytes_done, bytes_total);
    // A mutex takes nobody in turn: who waits for it gets it now, and as much time as we have had.
    std::this_thread::sleep_for(std::max(Clock::now() - begin, Clock::duration(kLeastPause)));
    lock.lock();
  }
  return told;
}

// By way of a file beside the store: SQLite copies with the store's mutex held, and a disk of
// backups that does not answer, as one over a network, would hold up all that is committed.
absl::StatusOr<BackupReport> SqliteJobStore::Backup(const std::string& path,
                                                    const BackupProgress& progress) {
  if (path_ == ":memory:") {
    return absl::FailedPreconditionError("a job store in memory has no backup");
  }
  const std::unique_lock<std::mutex> one_at_a_time(backup_mutex_, std::try_to_lock);
  if (!one_at_a_time.owns_lock()) {
    return absl::FailedPreconditionError(
        base::Text(path_, ": another backup of it is being made; try again when it has ended"));
  }
  RETURN_IF_ERROR(CheckFree(path));
  ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFile> target, ScratchFile::MakeBeside(path));
  {
    ASSIGN_OR_RETURN(const uint64_t bytes, Bytes());
    RETURN_IF_ERROR(CheckRoom(path_, bytes));
    ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFile> scratch,
                     ScratchFile::MakeAnew(path_ + kScratchSuffix));
    // Both halves of the way.
    const BackupProgress first = [&](uint64_t done, uint64_t total) {
      return progress(done / 2, total);
    };
    const BackupProgress second = [&](uint64_t done, uint64_t total) {
      return progress(total / 2 + done / 2, total);
    };
    RETURN_IF_ERROR(CopyPages(scratch->path(), first));
    RETURN_IF_ERROR(CopyFlushed(scratch->path(), target->path(), second));
  }
  ASSIGN_OR_RETURN(const BackupReport report, InspectBackup(target->path(), migrations_));
  RETURN_IF_ERROR(progress(report.bytes, report.bytes));
  RETURN_IF_ERROR(Publish(*target, path));
  return report;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> OpenSqliteStore(const std::string& path,
                                                          std::span<const Migration> migrations,
                                                          StoreCheck check) {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, OpenStoreFile(path, migrations, check));
  auto store = std::make_unique<SqliteJobStore>(std::move(connection), migrations);
  RETURN_IF_ERROR(store->Prepare());
  // The file is ours: no other backup is being made. Of one that was killed:
  if (path != ":memory:") RemoveScratch(path + kScratchSuffix);
  return store;
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path,
                                                         StoreCheck check) {
  return OpenSqliteStore(path, Migrations(), check);
}

}  // namespace trireme::coordinator
