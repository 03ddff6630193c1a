// A read may be slow beyond any caller's patience: it leaves what it has found where the next
// caller looks, and a later one goes on from there.
#include "coordinator/dashboard/stall_board.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_store/job_store.h"

namespace trireme::dashboard {
namespace {

constexpr size_t kPiece = 1000;

}  // namespace

// What lies between the board and its reads, of which there is one at a time.
class StallBoard::Shelf {
 public:
  struct Found {
    Jobs jobs;
    uint64_t up_to = 0;  // what is newer was left out
  };

  // False: one is under way.
  bool Begin() {
    const absl::MutexLock lock(&mutex_);
    return !std::exchange(under_way_, true);
  }
  void End() {
    const absl::MutexLock lock(&mutex_);
    under_way_ = false;
  }
  void Put(Found found) {
    const absl::MutexLock lock(&mutex_);
    found_ = std::move(found);
  }
  std::optional<Found> Take() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(found_, std::nullopt);
  }

 private:
  absl::Mutex mutex_;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Found> found_ ABSL_GUARDED_BY(mutex_);
};

// Its end lets the next one begin, also where no thread has come to it.
class StallBoard::Read {
 public:
  // Shelf::Begin has let it.
  Read(std::shared_ptr<Shelf> shelf, Shelf::Found known, std::chrono::milliseconds time)
      : shelf_(std::move(shelf)), found_(std::move(known)), time_(time) {}
  ~Read() { shelf_->End(); }
  Read(const Read&) = delete;
  Read& operator=(const Read&) = delete;

  bool empty() const { return found_.jobs.empty(); }
  // A piece at least, so that every read gets on. A job of which the store does not say keeps no
  // other waiting.
  void Run(coordinator::JobStore& store) {
    const auto began = std::chrono::steady_clock::now();
    bool in_time = true;
    for (auto& [id, known] : found_.jobs) {
      bool said = true;
      while (in_time && said && !known.whole) {
        said = ReadOn(store, id, known);
        in_time = std::chrono::steady_clock::now() - began < time_;
      }
    }
    shelf_->Put(std::move(found_));
  }

 private:
  // False: the store did not say.
  bool ReadOn(coordinator::JobStore& store, uint64_t id, Known& known) const {
    coordinator::EventQuery query;
    query.job_id = id;
    query.after_sequence = known.read_to;
    query.limit = kPiece;
    const auto events = store.Events(query);
    if (!events.ok()) return false;
    for (const v1::Event& event : *events) {
      if (event.sequence() > found_.up_to) break;  // the table has it
      if (event.has_stalled()) known.ranks.Take(event);
      known.read_to = event.sequence();
    }
    known.whole = events->size() < kPiece || events->back().sequence() > found_.up_to;
    return true;
  }

  const std::shared_ptr<Shelf> shelf_;
  Shelf::Found found_;
  const std::chrono::milliseconds time_;
};

StallBoard::StallBoard(coordinator::StoreReads& reads, std::chrono::milliseconds time)
    : reads_(reads), table_(reads.table()), time_(time), shelf_(std::make_shared<Shelf>()) {}

std::vector<StallBoard::Texts> StallBoard::Of(std::span<const v1::Job> jobs) {
  ReadUnknown(jobs);
  const absl::MutexLock lock(&mutex_);
  std::vector<Texts> texts;
  for (const v1::Job& job : jobs) {
    const auto known = jobs_.find(job.id());
    const bool told = job.status().attempt_live() && known != jobs_.end() && known->second.whole;
    texts.push_back(told ? known->second.ranks.Of(job.status().attempt()) : Texts());
  }
  return texts;
}

void StallBoard::ReadUnknown(std::span<const v1::Job> jobs) {
  std::shared_ptr<Read> read;
  {
    const absl::MutexLock lock(&mutex_);
    // In this order: the last read has put there all that it has found.
    const bool may = shelf_->Begin();
    TakeFromShelf();
    if (!may) return;
    read = std::make_shared<Read>(shelf_, Shelf::Found{UnknownOf(jobs), seen_}, time_);
  }
  if (read->empty()) return;
  coordinator::DiskPath where = reads_.Where("");
  where.deadline = time_;
  // The call alone has it: its end is that of the call.
  const absl::Status answered =
      reads_.disks().Wait(where, [store = reads_.store(), read = std::move(read)] {
        read->Run(*store);
        return absl::OkStatus();
      });
  if (!answered.ok()) return;
  const absl::MutexLock lock(&mutex_);
  TakeFromShelf();
}

StallBoard::Jobs StallBoard::UnknownOf(std::span<const v1::Job> jobs) const {
  Jobs unknown;
  for (const v1::Job& job : jobs) {
    if (!job.status().attempt_live()) continue;
    const auto known = jobs_.find(job.id());
    if (known == jobs_.end()) unknown[job.id()];
    if (known != jobs_.end() && !known->second.whole) unknown[job.id()] = known->second;
  }
  return unknown;
}

void StallBoard::TakeFromShelf() {
  CatchUp();
  std::optional<Shelf::Found> found = shelf_->Take();
  if (!found || !Follow(found->jobs, found->up_to, seen_)) return;
  for (auto& [id, known] : found->jobs) jobs_[id] = std::move(known);
}

void StallBoard::CatchUp() {
  const uint64_t last = table_.last_sequence();
  if (!Follow(jobs_, seen_, last)) jobs_.clear();
  seen_ = last;
}

bool StallBoard::Follow(Jobs& jobs, uint64_t from, uint64_t to) const {
  while (from < to && !jobs.empty()) {
    const auto events = table_.EventsAfter(from, kPiece);
    if (!events) return false;
    for (const v1::Event& event : *events) {
      from = event.sequence();
      const auto found = jobs.find(event.job_id());
      if (from > to || found == jobs.end()) continue;
      // Of one that is not whole it comes after what is to be read yet.
      if (event.has_stalled() && found->second.whole) found->second.ranks.Take(event);
      if (event.has_state_changed() && coordinator::HasEnded(event.state_changed().to())) {
        jobs.erase(found);
      }
    }
  }
  return true;
}

}  // namespace trireme::dashboard
