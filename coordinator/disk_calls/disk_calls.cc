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
#include "coordinator/process/fair_queue.h"

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

std::string Named(const std::vector<Mount>& mounts) {
  std::string text;
  for (const Mount& mount : mounts) text += (text.empty() ? "" : " or ") + Named(mount);
  return text;
}

constexpr char kAdvice[] = "see on this machine whether it is mounted and its server answers";

}  // namespace

bool DiskPulse::Beat() {
  const absl::MutexLock lock(&mutex_);
  newest_.began = Clock::now();
  return !answered_;
}

bool DiskPulse::BeatAt(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  newest_ = {Clock::now(), path};
  return !answered_;
}

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
    Clock::time_point until;  // by then it is answered
    std::function<void()> work;
    Answer answer;  // empty: it has been
    bool runs = false;
    bool hangs = false;
    bool wanted = true;       // where it runs
    Clock::time_point began;  // where it runs
    std::shared_ptr<DiskPulse> pulse;
    // Of its deadline, or of when its thread is taken to hang: whichever is first.
    std::optional<std::multimap<Clock::time_point, std::shared_ptr<Call>>::iterator> timer;
  };
  // Of one file system, or of several together.
  struct Lane {
    std::string key;
    std::vector<Mount> mounts;  // by which it was asked first
    FairQueue<std::shared_ptr<Call>> waiting;
    // Answered while they waited. What they own may be on the disk, as a file that is to be closed:
    // the threads that may hang there are rid of them.
    std::vector<std::shared_ptr<Call>> dead;
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
  absl::Status LateError(const Call& call);
  // `step`: when what its thread is at began.
  static Clock::time_point AnswerBy(const Call& call, Clock::time_point step) {
    return call.pulse ? step + call.limit : call.until;
  }
  // Of each file system once.
  std::vector<Mount> MountsOf(const DiskPath& where);
  void Arm(const std::shared_ptr<Call>& call, Clock::time_point at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disarm(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No timer any more; it is to be given the status, after the lock, by Give.
  void Take(Call& call, absl::Status status, std::vector<Due>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeWaiting(Lane& lane, const std::function<absl::Status(const Call&)>& status,
                   std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(const std::shared_ptr<Call>& call, std::vector<Due>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(std::vector<Due> due);
  void CountHanging(Lane& lane, int by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    lane.hanging += static_cast<size_t>(by);
    hanging_ += static_cast<size_t>(by);
    if (options_.hanging_of_all) *options_.hanging_of_all += static_cast<size_t>(by);
  }

  const DiskCallsOptions options_;
  MountTable mounts_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mutex_);  // with threads
  std::multimap<Clock::time_point, std::shared_ptr<Call>> timers_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar timer_changed_;
  absl::CondVar quieter_;
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;    // of these, in a call
  size_t hanging_ ABSL_GUARDED_BY(mutex_) = 0;    // of those, for hangs_after
  size_t answering_ ABSL_GUARDED_BY(mutex_) = 0;  // answers that are due or under way
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status DiskCalls::Pool::AllHangError(const Lane& lane, const std::string& path) const {
  return absl::UnavailableError(
      fmt::format("{}: not asked for, because {} calls on {} hang already; {}", path, lane.hanging,
                  Named(lane.mounts), kAdvice));
}

absl::Status DiskCalls::Pool::LateError(const Call& call) {
  const std::string at = call.pulse ? call.pulse->newest().path : "";
  return absl::DeadlineExceededError(
      fmt::format("{}: {} has not answered within {} s; {}", at.empty() ? call.path : at,
                  at.empty() ? Named(call.lane->mounts) : Named(mounts_.Of(at)),
                  static_cast<double>(call.limit.count()) / 1000, kAdvice));
}

std::vector<Mount> DiskCalls::Pool::MountsOf(const DiskPath& where) {
  std::vector<Mount> mounts = {mounts_.Of(where.path)};
  for (const std::string& path : where.also) mounts.push_back(mounts_.Of(path));
  const auto by_device = [](const Mount& a, const Mount& b) { return a.device < b.device; };
  const auto same = [](const Mount& a, const Mount& b) { return a.device == b.device; };
  std::stable_sort(mounts.begin(), mounts.end(), by_device);
  mounts.erase(std::unique(mounts.begin(), mounts.end(), same), mounts.end());
  return mounts;
}

absl::Status DiskCalls::Pool::Room(const Lane& lane, const DiskPath& where) const {
  if (AllHang(lane)) return AllHangError(lane, where.path);
  const size_t of_owner = lane.waiting.SizeOf(where.owner);
  const bool too_many = options_.most_of_owner > 0 && of_owner >= options_.most_of_owner;
  if (lane.waiting.size() < options_.most_waiting && !too_many) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "{} requests{} wait for {} already; try again later",
      too_many ? of_owner : lane.waiting.size(), too_many ? " of yours" : "", Named(lane.mounts)));
}

absl::Status DiskCalls::Pool::Post(const DiskPath& where, std::function<void()> work,
                                   Answer answer) {
  std::vector<Mount> mounts = MountsOf(where);
  std::string key;
  for (const Mount& mount : mounts) key += mount.device + '+';
  const absl::MutexLock lock(&mutex_);
  if (ending_) return Stopping();
  const auto known = lanes_.find(key);
  auto lane = known == lanes_.end() ? std::make_shared<Lane>() : known->second;
  if (known == lanes_.end()) {
    lane->key = std::move(key);
    lane->mounts = std::move(mounts);
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
  call->until = Clock::now() + call->limit;
  call->pulse = where.pulse;
  if (!call->pulse) Arm(call, call->until);
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
    while (lane->waiting.size() == 0 && lane->dead.empty() && !ending_ && !late) {
      late = lane->wake.WaitWithDeadline(&mutex_, until);
    }
    --lane->idle;
    std::shared_ptr<Call> call;
    if (!lane->dead.empty()) {
      call = std::move(lane->dead.back());
      lane->dead.pop_back();
    } else if (lane->waiting.size() > 0) {
      call = lane->waiting.Take();
    }
    if (call) {
      call->runs = true;
      call->began = Clock::now();
      ++running_;
      call->wanted = call->answer != nullptr;  // else its deadline came first
      if (call->pulse) call->pulse->Beat();
      Disarm(*call);
      const Clock::time_point hangs_at = call->began + options_.hangs_after;
      Arm(call, call->wanted ? std::min(hangs_at, AnswerBy(*call, call->began)) : hangs_at);
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
    if (call->wanted) call->work();
    call->work = nullptr;  // with what it owns, as files that are to be closed
    std::vector<Due> due;
    {
      const absl::MutexLock lock(&mutex_);
      call->runs = false;
      --running_;
      if (call->hangs) {
        CountHanging(*lane, -1);
      }
      Disarm(*call);
      if (call->answer) Take(*call, absl::OkStatus(), due);
      quieter_.SignalAll();
    }
    Give(std::move(due));
  }
}

void DiskCalls::Pool::Arm(const std::shared_ptr<Call>& call, Clock::time_point at) {
  call->timer = timers_.emplace(at, call);
  if (*call->timer == timers_.begin()) timer_changed_.Signal();
}

void DiskCalls::Pool::Disarm(Call& call) {
  if (call.timer) timers_.erase(*call.timer);
  call.timer.reset();
}

void DiskCalls::Pool::Take(Call& call, absl::Status status, std::vector<Due>& due) {
  if (call.pulse) call.pulse->answered_ = true;
  due.push_back({std::exchange(call.answer, nullptr), std::move(status)});
  ++answering_;
  Disarm(call);
}

void DiskCalls::Pool::TakeWaiting(Lane& lane,
                                  const std::function<absl::Status(const Call&)>& status,
                                  std::vector<Due>& due) {
  while (lane.waiting.size() > 0) {
    lane.dead.push_back(lane.waiting.Take());
    Call& call = *lane.dead.back();
    if (call.answer) Take(call, status(call), due);
  }
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

// Whoever asked has waited long enough, or its thread has. That one hangs only once it has been at
// it for long enough itself: one that is merely late, behind many others, does not.
void DiskCalls::Pool::Expire(const std::shared_ptr<Call>& call, std::vector<Due>& due) {
  Lane& lane = *call->lane;
  Disarm(*call);
  const Clock::time_point now = Clock::now();
  const Clock::time_point step = call->pulse ? call->pulse->newest().began : call->began;
  if (call->answer && now >= AnswerBy(*call, step)) Take(*call, LateError(*call), due);
  if (!call->runs) return;
  const bool hangs = now >= step + options_.hangs_after;
  // One that hangs is looked at again: it may have got on.
  const Clock::time_point look = (hangs ? now : step) + options_.hangs_after;
  if (call->answer) Arm(call, std::min(look, AnswerBy(*call, step)));
  if (!call->answer && !hangs) Arm(call, look);
  if (hangs == call->hangs) return;
  call->hangs = hangs;
  CountHanging(lane, hangs ? 1 : -1);
  if (!hangs || !AllHang(lane)) return;
  TakeWaiting(
      lane, [&](const Call& other) { return AllHangError(lane, other.path); }, due);
}

void DiskCalls::Pool::KeepDeadlines() {
  while (true) {
    std::vector<Due> due;
    {
      const absl::MutexLock lock(&mutex_);
      if (ending_) return;
      if (timers_.empty()) {
        timer_changed_.Wait(&mutex_);
        continue;
      }
      const auto left = timers_.begin()->first - Clock::now();
      if (left.count() > 0) {
        timer_changed_.WaitWithTimeout(&mutex_, absl::FromChrono(left));
        continue;
      }
      // By a copy of the pointer: its place in the list goes.
      const std::shared_ptr<Call> late = timers_.begin()->second;
      Expire(late, due);
    }
    Give(std::move(due));
  }
}

void DiskCalls::Pool::Stop() {
  std::vector<Due> due;
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
    timer_changed_.SignalAll();
    for (const auto& [key, lane] : lanes_) {
      TakeWaiting(
          *lane, [](const Call&) { return Stopping(); }, due);
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
    while (!timers_.empty()) {
      const std::shared_ptr<Call> call = timers_.begin()->second;
      Disarm(*call);
      if (call->answer) Take(*call, Stopping(), due);
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
