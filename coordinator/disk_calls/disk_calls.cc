// One mutex for all file systems: it is held for moments only, never while a call or an answer
// runs. Threads are of none of them: whoever holds the mutex hands them calls, one lane after the
// other, as far as the bounds of lanes and file systems go.
#include "coordinator/disk_calls/disk_calls.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <map>
#include <system_error>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/disk_calls/mounts.h"
#include "coordinator/process/fair_queue.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = std::function<void(const absl::Status&)>;

// Calls of several file systems together that are under way have, for each of these, the threads of
// so many lanes: sets are many more than file systems, and all that one hangs in would hang.
constexpr size_t kLanesOfSets = 4;
constexpr std::chrono::seconds kIdle(10);
constexpr std::chrono::seconds kGraceAtEnd(1);

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

absl::Status NotAskedFor(const std::string& path, const std::string& why) {
  return absl::UnavailableError(fmt::format("{}: not asked for, because {}", path, why));
}

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
    for (const auto& [key, lane] : lanes_) count += lane.waiting.size();
    return count + handed_.size();
  }
  size_t hanging() const {
    const absl::MutexLock lock(&mutex_);
    return hanging_;
  }
  size_t lanes() const {
    const absl::MutexLock lock(&mutex_);
    return lanes_.size();
  }

 private:
  struct Lane;
  struct Call {
    Lane* lane = nullptr;  // is there while the call waits or runs
    std::string path;
    std::chrono::milliseconds limit{};
    Clock::time_point until;  // by then it is answered
    std::function<void()> work;
    Answer answer;  // empty: it has been
    bool runs = false;
    bool hangs = false;
    bool wanted = true;       // where it runs
    Clock::time_point began;  // where it runs
    // What its thread counts for: all that its lane asks, or, where it hangs in a step whose path
    // it has named, that one's file system alone.
    std::vector<const Mount*> at;
    std::shared_ptr<DiskPulse> pulse;
    // Of its deadline, or of when its thread is taken to hang: whichever is first.
    std::optional<std::multimap<Clock::time_point, std::shared_ptr<Call>>::iterator> timer;
  };
  // Of one file system, or of several together; forgotten when it has nothing to do.
  struct Lane {
    std::string key;
    std::vector<Mount> mounts;  // by which it was asked first
    FairQueue<std::shared_ptr<Call>> waiting;
    // Answered while they waited. What they own may be on the disk, as a file that is to be closed:
    // the threads that may hang there are rid of them.
    std::vector<std::shared_ptr<Call>> dead;
    size_t running = 0;  // also what has been handed to a thread
    size_t hanging = 0;
    bool several() const { return mounts.size() > 1; }
  };
  // Of one file system, over all lanes.
  struct Counts {
    size_t hanging = 0;  // calls that hang at it, and at no other
    size_t of_sets = 0;  // calls of several file systems under way that count for it
    size_t of_sets_hanging = 0;
  };
  struct Due {
    Answer answer;
    absl::Status status;
  };

  void Serve();
  // Null: the thread is to end, and counts no more. `done`: what it comes from.
  std::shared_ptr<Call> Next(Call* done);
  // What may run is handed to threads.
  void Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRun(const Lane& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Hand(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return handed_.size() < idle_ || StartThread();
  }
  bool StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Room(const Lane& lane, const DiskPath& where) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why what the lane asks is not asked for; empty: it is.
  std::string WhatHangs(const Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  // Of a call that runs: whether it hangs, and what it counts for by that.
  void SetHangs(Call& call, bool hangs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(const Call& call, int by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DiskCallsOptions options_;
  MountTable mounts_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  std::string last_lane_ ABSL_GUARDED_BY(mutex_);                 // whose turn it was
  std::map<std::string, Counts> counts_ ABSL_GUARDED_BY(mutex_);  // by device, none of zeros
  // No more than there are idle threads, which take them.
  std::deque<std::shared_ptr<Call>> handed_ ABSL_GUARDED_BY(mutex_);
  base::SteadyCondVar wake_;
  std::multimap<Clock::time_point, std::shared_ptr<Call>> timers_ ABSL_GUARDED_BY(mutex_);
  base::SteadyCondVar timer_changed_;
  base::SteadyCondVar quieter_;
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;       // of these, without a call
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;    // of these, in a call
  size_t hanging_ ABSL_GUARDED_BY(mutex_) = 0;    // of those, for hangs_after
  size_t answering_ ABSL_GUARDED_BY(mutex_) = 0;  // answers that are due or under way
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

std::string DiskCalls::Pool::WhatHangs(const Lane& lane) {
  const auto calls_on = [](size_t calls, const std::vector<Mount>& mounts) {
    return fmt::format("{} calls on {} hang already; {}", calls, Named(mounts), kAdvice);
  };
  for (const Mount& mount : lane.mounts) {
    const auto found = counts_.find(mount.device);
    if (found == counts_.end()) continue;
    const Counts& counts = found->second;
    if (counts.hanging >= options_.threads) return calls_on(counts.hanging, {mount});
    if (lane.several() && counts.of_sets_hanging >= kLanesOfSets * options_.threads) {
      return calls_on(counts.of_sets_hanging, {mount});
    }
  }
  if (lane.hanging >= options_.threads) return calls_on(lane.hanging, lane.mounts);
  if (hanging_ < threads_ || HasThread()) return "";
  return fmt::format(
      "{} threads hang at file systems already; see whether those of this machine answer",
      hanging_);
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

absl::Status DiskCalls::Pool::Room(const Lane& lane, const DiskPath& where) {
  if (const std::string hangs = WhatHangs(lane); !hangs.empty()) {
    return NotAskedFor(where.path, hangs);
  }
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
  Lane& lane = lanes_[key];
  if (lane.mounts.empty()) {
    lane.key = std::move(key);
    lane.mounts = std::move(mounts);
  }
  if (absl::Status room = Room(lane, where); !room.ok()) {
    Forget(lane);
    return room;
  }
  auto call = std::make_shared<Call>();
  call->lane = &lane;
  call->path = where.path;
  call->limit = where.deadline.count() > 0 ? where.deadline : options_.deadline;
  call->work = std::move(work);
  call->answer = std::move(answer);
  call->until = Clock::now() + call->limit;
  call->pulse = where.pulse;
  if (!call->pulse) Arm(call, call->until);
  lane.waiting.Add(std::move(call), where.owner);
  Dispatch();
  return absl::OkStatus();
}

void DiskCalls::Pool::Forget(Lane& lane) {
  if (lane.running > 0 || lane.waiting.size() > 0 || !lane.dead.empty()) return;
  const std::string key = lane.key;
  lanes_.erase(key);
}

bool DiskCalls::Pool::MayRun(const Lane& lane) const {
  if (lane.dead.empty() && lane.waiting.size() == 0) return false;
  if (lane.running >= options_.threads) return false;
  return !lane.several() ||
         std::none_of(lane.mounts.begin(), lane.mounts.end(), [&](const Mount& mount) {
           const auto found = counts_.find(mount.device);
           return found != counts_.end() &&
                  found->second.of_sets >= kLanesOfSets * options_.threads;
         });
}

void DiskCalls::Pool::Hand(Lane& lane) {
  std::shared_ptr<Call> call;
  if (lane.dead.empty()) {
    call = lane.waiting.Take();
  } else {
    call = std::move(lane.dead.back());
    lane.dead.pop_back();
  }
  ++lane.running;
  for (const Mount& mount : lane.mounts) call->at.push_back(&mount);
  Count(*call, 1);
  handed_.push_back(std::move(call));
  wake_.Signal();
}

void DiskCalls::Pool::Dispatch() {
  for (size_t passed = 0; passed < lanes_.size();) {
    auto turn = lanes_.upper_bound(last_lane_);
    if (turn == lanes_.end()) turn = lanes_.begin();
    const bool may = MayRun(turn->second);
    if (may && !HasThread()) return;
    last_lane_ = turn->first;
    if (may) Hand(turn->second);
    passed = may ? 0 : passed + 1;
  }
}

// Detached, because one that hangs cannot be joined; it owns the pool with us.
bool DiskCalls::Pool::StartThread() {
  if (threads_ >= options_.most_threads) return false;
  try {
    std::thread thread([self = shared_from_this()] { self->Serve(); });
    pthread_setname_np(thread.native_handle(), options_.name.substr(0, 15).c_str());
    thread.detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++threads_;
  ++idle_;
  return true;
}

std::shared_ptr<DiskCalls::Pool::Call> DiskCalls::Pool::Next(Call* done) {
  const absl::MutexLock lock(&mutex_);
  if (done != nullptr) {
    Count(*done, -1);
    --done->lane->running;
    Forget(*done->lane);
    ++idle_;
    Dispatch();
  }
  const Clock::time_point until = Clock::now() + kIdle;
  bool late = false;
  while (handed_.empty() && !ending_ && !late) late = wake_.WaitUntil(&mutex_, until);
  --idle_;
  if (handed_.empty()) {
    --threads_;
    quieter_.SignalAll();
    return nullptr;
  }
  std::shared_ptr<Call> call = std::move(handed_.front());
  handed_.pop_front();
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

void DiskCalls::Pool::Serve() {
  std::shared_ptr<Call> call;
  while ((call = Next(call.get()))) {
    if (call->wanted) call->work();
    call->work = nullptr;  // with what it owns, as files that are to be closed
    std::vector<Due> due;
    {
      const absl::MutexLock lock(&mutex_);
      call->runs = false;
      --running_;
      SetHangs(*call, false);
      Disarm(*call);
      if (call->answer) Take(*call, absl::OkStatus(), due);
      quieter_.SignalAll();
    }
    Give(std::move(due));
  }
}

void DiskCalls::Pool::SetHangs(Call& call, bool hangs) {
  Count(call, -1);
  call.hangs = hangs;
  call.at.clear();
  const std::string step = hangs && call.pulse ? call.pulse->newest().path : "";
  const std::string device = step.empty() ? "" : mounts_.Of(step).device;
  const Mount* blamed = nullptr;
  for (const Mount& mount : call.lane->mounts) {
    call.at.push_back(&mount);
    if (!step.empty() && mount.device == device) blamed = &mount;
  }
  // A step that has led elsewhere, by a link, is no file system's of the lane alone.
  if (blamed != nullptr) call.at = {blamed};
  Count(call, 1);
}

void DiskCalls::Pool::Count(const Call& call, int by) {
  const auto more = static_cast<size_t>(by);
  for (const Mount* mount : call.at) {
    Counts& counts = counts_[mount->device];
    if (call.lane->several()) counts.of_sets += more;
    if (call.lane->several() && call.hangs) counts.of_sets_hanging += more;
    if (call.at.size() == 1 && call.hangs) counts.hanging += more;
    if (counts.of_sets == 0 && counts.hanging == 0) counts_.erase(mount->device);
  }
  if (!call.hangs) return;
  call.lane->hanging += more;
  hanging_ += more;
  if (options_.hanging_of_all) *options_.hanging_of_all += more;
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
  Disarm(*call);
  const Clock::time_point now = Clock::now();
  const Clock::time_point step = call->pulse ? call->pulse->newest().began : call->began;
  if (call->answer && now >= AnswerBy(*call, step)) Take(*call, LateError(*call), due);
  if (!call->runs) return;
  const bool hangs = now >= step + options_.hangs_after;
  // One that hangs is looked at again: it may have got on.
  const Clock::time_point look = (hangs ? now : step) + options_.hangs_after;
  if (call->answer) Arm(call, std::min(look, AnswerBy(*call, step)));
  if (!call->answer) Arm(call, look);
  if (!hangs && !call->hangs) return;
  SetHangs(*call, hangs);  // also anew: it may hang at another step by now
  if (hangs) {
    for (auto& [key, lane] : lanes_) {
      if (lane.waiting.size() == 0) continue;
      const std::string why = WhatHangs(lane);
      if (why.empty()) continue;
      TakeWaiting(
          lane, [&](const Call& other) { return NotAskedFor(other.path, why); }, due);
    }
  }
  Dispatch();
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
      const Clock::time_point first = timers_.begin()->first;
      if (first > Clock::now()) {
        timer_changed_.WaitUntil(&mutex_, first);
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
    for (auto& [key, lane] : lanes_) {
      TakeWaiting(
          lane, [](const Call&) { return Stopping(); }, due);
    }
    for (const auto& call : handed_) {
      if (call->answer) Take(*call, Stopping(), due);
    }
    Dispatch();
    wake_.SignalAll();
  }
  Give(std::move(due));
  due.clear();
  {
    const absl::MutexLock lock(&mutex_);
    const Clock::time_point until = Clock::now() + kGraceAtEnd;
    while (running_ > hanging_) {
      if (quieter_.WaitUntil(&mutex_, until)) break;
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
size_t DiskCalls::lanes() const { return pool_->lanes(); }

}  // namespace trireme::coordinator
