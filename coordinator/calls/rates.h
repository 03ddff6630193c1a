// How often a user may call: a bucket of tokens for submissions and one for all other calls, so
// that one busy script does not take the daemon from the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

// Of one user. A bucket of `burst` that fills by `per_second`.
struct Rate {
  double per_second = 0;  // 0: no limit
  double burst = 0;       // at least 1
};

enum class CallKind { kSubmit, kOther };

// Threads: any. One bucket for each user that ever called: there are no more than the token file
// has.
class CallRates {
 public:
  CallRates(Rate submits, Rate others) : submits_(submits), others_(others) {}

  // ResourceExhausted, with RetryAfter: this one is too many. `now_ns` of a clock that never goes
  // back.
  absl::Status Take(const std::string& user, CallKind kind, int64_t now_ns);

 private:
  struct Bucket {
    double tokens = 0;
    int64_t filled_ns = 0;
  };
  const Rate submits_;
  const Rate others_;
  absl::Mutex mutex_;
  std::map<std::pair<std::string, CallKind>, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

// After so long a queue or a set of streams that was full may have room.
inline constexpr uint64_t kFullForMs = 1000;

// The same status, which tells after how long it is of use to ask again; and what it tells, 0:
// nothing.
absl::Status WithRetryAfter(absl::Status status, uint64_t milliseconds);
uint64_t RetryAfterMs(const absl::Status& status);

// Of DiskCalls::Begin, which did not: where too much waits there, it is of use to ask again.
inline absl::Status NotAsked(const absl::Status& begun) {
  return absl::IsResourceExhausted(begun) ? WithRetryAfter(begun, kFullForMs) : begun;
}

}  // namespace trireme::coordinator
