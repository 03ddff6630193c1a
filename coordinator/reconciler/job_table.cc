// One mutex over plain maps: a read copies what it answers with.
#include "coordinator/reconciler/job_table.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kLargestPage = 1000;
constexpr size_t kOlderLooked = 1000;  // in the store, for one page
constexpr const char* kNeedsStore = "trireme/needs_store";

bool Wanted(const v1::Job& job, const v1::ListRequest& request) {
  if (!request.owner().empty() && job.owner() != request.owner()) return false;
  if (!request.name().empty() && job.name() != request.name()) return false;
  if (request.states().empty()) return true;
  return std::find(request.states().begin(), request.states().end(), job.status().state()) !=
         request.states().end();
}

// All that have not ended are here, whatever else is not.
bool WantsOnlyUnended(const v1::ListRequest& request) {
  return !request.states().empty() &&
         std::none_of(request.states().begin(), request.states().end(),
                      [](int state) { return HasEnded(static_cast<v1::JobState>(state)); });
}

// False: it has `size` already, and says so.
bool AddTo(v1::ListResponse& page, v1::Job job, size_t size) {
  if (page.jobs_size() == static_cast<int>(size)) {
    page.set_next_page_token(absl::StrCat(page.jobs(page.jobs_size() - 1).id()));
    return false;
  }
  job.clear_spec();
  *page.add_jobs() = std::move(job);
  return true;
}

}  // namespace

std::string QueueText(size_t before) {
  return absl::StrCat("waits in the queue: ", before, before == 1 ? " job is" : " jobs are",
                      " before it");
}

absl::Status NoSuchJob(uint64_t job_id) {
  return absl::NotFoundError(
      absl::StrCat("there is no job ", job_id, "; trireme list --all shows them"));
}

absl::Status AskTheStore() {
  absl::Status status = absl::UnavailableError("not all jobs are here yet; ask again");
  status.SetPayload(kNeedsStore, absl::Cord());
  return status;
}

bool NeedsStore(const absl::Status& status) { return status.GetPayload(kNeedsStore).has_value(); }

absl::Status OfStore(const absl::Status& status, std::string_view what) {
  if (status.ok()) return status;
  const std::string text = base::Text(what, ": ", base::MessageOf(status));
  return absl::IsDataLoss(status) ? absl::DataLossError(text) : absl::UnavailableError(text);
}

void JobTable::Publish(const std::vector<v1::Job>& jobs, const std::vector<v1::Event>& events) {
  std::vector<std::shared_ptr<const v1::Job>> copies;
  for (const v1::Job& job : jobs) {
    const auto copy = std::make_shared<v1::Job>(job);
    copy->clear_launch_key();  // whoever reads it could take the names that have it
    copies.push_back(copy);
  }
  {
    const absl::MutexLock lock(&mutex_);
    for (auto& copy : copies) {
      const uint64_t id = copy->id();
      // What its ranks waited for on an allocation that it no longer has, or not yet.
      if (copy->allocation().empty()) allocated_waits_.erase(id);
      Put(std::move(copy));
    }
    for (const v1::Event& event : events) {
      TRIREME_CHECK(events_.empty() || event.sequence() == last_sequence_ + 1);
      last_sequence_ = event.sequence();
      events_.push_back(event);
    }
    while (events_.size() > kEventsKept) events_.pop_front();
  }
  Announce();
}

void JobTable::Put(std::shared_ptr<const v1::Job> job) {
  const uint64_t id = job->id();
  if (job->status().attempt_live()) {
    live_.insert(id);
  } else {
    live_.erase(id);
  }
  rows_[id].job = std::move(job);
}

void JobTable::OlderAreAway() {
  const absl::MutexLock lock(&mutex_);
  here_from_ = UINT64_MAX;
}

void JobTable::PublishOlder(std::vector<v1::Job> jobs, uint64_t down_to) {
  std::vector<std::shared_ptr<const v1::Job>> owned;
  for (v1::Job& job : jobs) owned.push_back(std::make_shared<const v1::Job>(std::move(job)));
  const absl::MutexLock lock(&mutex_);
  for (auto& job : owned) {
    if (rows_[job->id()].job == nullptr) Put(std::move(job));
  }
  if (down_to != 0) here_from_ = down_to;
}

void JobTable::OlderAreHere() {
  const absl::MutexLock lock(&mutex_);
  here_from_ = 0;
}

template <typename Value>
absl::StatusOr<std::optional<Value>> JobTable::Look(
    uint64_t job_id, JobStore* store,
    const std::function<Value(const v1::Job& job, const Row* row)>& look) const {
  {
    const absl::ReaderMutexLock lock(&mutex_);
    if (const auto row = rows_.find(job_id); row != rows_.end()) {
      return look(*row->second.job, &row->second);
    }
    // Under the same lock: one that comes here later is in the store.
    if (job_id >= here_from_) return std::nullopt;
  }
  if (store == nullptr) return AskTheStore();
  const absl::StatusOr<std::optional<v1::Job>> found = store->FindJob(job_id);
  if (!found.ok()) {
    return OfStore(found.status(), absl::StrCat("job ", job_id, " cannot be looked up"));
  }
  if (!*found) return std::nullopt;
  return look(**found, nullptr);
}

void JobTable::Drop(const std::vector<uint64_t>& job_ids) {
  const absl::MutexLock lock(&mutex_);
  for (const uint64_t id : job_ids) {
    const auto row = rows_.find(id);
    if (row == rows_.end()) continue;
    moved_.erase(row->second.progress_version);
    allocated_waits_.erase(id);
    live_.erase(id);
    rows_.erase(row);
  }
}

void JobTable::PutProgress(uint64_t job_id, const v1::Progress& progress) {
  const absl::MutexLock lock(&mutex_);
  const auto row = rows_.find(job_id);
  if (row == rows_.end()) return;
  moved_.erase(row->second.progress_version);
  row->second.progress = progress;
  row->second.progress_version = ++progress_version_;
  moved_[progress_version_] = job_id;
}

void JobTable::ForEach(
    const std::function<void(const v1::Job& job, const v1::Progress* progress)>& look) const {
  const absl::ReaderMutexLock lock(&mutex_);
  for (const auto& [id, row] : rows_) {
    look(*row.job, row.progress_version == 0 ? nullptr : &row.progress);
  }
}

void JobTable::ForEachLive(const std::function<void(const v1::Job& job)>& look) const {
  const absl::ReaderMutexLock lock(&mutex_);
  for (const uint64_t id : live_) look(*rows_.at(id).job);
}

void JobTable::PutInQueue(const QueueKey& job, std::optional<uint64_t> line) {
  const absl::MutexLock lock(&mutex_);
  if (line) {
    queue_[job] = *line;
  } else {
    queue_.erase(job);
  }
}

void JobTable::PutWaits(std::shared_ptr<const Waits> waits,
                        std::map<uint64_t, std::string> allocated) {
  // What is swapped out goes when the lock is free again.
  const absl::MutexLock lock(&mutex_);
  waits_.swap(waits);
  allocated_waits_.swap(allocated);
}

void JobTable::PutCluster(v1::Cluster cluster) {
  const absl::MutexLock lock(&mutex_);
  cluster_.Swap(&cluster);
}

void JobTable::Announce() {
  const absl::MutexLock lock(&subscribers_mutex_);
  for (const auto& [id, news] : subscribers_) news();
}

QueuePlace JobTable::Place(const QueueKey& job) const {
  QueuePlace place{queue_.order_of_key(job)};
  if (place.before > 0) place.last_before = queue_.find_by_order(place.before - 1)->first.job_id;
  return place;
}

QueuePlace JobTable::PlaceOf(const QueueKey& job) const {
  const absl::ReaderMutexLock lock(&mutex_);
  return Place(job);
}

v1::Job JobTable::Whole(uint64_t id, const Row& row) const {
  v1::Job job = *row.job;
  if (row.progress_version != 0) *job.mutable_progress() = row.progress;
  if (job.status().state() != v1::JOB_PENDING) {
    const auto wait = allocated_waits_.find(id);
    if (wait != allocated_waits_.end()) job.set_waits_for(wait->second);
    return job;
  }
  const QueueKey key{-int64_t{job.priority()}, job.submitted_unix_ns(), id};
  const auto found = queue_.find(key);
  if (found == queue_.end()) return job;
  const QueuePlace place = Place(key);
  std::string reason = waits_ ? waits_->ReasonOf(id, found->second, place) : "";
  job.set_queue_position(static_cast<uint32_t>(place.before + 1));
  // Of one that was submitted since the last decision nothing else is known.
  job.set_waits_for(reason.empty() ? QueueText(place.before) : std::move(reason));
  return job;
}

absl::StatusOr<std::optional<v1::Job>> JobTable::Find(uint64_t job_id, JobStore* store) const {
  return Look<v1::Job>(job_id, store, [&](const v1::Job& job, const Row* row) {
    if (row == nullptr) return job;
    mutex_.AssertReaderHeld();
    return Whole(job_id, *row);
  });
}

absl::StatusOr<v1::Job> JobTable::Get(uint64_t job_id, JobStore* store) const {
  ASSIGN_OR_RETURN(std::optional<v1::Job> job, Find(job_id, store));
  if (!job) return NoSuchJob(job_id);
  return *std::move(job);
}

bool JobTable::ListRows(const v1::ListRequest& request, uint64_t before, uint64_t down_to,
                        size_t size, v1::ListResponse& page) const {
  for (auto row = std::make_reverse_iterator(rows_.lower_bound(before));
       row != rows_.rend() && row->first >= down_to; ++row) {
    if (!Wanted(*row->second.job, request)) continue;
    if (!AddTo(page, Whole(row->first, row->second), size)) return true;
  }
  return false;
}

absl::Status JobTable::ListOlder(const v1::ListRequest& request, JobStore& store, uint64_t before,
                                 size_t size, v1::ListResponse& page) const {
  absl::StatusOr<std::vector<v1::Job>> older = store.JobsBefore(before, kOlderLooked);
  RETURN_IF_ERROR(OfStore(older.status(), "jobs that have ended cannot be listed"));
  std::vector<v1::Job>& jobs = *older;
  const uint64_t last = jobs.size() == kOlderLooked ? jobs.back().id() : 0;
  const absl::ReaderMutexLock lock(&mutex_);
  for (v1::Job& job : jobs) {
    // Of those that have not ended the row knows more.
    const auto row = rows_.find(job.id());
    if (row != rows_.end()) job = Whole(job.id(), row->second);
    if (!Wanted(job, request)) continue;
    if (!AddTo(page, std::move(job), size)) return absl::OkStatus();
  }
  if (last != 0) page.set_next_page_token(absl::StrCat(last));
  return absl::OkStatus();
}

absl::StatusOr<v1::ListResponse> JobTable::List(const v1::ListRequest& request,
                                                JobStore* store) const {
  uint64_t before = UINT64_MAX;
  const std::string& token = request.page_token();
  if (!token.empty()) {
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), before);
    if (error != std::errc() || end != token.data() + token.size()) {
      return absl::InvalidArgumentError("page_token: not one that List has given");
    }
  }
  const uint32_t asked = request.page_size() == 0 ? kDefaultPage : request.page_size();
  const uint32_t size = std::min(asked, kLargestPage);
  v1::ListResponse page;
  uint64_t from = 0;
  {
    const absl::ReaderMutexLock lock(&mutex_);
    if (!WantsOnlyUnended(request)) from = here_from_;
    if (ListRows(request, before, from, size, page) || from == 0) return page;
  }
  if (store == nullptr) return AskTheStore();
  RETURN_IF_ERROR(ListOlder(request, *store, std::min(before, from), size, page));
  return page;
}

v1::Cluster JobTable::cluster() const {
  const absl::ReaderMutexLock lock(&mutex_);
  v1::Cluster cluster = cluster_;
  cluster.set_last_sequence(last_sequence_);
  return cluster;
}

std::optional<v1::Progress> JobTable::ProgressOf(uint64_t job_id) const {
  const absl::ReaderMutexLock lock(&mutex_);
  const auto row = rows_.find(job_id);
  if (row == rows_.end() || row->second.progress_version == 0) return std::nullopt;
  return row->second.progress;
}

std::vector<v1::JobProgress> JobTable::ProgressSince(uint64_t& version) const {
  std::vector<v1::JobProgress> moved;
  const absl::ReaderMutexLock lock(&mutex_);
  for (auto at = moved_.upper_bound(version); at != moved_.end(); ++at) {
    v1::JobProgress& one = moved.emplace_back();
    one.set_job_id(at->second);
    *one.mutable_progress() = rows_.at(at->second).progress;
  }
  version = progress_version_;
  return moved;
}

uint64_t JobTable::last_sequence() const {
  const absl::ReaderMutexLock lock(&mutex_);
  return last_sequence_;
}

bool JobTable::OlderHaveCome() const {
  const absl::ReaderMutexLock lock(&mutex_);
  return here_from_ == 0;
}

absl::StatusOr<std::string> JobTable::OwnerOf(uint64_t job_id, JobStore* store) const {
  ASSIGN_OR_RETURN(
      const std::optional<std::string> owner,
      Look<std::string>(job_id, store, [](const v1::Job& job, const Row*) { return job.owner(); }));
  return owner.value_or("");
}

std::optional<v1::JobStatus> JobTable::StatusOf(uint64_t job_id) const {
  const absl::ReaderMutexLock lock(&mutex_);
  const auto row = rows_.find(job_id);
  if (row == rows_.end()) return std::nullopt;
  return row->second.job->status();
}

std::optional<std::vector<v1::Event>> JobTable::EventsAfter(uint64_t sequence, size_t limit) const {
  const absl::ReaderMutexLock lock(&mutex_);
  std::vector<v1::Event> found;
  if (sequence >= last_sequence_) return found;
  if (events_.empty() || sequence + 1 < events_.front().sequence()) return std::nullopt;
  const size_t begin = sequence + 1 - events_.front().sequence();
  const size_t end = std::min(events_.size(), begin + limit);
  found.assign(events_.begin() + static_cast<std::ptrdiff_t>(begin),
               events_.begin() + static_cast<std::ptrdiff_t>(end));
  return found;
}

int JobTable::Subscribe(std::function<void()> news) {
  const absl::MutexLock lock(&subscribers_mutex_);
  const int subscription = next_subscription_++;
  subscribers_[subscription] = std::move(news);
  return subscription;
}

void JobTable::Unsubscribe(int subscription) {
  const absl::MutexLock lock(&subscribers_mutex_);
  subscribers_.erase(subscription);
}

}  // namespace trireme::coordinator
