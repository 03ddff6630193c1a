#include "coordinator/calls/disk_endings.h"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {
namespace {

// However long others go on before it: nobody waits.
constexpr std::chrono::hours kEndingLimit{24 * 365};

}  // namespace

class DiskEndings::Rest : public std::enable_shared_from_this<Rest> {
 public:
  void Add(std::shared_ptr<void> thing) {
    const absl::MutexLock lock(&mutex_);
    things_.push_back(std::move(thing));
    if (runs_) return;
    try {
      std::thread([self = shared_from_this()] { self->EndAll(); }).detach();
      runs_ = true;
    } catch (const std::system_error&) {  // with the next one
    }
  }

 private:
  void EndAll() {
    while (true) {
      std::vector<std::shared_ptr<void>> ended;  // goes when the mutex is free again
      const absl::MutexLock lock(&mutex_);
      ended.swap(things_);
      runs_ = !ended.empty();
      if (!runs_) return;
    }
  }

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<void>> things_ ABSL_GUARDED_BY(mutex_);
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
};

std::shared_ptr<DiskEndings::Rest> DiskEndings::NewRest() { return std::make_shared<Rest>(); }

// Whoever drops one that no thread of the disk has emptied may not wait.
struct DiskEndings::Parcel {
  Parcel(std::shared_ptr<void> thing, std::shared_ptr<Rest> rest)
      : thing(std::move(thing)), rest(std::move(rest)) {}
  ~Parcel() {
    if (thing) rest->Add(std::move(thing));
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  std::shared_ptr<void> thing;
  const std::shared_ptr<Rest> rest;
};

void DiskEndings::End(DiskPath where, std::shared_ptr<void> thing) {
  if (!thing) return;
  where.deadline = kEndingLimit;
  const auto parcel = std::make_shared<Parcel>(std::move(thing), rest_);
  disks_
      .Begin(
          where,
          [parcel] {
            parcel->thing.reset();
            return absl::OkStatus();
          },
          [](const absl::Status&) {})
      .IgnoreError();
}

}  // namespace trireme::coordinator
