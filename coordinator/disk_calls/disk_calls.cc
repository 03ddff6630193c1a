// One mutex for all file systems: it is held for moments only, never while a call or an answer
// runs.
#include "coordinator/disk_calls/disk_calls.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/disk_calls/mounts.h"
#include "coordinator/task_thread/fair_queue.h"

namespace trireme::coordinator {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = std::function<void(const absl::Status&)>;

constexpr size_t kMostThreads = 256;  // of all file systems together
constexpr absl::Duration kIdle = absl::Seconds(10);
constexpr absl::Duration kGraceAtEnd = absl::Seconds(1);

absl::Status Stopping() { return absl::UnavailableError("the daemon is stopping; ask again"); }

std::string Named(const Mount& mount) {
  if (mount.type.empty()) return fmt::format("the file system at {}", mount.folder);
  return fmt::format("the file system at {} ({}, {})", mount.folder, mount.type, mount.source);
}

constexpr char kAdvice[] = "see on this machine whether it is mounted and its server answers";

}  // namespace

class DiskCalls::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(DiskCallsOptions options) : options_(std::move(options)) {}

  absl::Status Post(const DiskPath& where, std::function<void()> work, Answer answer);
  void KeepDeadlines();
  void Stop();
  size_t waiting() const {
    const absl::MutexLock lock(&mutex_);
    size_t count = 0;
    for (const auto& [key, lane] : lanes_) count += lane->waiting.size();
    return count;
  }
  size_t hanging() const {
    const absl::MutexLock lock(&mutex_);
    return hanging_;
  }

 private:
  struct Lane;
  struct Call {
    std::shared_ptr<Lane> lane;
    std::string path;
    std::chrono::milliseconds limit{};
    std::function<void()> work;
    Answer answer;  // empty: it has been
    bool runs = false;
    bool hangs = false;
    std::multimap<Clock::time_point, std::shared_ptr<Call>>::iterator deadline;
  };
  // Of one file system.
  struct Lane {
    std::string key;
    Mount mount;  // by which it was asked first
    FairQueue<std::shared_ptr<Call>> waiting;
    size_t threads = 0;
    size_t idle = 0;
    size_t hanging = 0;
    absl::CondVar wake;
  };
  struct Due {
    Answer answer;
    absl::Status status;
  };

  void Serve(const std::shared_ptr<Lane>& lane);
  // Null: the thread is to end, and counts no more.
  std::shared_ptr<Call> Next(const std::shared_ptr<Lane>& lane);
  void StartThread(const std::shared_ptr<Lane>& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Room(const Lane& lane, const DiskPath& where) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllHang(const Lane& lane) const { return lane.hanging >= options_.threads; }
  absl::Status AllHangError(const Lane& lane, const std::string& path) const;
  // No deadline any more; it is to be given the status, after the lock, by Give.
  void Take(Call& call, absl::Status status, std::vector<Due>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(Call& call, std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(std::vector<Due> due);

  const DiskCallsOptions options_;
  MountTable mounts_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mutex_);  // with threads
  std::multimap<Clock::time_point, std::shared_ptr<Call>> deadlines_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar deadline_changed_;
  absl::CondVar quieter_;
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;    // of these, in a call
  size_t hanging_ ABSL_GUARDED_BY(mutex_) = 0;    // of those, beyond its deadline
  size_t answering_ ABSL_GUARDED_BY(mutex_) = 0;  // answers that are due or under way
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status DiskCalls::Pool::AllHangError(const Lane& lane, const std::string& path) const {
  return absl::UnavailableError(
      fmt::format("{}: not asked for, because {} calls on {} hang already; {}", path, lane.hanging,
                  Named(lane.mount), kAdvice));
}

absl::Status DiskCalls::Pool::Room(const Lane& lane, const DiskPath& where) const {
  if (AllHang(lane)) return AllHangError(lane, where.path);
  const size_t of_owner = lane.waiting.SizeOf(where.owner);
  const bool too_many = options_.most_of_owner > 0 && of_owner >= options_.most_of_owner;
  if (lane.waiting.size() < options_.most_waiting && !too_many) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "{} requests{} wait for {} already; try again later",
      too_many ? of_owner : lane.waiting.size(), too_many ? " of yours" : "", Named(lane.mount)));
}

absl::Status DiskCalls::Pool::Post(const DiskPath& where, std::function<void()> work,
                                   Answer answer) {
  Mount mount = mounts_.Of(where.path);
  const absl::MutexLock lock(&mutex_);
  if (ending_) return Stopping();
  const auto known = lanes_.find(mount.device);
  auto lane = known == lanes_.end() ? std::make_shared<Lane>() : known->second;
  if (known == lanes_.end()) {
    lane->key = mount.device;
    lane->mount = std::move(mount);
  }
  if (const absl::Status room = Room(*lane, where); !room.ok()) return room;
  if (lane->waiting.size() >= lane->idle && lane->threads < options_.threads) StartThread(lane);
  if (lane->threads == 0) {
    return absl::UnavailableError(
        fmt::format("{}: not asked for, because {} threads wait for file systems already; see "
                    "whether those of this machine answer",
                    where.path, threads_));
  }
  auto call = std::make_shared<Call>();
  call->lane = lane;
  call->path = where.path;
  call->limit = where.deadline.count() > 0 ? where.deadline : options_.deadline;
  call->work = std::move(work);
  call->answer = std::move(answer);
  call->deadline = deadlines_.emplace(Clock::now() + call->limit, call);
  if (call->deadline == deadlines_.begin()) deadline_changed_.Signal();
  lane->waiting.Add(std::move(call), where.owner);
  lane->wake.Signal();
  return absl::OkStatus();
}

// Detached, because one that hangs cannot be joined; it owns the pool with us.
void DiskCalls::Pool::StartThread(const std::shared_ptr<Lane>& lane) {
  if (threads_ >= kMostThreads) return;
  try {
    std::thread thread([self = shared_from_this(), lane] { self->Serve(lane); });
    pthread_setname_np(thread.native_handle(), options_.name.substr(0, 15).c_str());
    thread.detach();
  } catch (const std::system_error&) {
    return;
  }
  ++threads_;
  if (++lane->threads == 1) lanes_[lane->key] = lane;
}

std::shared_ptr<DiskCalls::Pool::Call> DiskCalls::Pool::Next(const std::shared_ptr<Lane>& lane) {
  const absl::MutexLock lock(&mutex_);
  const absl::Time until = absl::Now() + kIdle;
  while (true) {
    ++lane->idle;
    bool late = false;
    while (lane->waiting.size() == 0 && !ending_ && !late) {
      late = lane->wake.WaitWithDeadline(&mutex_, until);
    }
    --lane->idle;
    while (lane->waiting.size() > 0) {
      std::shared_ptr<Call> call = lane->waiting.Take();
      if (!call->answer) continue;  // its deadline came first
      call->runs = true;
      ++running_;
      return call;
    }
    if (ending_ || late) break;
  }
  --threads_;
  if (--lane->threads == 0) lanes_.erase(lane->key);
  quieter_.SignalAll();
  return nullptr;
}

void DiskCalls::Pool::Serve(const std::shared_ptr<Lane>& lane) {
  while (const std::shared_ptr<Call> call = Next(lane)) {
    call->work();
    call->work = nullptr;  // with what it owns, as files that are to be closed
    std::vector<Due> due;
    {
      const absl::MutexLock lock(&mutex_);
      call->runs = false;
      --running_;
      if (call->hangs) {
        --hanging_;
        --lane->hanging;
      }
      if (call->answer) Take(*call, absl::OkStatus(), due);
      quieter_.SignalAll();
    }
    Give(std::move(due));
  }
}

void DiskCalls::Pool::Take(Call& call, absl::Status status, std::vector<Due>& due) {
  due.push_back({std::exchange(call.answer, nullptr), std::move(status)});
  ++answering_;
  deadlines_.erase(call.deadline);
}

void DiskCalls::Pool::Give(std::vector<Due> due) {
  const size_t count = due.size();
  for (Due& each : due) {
    each.answer(each.status);
    each.answer = nullptr;
  }
  const absl::MutexLock lock(&mutex_);
  answering_ -= count;
  quieter_.SignalAll();
}

void DiskCalls::Pool::Expire(Call& call, std::vector<Due>& due) {
  Lane& lane = *call.lane;
  const double seconds = static_cast<double>(call.limit.count()) / 1000;
  absl::Status status = absl::DeadlineExceededError(fmt::format(
      "{}: {} has not answered within {} s; {}", call.path, Named(lane.mount), seconds, kAdvice));
  if (call.runs) {
    call.hangs = true;
    ++hanging_;
    ++lane.hanging;
  }
  Take(call, std::move(status), due);
  if (!AllHang(lane)) return;
  while (lane.waiting.size() > 0) {
    const std::shared_ptr<Call> other = lane.waiting.Take();
    if (other->answer) Take(*other, AllHangError(lane, other->path), due);
  }
}

void DiskCalls::Pool::KeepDeadlines() {
  while (true) {
    std::vector<Due> due;
    {
      const absl::MutexLock lock(&mutex_);
      if (ending_) return;
      if (deadlines_.empty()) {
        deadline_changed_.Wait(&mutex_);
        continue;
      }
      const auto left = deadlines_.begin()->first - Clock::now();
      if (left.count() > 0) {
        deadline_changed_.WaitWithTimeout(&mutex_, absl::FromChrono(left));
        continue;
      }
      // By a copy of the pointer: its place in the list goes.
      const std::shared_ptr<Call> late = deadlines_.begin()->second;
      Expire(*late, due);
    }
    Give(std::move(due));
  }
}

void DiskCalls::Pool::Stop() {
  std::vector<Due> due;
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
    deadline_changed_.SignalAll();
    for (const auto& [key, lane] : lanes_) {
      while (lane->waiting.size() > 0) {
        const std::shared_ptr<Call> call = lane->waiting.Take();
        if (call->answer) Take(*call, Stopping(), due);
      }
      lane->wake.SignalAll();
    }
  }
  Give(std::move(due));
  due.clear();
  {
    const absl::MutexLock lock(&mutex_);
    const absl::Time until = absl::Now() + kGraceAtEnd;
    while (running_ > hanging_) {
      if (quieter_.WaitWithDeadline(&mutex_, until)) break;
    }
    while (!deadlines_.empty()) {
      const std::shared_ptr<Call> call = deadlines_.begin()->second;
      Take(*call, Stopping(), due);
    }
  }
  Give(std::move(due));
  const absl::MutexLock lock(&mutex_);
  while (answering_ > 0 || threads_ > running_) quieter_.Wait(&mutex_);
}

DiskCalls::DiskCalls(DiskCallsOptions options)
    : pool_(std::make_shared<Pool>(std::move(options))),
      clock_([pool = pool_] { pool->KeepDeadlines(); }) {}

DiskCalls::~DiskCalls() {
  Stop();
  clock_.join();
}

absl::Status DiskCalls::Post(const DiskPath& where, std::function<void()> work,
                             std::function<void(const absl::Status&)> answer) {
  return pool_->Post(where, std::move(work), std::move(answer));
}

void DiskCalls::Stop() { pool_->Stop(); }
size_t DiskCalls::waiting() const { return pool_->waiting(); }
size_t DiskCalls::hanging() const { return pool_->hanging(); }

}  // namespace trireme::coordinator
